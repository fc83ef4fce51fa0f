"""Generated rules and dashboards: built from data, checked for drift, linted, pushed."""
