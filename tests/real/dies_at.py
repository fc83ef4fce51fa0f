"""Run the command line as a user would, and die by SIGKILL at a boundary of the run it carries out.

    python -m tests.real.dies_at STEP POINT -- runbook apply plan.json -c pdops.yaml

STEP is the step whose boundary is meant, POINT one of those that `Executor` tells of, as `after-intent` or `after-effect`.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from pdops.cli import main
from pdops.runbook import stepping


def arm(step: str, point: str) -> None:
    """Make the hand that carries effects out die at a boundary of one step."""
    real = stepping.Hand.do

    def do(hand: Any, it: stepping.Deed, *more: Any) -> None:
        if it.id == step:

            def reached(now: str) -> None:
                if now == point:
                    os.kill(os.getpid(), signal.SIGKILL)

            hand._reached = reached
        real(hand, it, *more)

    stepping.Hand.do = do  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(sys.argv[1], sys.argv[2])
    sys.argv[1:] = sys.argv[sys.argv.index("--") + 1 :]
    main()
