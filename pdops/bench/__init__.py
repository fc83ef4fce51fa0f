"""Episodes, baselines and scores: how good the diagnosis is, measured on a simulated cluster."""
