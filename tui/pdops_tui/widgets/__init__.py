"""Widgets that draw ready-made lines; only they and the app know Textual."""
