"""Alerts in, runbook runs out: a webhook for Alertmanager, roles, and what starts by itself."""
