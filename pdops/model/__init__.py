"""Immutable nouns of a PD cluster. No I/O, no clock; numpy holds columns of samples."""
