"""`python -m pdops.sim` with a double of the simulation in it, which does what its file says about decodes only."""

from __future__ import annotations

import os
from pathlib import Path

from pdops.sim import program
from pdops.sim.spec import load_spec
from tests.sim.doubles import DoubleSimulation


def simulation(path: Path) -> DoubleSimulation:
    """Return the double, unless the test wants the program to fail."""
    if "DOUBLE_FAILS" in os.environ:
        raise RuntimeError(os.environ["DOUBLE_FAILS"])
    spec = load_spec(str(path))
    return DoubleSimulation(spec.decode, spec.engine.model)


if __name__ == "__main__":
    program.simulation = simulation
    program.main()
