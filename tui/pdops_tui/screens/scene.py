"""All that a screen may look at."""

from __future__ import annotations

from dataclasses import dataclass, field

from pdops_tui.desk import Desk
from pdops_tui.models.ask import Ask
from pdops_tui.models.screen import Screen
from pdops_tui.places import Place
from pdops_tui.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A place, the room there is for it in cells, the newest data, the session and what is lent.

    `data` is None before the first data came.
    """

    place: Place
    width: int
    height: int
    data: Screen | None
    session: Session = field(default_factory=Session)
    desk: Desk = field(default_factory=Desk)

    @property
    def screen(self) -> Screen:
        """The data; only for screens that need it."""
        assert self.data is not None
        return self.data

    @property
    def ask(self) -> Ask:
        """The questions of the View."""
        return self.screen.ask
