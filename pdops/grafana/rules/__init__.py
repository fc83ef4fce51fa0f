"""Recording rules, alerts and burn rates as data; what Prometheus reads is generated from them, and so are their tests."""
