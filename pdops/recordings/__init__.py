"""Recordings of a real pair that ship with pdops, for `pdops demo`."""
