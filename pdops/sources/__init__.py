"""Turn the outside into Frames: scrapes, PromQL answers, recordings, case files, facts, logs."""
