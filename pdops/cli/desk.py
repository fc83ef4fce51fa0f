"""What `pdops top` lends to its screens: the deployment's start, and what a plan can be made for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pdops.cli.inputs import Inputs

if TYPE_CHECKING:
    from pdops.runbook.make import BackendState
    from pdops_tui.desk import Desk


def desk_for(inputs: Inputs, *, readonly: bool = False) -> Desk:
    """Return what the inventory given with -c allows; a recording lends nothing. Nothing is read before it is asked for."""
    from pdops_tui.desk import Desk
    from pdops_tui.lately import Lately

    if inputs.config is None or inputs.replay is not None:
        return Desk(readonly=readonly)
    config = inputs.config.absolute()

    def starting() -> Mapping[str, Any] | None:
        from pdops.reference.state import Home

        place = Home(config.parent)
        if not (place.file.is_file() and place.inventory.exists() and place.inventory.samefile(config)):
            return None
        # Slow to load, and most inventories belong to no deployment.
        from pdops.reference.running import Running
        from pdops.reference.status import status

        return status(Running.open(place))

    def backend() -> BackendState | None:
        from pdops.cli.backends import backend_for
        from pdops.runbook.make import BackendState

        found = backend_for(inputs)
        return None if found is None else BackendState(found.name, found.observe(), found.capabilities())

    return Desk(starting=Lately(starting), backend=Lately(backend), readonly=readonly)
