"""Bounded columnar history, the windows over it, and the answers to questions about them."""
