"""Runbooks: what may be done about a diagnosis, planned first, gated, carried out and undone."""
