"""Generated Grafana dashboards and Prometheus rules, data only."""
