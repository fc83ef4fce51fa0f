"""Run the router."""

from __future__ import annotations

from pdops.router.cli import main

if __name__ == "__main__":
    main()
