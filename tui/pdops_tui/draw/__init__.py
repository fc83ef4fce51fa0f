"""Lay screen data out as lines of styled text; the same lines go to the terminal widgets and to plain text."""
