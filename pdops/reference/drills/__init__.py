"""Drills: break the reference deployment on purpose, keep a labelled recording, put it back."""
