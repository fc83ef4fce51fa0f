"""The router of a prefill/decode cluster: a program of its own, `python -m pdops.router`."""
