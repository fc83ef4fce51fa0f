"""Orders of work as data: stages with probes and bounded waits, effects injected."""
