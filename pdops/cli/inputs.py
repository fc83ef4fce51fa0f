"""Where data comes from: the options that every command shares, and the source they ask for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from pdops.cli.style import Number, warn
from pdops.errors import RecordingError, UsageError

if TYPE_CHECKING:
    from pdops.model.cluster import Cluster
    from pdops.sources.base import Source
    from pdops.sources.inventory import Inventory
    from pdops.sources.recording import Recording

_said: set[str] = set()
F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Inputs:
    """The source options as given."""

    configs: tuple[Path, ...]
    targets: tuple[str, ...]
    prometheus: str | None
    selector: str
    role_label: str
    replay: Path | None
    case: Path | None
    interval_s: float

    @property
    def config(self) -> Path | None:
        """The inventory file, or None."""
        return self.configs[0] if self.configs else None

    def kind(self) -> str:
        """Return which kind of source is asked for: live, prometheus, replay or case.

        Raises:
            UsageError: none is, or two that exclude each other.
        """
        given = [
            name
            for name, value in (
                ("--target", self.targets),
                ("--prometheus", self.prometheus),
                ("--replay", self.replay),
                ("--case", self.case),
            )
            if value
        ]
        if len(self.configs) > 1:
            raise UsageError(
                "more than one inventory is given",
                where=" and ".join(map(str, self.configs)),
                hint="give one -c; a cluster is judged by itself",
            )
        if self.config is not None and (self.targets or self.case is not None):
            raise UsageError(
                "more than one source is given",
                why=f"-c and {given[0]}",
                hint="-c goes with --prometheus or --replay, or alone",
            )
        if len(given) > 1:
            raise UsageError(
                "more than one source is given",
                why=" and ".join(given),
                hint="give one of them; -c may go with --prometheus",
            )
        if not given and self.config is None:
            raise UsageError(
                "no source is given",
                hint="give --target prefill=URL --target decode=URL, --prometheus URL, --replay FILE, --case FILE or -c pdops.yaml",
            )
        return (
            {"--target": "live", "--prometheus": "prometheus", "--replay": "replay", "--case": "case"}[given[0]]
            if given
            else "live"
        )

    def inventory(self) -> Inventory | None:
        """Return the inventory that the options name, or None."""
        from pdops.sources.inventory import from_targets, load_inventory

        if self.targets:
            return warned(from_targets(self.targets))
        return warned(load_inventory(self.config)) if self.config is not None else None


def warned(inventory: Inventory) -> Inventory:
    """Say once what is likely a mistake in an inventory, and return it."""
    for text in inventory.warnings:
        if text not in _said:
            _said.add(text)
            warn(text)
    return inventory


def source_options(
    *, case: bool = True, replay: bool = True, prometheus: bool = True, interval_s: float = 1.0
) -> Callable[[F], F]:
    """Add the source options to a command, which receives them as one `inputs` argument.

    Without `prometheus` its options are taken but not offered, so that the command can say why it refuses them.
    """

    def decorate(function: F) -> F:
        options: list[Callable[[F], F]] = [
            click.option(
                "-c",
                "--config",
                "configs",
                multiple=True,
                type=click.Path(path_type=Path),
                help="Inventory file (pdops.yaml).",
            ),
            click.option("--target", "targets", multiple=True, metavar="ROLE=URL", help="A worker; may be repeated."),
            click.option(
                "--prometheus", metavar="URL", hidden=not prometheus, help="Read from a Prometheus-compatible HTTP API."
            ),
            click.option(
                "--selector",
                default="",
                metavar="MATCHERS",
                hidden=not prometheus,
                help="""Only these series, as '{cluster="x"}'.""",
            ),
            click.option(
                "--role-label",
                default="",
                metavar="LABEL",
                hidden=not prometheus,
                help="Label that tells the role; default: role.",
            ),
            click.option(
                "--interval",
                "interval_s",
                type=Number(0.2, 60),
                default=interval_s,
                show_default=True,
                metavar="S",
                help="Seconds between scrapes.",
            ),
        ]
        if replay:
            options.append(
                click.option("--replay", type=click.Path(path_type=Path), metavar="FILE", help="Read a recording.")
            )
        if case:
            options.append(
                click.option("--case", type=click.Path(path_type=Path), metavar="FILE", help="Read a case file.")
            )

        def wrapped(
            *args: Any,
            configs: tuple[Path, ...],
            targets: tuple[str, ...],
            prometheus: str | None,
            selector: str,
            role_label: str,
            interval_s: float,
            replay: Path | None = None,
            case: Path | None = None,
            **kwargs: Any,
        ) -> Any:
            inputs = Inputs(configs, targets, prometheus, selector, role_label, replay, case, interval_s)
            return function(*args, inputs=inputs, **kwargs)

        wrapped.__name__ = function.__name__
        wrapped.__doc__ = function.__doc__
        wrapped.__click_params__ = getattr(function, "__click_params__", [])  # type: ignore[attr-defined]
        result: Any = wrapped
        for option in reversed(options):
            result = option(result)
        return result  # type: ignore[no-any-return]

    return decorate


def live_source(inputs: Inputs, *, whole_pages: bool = False, follow: bool = False) -> Source:
    """Open the live source the options ask for; with `whole_pages` every look asks for all families, histograms too.

    With `follow` the workers are those of the inventory file as it is at each look, not as it was at the first.

    Raises:
        UsageError: the options do not name one.
    """
    inputs.kind()
    inventory = inputs.inventory()
    served = inventory.prometheus if inventory is not None else None
    if inputs.prometheus is not None or (
        served is not None and inventory is not None and not inventory.cluster.workers
    ):
        return _prometheus(inputs, inventory)
    if inventory is None:
        raise UsageError("no live source is given", hint="give --target ROLE=URL or -c pdops.yaml")
    from pdops.sources.scrape import ScrapeSource
    from pdops.sources.targets import FULL_EVERY_S

    every_s = 0.0 if whole_pages else FULL_EVERY_S

    def opened(cluster: Cluster) -> Source:
        return ScrapeSource(cluster, interval_s=inputs.interval_s, full_every_s=every_s, facts=True)

    path = inputs.config
    if path is None or not follow:
        return opened(inventory.cluster)
    from pdops.sources.followed import Followed
    from pdops.sources.inventory import load_inventory

    return Followed(path, inventory.cluster, lambda: load_inventory(path).cluster, opened)


def _prometheus(inputs: Inputs, inventory: Inventory | None) -> Source:
    from pdops.model.cluster import Secret
    from pdops.sources.promql import PromqlSettings, PromqlSource

    served = inventory.prometheus if inventory is not None else None
    settings = PromqlSettings(
        url=inputs.prometheus or (served.url if served is not None else ""),
        selector=inputs.selector or (served.selector if served is not None else "{}"),
        role_label=inputs.role_label or (served.role_label if served is not None else "role"),
        secret=served.secret if served is not None else Secret(),
    )
    cluster = inventory.cluster if inventory is not None and inventory.cluster.workers else None
    source = PromqlSource(settings, cluster=cluster, name=inventory.cluster.name if inventory is not None else "")
    if cluster is None:
        return source
    from pdops.sources.beside import Beside

    return Beside(source, cluster)


@dataclass(frozen=True, slots=True)
class Played:
    """A recording with frames; times are Unix seconds of its first and last one."""

    record: Recording
    start_s: float
    end_s: float


def open_played(path: Path) -> Played:
    """Open a recording.

    Raises:
        RecordingError: it cannot be read, or holds no frame.
    """
    from pdops.sources.recording import open_recording

    record = open_recording(path)
    # A file that is cut off early has a start and no frame.
    if record.header.start_s is None or next(record.iter_frames(), None) is None:
        raise RecordingError(
            "recording holds no frame",
            where=str(path),
            why="; ".join(record.warnings),
            hint="record for at least one interval",
        )
    return Played(record, record.start_s, record.end_s)


def cluster_of(inputs: Inputs, recorded: Cluster) -> Cluster:
    """Return a recording's cluster, with the SLO of an inventory when one is given beside it."""
    import dataclasses

    inventory = inputs.inventory()
    return recorded if inventory is None else dataclasses.replace(recorded, slo=inventory.cluster.slo)
