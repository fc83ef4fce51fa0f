"""The terminal dashboard: view models, widgets, screens."""
