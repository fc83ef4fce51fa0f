"""Bounded requests out: small questions whose right answer is known, with counters read before and after."""
