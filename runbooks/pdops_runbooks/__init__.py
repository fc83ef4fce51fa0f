"""Runbooks as data, one YAML file each."""
