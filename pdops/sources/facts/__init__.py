"""Collectors of facts: configuration as a component tells it, as text, named as the engine's own options."""
