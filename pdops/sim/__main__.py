"""Show a simulated cluster."""

from __future__ import annotations

from pdops.sim.program import main

if __name__ == "__main__":
    main()
