"""A simulated prefill/decode cluster on a virtual clock, seen through the pages its programs would serve."""
