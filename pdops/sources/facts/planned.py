"""The facts of a worker that has not been started, from the command line and environment it will get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from pdops.model.cluster import Worker
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.host import HostReader
from pdops.sources.facts.modelconfig import find_checkpoint, read_checkpoint
from pdops.sources.facts.packages import package_facts
from pdops.sources.facts.process import Process, collect
from pdops.sources.facts.resolve import resolve


def collect_planned(
    worker: Worker,
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    ports: Iterable[int] = (),
    host: HostReader | None = None,
) -> Collected:
    """Return what can be known of a worker of this machine before it runs.

    Args:
        worker: who it will be.
        argv: its command line; the first word is its Python or program.
        environ: its whole environment.
        ports: those it will listen on; each is told free or taken.
        host: reads this machine.
    """
    out = Collected()
    out.put(worker.id, package_facts(argv[0] if argv else ""))
    out.add(collect(worker.id, worker.role, Process(pid=0, argv=tuple(argv), environ=environ)))
    model = out.get(worker.id, "model")
    folder = None if model is None else find_checkpoint(model, environ, out.get(worker.id, "revision") or "main")
    if folder is not None:
        with suppress(OSError, ValueError):
            out.put(worker.id, read_checkpoint(folder))
    out.add((host or HostReader()).collect(worker.id, None, ports))
    resolve(out, worker)
    return out
