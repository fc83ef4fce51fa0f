"""Every command by name, for Textual's command palette."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Protocol, cast

from textual.command import DiscoveryHit, Hit, Hits, Provider

from pdops_tui.commands import KeyCommand


class _Offers(Protocol):
    def palette(self) -> list[KeyCommand]: ...


class ByName(Provider):
    """Offers the commands that work where the person stands."""

    def _offered(self) -> Iterator[tuple[KeyCommand, str, partial[object] | partial[bool]]]:
        for item in cast("_Offers", self.app).palette():
            keys = f" ({item.shown})" if item.shown else ""
            yield item, f"{item.name}{keys}", partial(self.app.call_later, self.app.run_action, item.action)

    async def discover(self) -> Hits:
        """Yield all of them, before anything is typed."""
        for item, title, run in self._offered():
            yield DiscoveryHit(title, run, help=item.help)

    async def search(self, query: str) -> Hits:
        """Yield those whose name or help is like what was typed, best first."""
        matcher = self.matcher(query)
        for item, title, run in self._offered():
            score = max(matcher.match(title), 0.5 * matcher.match(item.help))
            if score > 0:
                yield Hit(score, matcher.highlight(title), run, text=title, help=item.help)
