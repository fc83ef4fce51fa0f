"""The raw metrics of one simulated worker, as the program it stands for would expose them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

from pdops.model.frame import Scrape, Values
from pdops.sim.families import Family, page_of
from pdops.sim.samples import START, Child, Plan, child_at, plan_of

EPOCH_S = 1_700_000_000.0
"""Unix seconds at which virtual time begins."""
_NONE: Mapping[str, str] = MappingProxyType({})


class Instruments:
    """Counts for one worker and shows the page of its program.

    Names are those of the program's page; a counter goes without `_total`. Label values that are not given are the ones
    of `labels`, else those that the program always uses. A name or label that the program does not have, a counter that
    falls, and a gauge that is observed are defects of the simulation: they raise.

    Args:
        worker: the worker's id.
        engine: whose page it is: vllm (with NIXL and the pdops plugin), pdops_router, mooncake or node.
        labels: label values that hold for all families which have such a label, `model_name` for example.
        endpoint: tells two pages of the same worker apart.
        start_s: when its process started, in Unix seconds.

    Attributes:
        error: why the page does not answer, or None; `page` still says what it would show.
        silent: with an `error`, whether the process hangs instead of refusing connections.

    Raises:
        UsageError: no page of such an engine is known.
    """

    def __init__(
        self,
        worker: str,
        engine: str,
        *,
        labels: Mapping[str, str] = _NONE,
        endpoint: str = "",
        start_s: float = EPOCH_S,
    ) -> None:
        self.worker, self.engine, self.endpoint = worker, engine, endpoint
        self.error: str | None = None
        self.silent = False
        self._page = page_of(engine)
        self._families = {f.key: f for f in self._page.families}
        self._labels = dict(labels)
        self._hidden: frozenset[str] = frozenset()
        self._held: tuple[Plan, Values] | None = None
        self.reset(start_s)

    def inc(self, name: str, amount: float = 1.0, **labels: str) -> None:
        """Add to a counter (or gauge); an amount of 0 makes the series appear.

        Raises:
            ValueError: a counter would fall, or it is neither.
        """
        child = self._known.get((name, *labels.items())) or self._child(name, labels)
        if amount < 0 and child.family.kind == "counter":
            raise ValueError(f"counter {name} cannot fall by {-amount}")
        if child.family.tail:
            raise ValueError(f"{name} is a {child.family.kind}, not a counter")
        self._raw[child.start] += amount

    def set(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge.

        Raises:
            ValueError: it is none.
        """
        child = self._known.get((name, *labels.items())) or self._child(name, labels)
        if child.family.kind not in ("gauge", "untyped"):
            raise ValueError(f"{name} is a {child.family.kind}, not a gauge")
        self._raw[child.start] = value

    def observe(self, name: str, value: float, n: int = 1, **labels: str) -> None:
        """Add `n` equal observations to a histogram or summary; 0 of them make the series appear.

        Raises:
            ValueError: it is neither.
        """
        child = self._known.get((name, *labels.items())) or self._child(name, labels)
        if not child.family.tail:
            raise ValueError(f"{name} is a {child.family.kind}, not a histogram")
        raw, edges = self._raw, child.edges
        raw[child.start + (bisect_left(edges, value) if edges else 0)] += n
        raw[child.last] += value * n

    def reset(self, at_s: float, *, labels: Mapping[str, str] = _NONE) -> None:
        """Begin anew as a restarted process does: counters at 0, only the first series, another start time.

        Args:
            at_s: when the process started, in Unix seconds.
            labels: label values that are different from now on.
        """
        self._labels |= labels
        self.start_s = at_s
        self._raw: list[float] = [at_s]
        self._children: dict[str, dict[tuple[str, ...], Child]] = {}
        self._known: dict[tuple[object, ...], Child] = {}
        self._plan: Plan | None = None
        for family in self._page.families:
            if not family.late:
                self._seed(family)
        if START in self._families:
            self.set(START, at_s)

    def forget(self, **labels: str) -> None:
        """Drop every series that has these label values, as the router does for a worker that left."""
        gone = set(labels.items())
        for children in self._children.values():
            for values, child in list(children.items()):
                if gone <= set(zip(child.family.labels, values, strict=True)):
                    del children[values]
        self._known.clear()
        self._plan = None

    def hide(self, families: Collection[str]) -> None:
        """Leave families off the page (names as in their TYPE line) while counting goes on; none shows all again."""
        self._hidden, self._plan = frozenset(families), None

    def family_names(self) -> list[str]:
        """Return the families that are on the page now, hidden ones too, as their TYPE lines name them."""
        return [f.name for f in self._page.families if f.key in self._children]

    def freeze(self, frozen: bool) -> None:
        """Go on showing the page of this moment, as a cache between worker and reader would; False ends it."""
        self._held = self._shown() if frozen else None

    def page(self, *, names: Collection[str] = (), clock: Callable[[float], float] | None = None) -> str:
        """Return the exposition text.

        Args:
            names: only these samples, all when empty.
            clock: turns the simulation's Unix seconds into those of who reads the page.
        """
        plan, numbers = self._shown()
        values = numbers.tolist()
        if clock is not None:
            for place in plan.moments:
                values[place] = clock(values[place])
        return plan.text(values, names, whole=self._page.whole)

    def scrape(self, at_s: float) -> Scrape:
        """Return what a reader takes of the page at `at_s` (Unix seconds): the samples the catalog knows.

        The Layout is the same object while the series stay the same, and for all workers with equal series. With an
        `error` there are no values.
        """
        bare = Scrape(worker=self.worker, engine=self.engine, at_s=at_s, error=self.error, endpoint=self.endpoint)
        if self.error is not None:
            return bare
        plan, numbers = self._shown()
        return replace(bare, layout=plan.layout, values=numbers[plan.wanted])

    def _shown(self) -> tuple[Plan, Values]:
        if self._held is not None:
            return self._held
        if self._plan is None:
            self._plan = plan_of(self._page, self._children, self._hidden, len(self._raw))
        return self._plan, self._plan.numbers(self._raw)

    def _seed(self, family: Family) -> None:
        self._children.setdefault(family.key, {})
        for values, number in family.seeds:
            own = tuple(self._labels.get(n, v) for n, v in zip(family.labels, values, strict=True))
            self._raw[self._add(family, own).start] = number

    def _child(self, name: str, labels: Mapping[str, str]) -> Child:
        family = self._families.get(name)
        if family is None:
            raise ValueError(f"{self.engine} has no family {name!r}")
        if not labels.keys() <= set(family.labels):
            raise ValueError(f"{name} has labels {family.labels}, not {tuple(labels)}")
        if name not in self._children:
            self._seed(family)
        known = {**family.defaults, **self._labels, **labels}
        missing = [n for n in family.labels if n not in known]
        if missing:
            raise ValueError(f"{name} needs a value for {', '.join(missing)}")
        values = tuple(known[n] for n in family.labels)
        child = self._children[name].get(values) or self._add(family, values)
        self._known[name, *labels.items()] = child
        return child

    def _add(self, family: Family, values: tuple[str, ...]) -> Child:
        child = child_at(family, values, len(self._raw))
        self._raw += [0.0] * family.size
        self._children.setdefault(family.key, {})[values] = child
        self._plan = None
        return child
