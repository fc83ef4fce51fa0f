"""Every drill there is, by name."""

from __future__ import annotations

from pdops.errors import UsageError
from pdops.reference.drills import freezes, kills, leases, links, load_shapes, routing, startup_mismatch, store
from pdops.reference.drills.plan import Drill

FAMILIES = (kills, freezes, links, leases, load_shapes, routing, startup_mismatch, store)
DRILLS: dict[str, Drill] = {drill.name: drill for family in FAMILIES for drill in family.DRILLS}


def find(name: str) -> Drill:
    """Return a drill.

    Raises:
        UsageError: there is none of that name.
    """
    import difflib

    if name in DRILLS:
        return DRILLS[name]
    close = difflib.get_close_matches(name, DRILLS, n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "`pdops drill list` lists them"
    raise UsageError(f"no drill {name[:60]!r}", hint=hint)
