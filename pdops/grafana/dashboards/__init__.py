"""Six Grafana dashboards as data, and what turns them into JSON."""
