"""A sheet: the lines of one screen, and the spots on it that lead somewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pdops_tui.draw.line import Line, cut, rule, width_of
from pdops_tui.models.text import clean
from pdops_tui.places import Place


@dataclass(frozen=True, slots=True)
class Target:
    """A spot the cursor can stand on: a line, its first cell and its width, and what opens there.

    `yank` is what copying takes there; `place` None leads nowhere. `deed` is done on enter instead, away from the thread
    that draws, and returns what to say.
    """

    line: int
    start: int
    width: int
    place: Place | None = None
    yank: str = ""
    deed: Callable[[], str] | None = field(default=None, compare=False)

    @property
    def key(self) -> tuple[Place | None, str]:
        """What the cursor follows when lines move."""
        return self.place, self.yank


@dataclass(frozen=True, slots=True)
class Sheet:
    """The lines of a screen and its spots, in the order of lines, left to right."""

    lines: tuple[Line, ...] = ()
    targets: tuple[Target, ...] = ()


@dataclass(slots=True)
class Draft:
    """A sheet being written, line after line."""

    width: int
    lines: list[Line] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def add(self, *lines: Line) -> None:
        """Add lines, each cut to the width and made safe, whatever names and reasons they carry."""
        for line in lines:
            self.lines.append(cut(tuple((clean(text), style) for text, style in line), self.width))

    def extend(self, lines: Iterable[Line]) -> None:
        """Add lines, each cut to the width."""
        self.add(*lines)

    def title(self, text: str, hint: str = "") -> None:
        """Add a rule with a title."""
        self.lines.append(rule(clean(text), self.width, clean(hint)))

    def spot(
        self,
        line: Line,
        place: Place | None,
        *,
        yank: str = "",
        start: int = 0,
        deed: Callable[[], str] | None = None,
    ) -> None:
        """Add a line that is a spot as a whole, from a cell on."""
        at = len(self.lines)
        self.add(line)
        self.targets.append(Target(at, start, max(1, width_of(self.lines[at]) - start), place, yank, deed))

    def sheet(self) -> Sheet:
        """Return what was written."""
        return Sheet(tuple(self.lines), tuple(self.targets))
