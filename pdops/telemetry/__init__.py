"""pdops' own telemetry."""
