"""Thresholds of checks that a screen marks too; it need not load every check to know them."""

from __future__ import annotations

FULL = 0.9
"""Above this share of KV in use preemptions follow (from public incidents)."""
DEEP = 2.0
"""Waiting requests per worker above which a queue is a queue and not a passing step."""
SHARE = 0.05
"""Above this share of prompt tokens PD is not working as intended (from public incidents); a healthy real pair computes only
the last partial block, about 1 to 2 %."""
SLOW = 0.5
"""Below half of what is expected a link is slow (at least half of the link's rate: the usual acceptance test of a transfer path)."""
FALLBACK = 0.3
"""Below this share the path itself has probably changed: a fall from RDMA to TCP costs a factor of 5 to 100 in public
incidents, overlap of a few transfers rarely more than 3."""
