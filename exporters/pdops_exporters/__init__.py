"""Prometheus collectors, one file a subject."""
