"""Collect the facts of a cluster that may be running: pages, processes of this machine, start logs, connections."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path

from yarl import URL

from pdops.clock import Clock
from pdops.model.cluster import Cluster, Role, Secret, Worker
from pdops.sources.detect import detect
from pdops.sources.exposition import NotExposition, Parser
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.engine import ask_engine, info_facts
from pdops.sources.facts.host import HostReader, offset_by_date
from pdops.sources.facts.modelconfig import find_checkpoint, read_checkpoint
from pdops.sources.facts.nodepage import page_facts, page_numbers
from pdops.sources.facts.packages import package_facts
from pdops.sources.facts.process import Process, ProcReader, collect
from pdops.sources.facts.reachfacts import collect_reach, http_place, side_channel
from pdops.sources.facts.resolve import resolve
from pdops.sources.facts.router import ask_router
from pdops.sources.facts.startlog import read_start
from pdops.sources.facts.storeconfig import VARIABLE, store_client_facts
from pdops.sources.fetch import Fetcher, FetchError

_TIMEOUT_S = 5.0
_ENGINES = (Role.PREFILL, Role.DECODE, Role.COLOCATED)
_NOT_HERE = "no process that serves there runs on this machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What is known beforehand, by worker id, and whether to ask engines for `/server_info`.

    `admin` are address and secret of administrative interfaces, of which only settings are read.
    """

    pids: Mapping[str, int] = field(default_factory=dict)
    logs: Mapping[str, Path] = field(default_factory=dict)
    admin: Mapping[str, tuple[str, Secret]] = field(default_factory=dict)
    server_info: bool = False


class _All:
    def __contains__(self, _name: object) -> bool:
        return True


class LiveReader:
    """Collects once. `answered` are the workers of which something was read.

    Args:
        passive: read no metrics page and try no connection between workers, as a source does that scrapes anyway.
    """

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        known: Known | None = None,
        *,
        proc: ProcReader | None = None,
        host: HostReader | None = None,
        passive: bool = False,
    ) -> None:
        self._passive = passive
        self._cluster, self._clock, self._known = cluster, clock, known or Known()
        self._proc, self._host = proc or ProcReader(), host or HostReader()
        self._fetcher = Fetcher(clock, clock.now, timeout_s=_TIMEOUT_S)
        self.out = Collected()
        self.answered: set[str] = set()

    async def collect(self) -> Collected:
        """Return everything that could be read, and what could not."""
        pids = {w.id: pid for w in self._cluster.workers if (pid := self._pid(w)) is not None}
        try:
            for worker in self._cluster.workers:
                self._process(worker, pids.get(worker.id))
            await asyncio.gather(*(self._pages(worker) for worker in self._cluster.workers))
        finally:
            await self._fetcher.aclose()
        for worker in self._cluster.workers:
            if worker.role in _ENGINES:
                self._start_log(worker)
                self._model(worker)
            self._machine(worker, pids.get(worker.id))
            resolve(self.out, worker)
        if self._passive:
            return self.out
        beside = {name for name, pid in pids.items() if self._proc.same_network(pid)}
        self.out.add(await collect_reach(self._cluster, self.out, beside))
        return self.out

    def _pid(self, worker: Worker) -> int | None:
        if worker.id in self._known.pids:
            return self._known.pids[worker.id]
        place = http_place(worker)
        if place is None or not is_here(place.host):
            return None
        address = "127.0.0.1" if place.host == "localhost" else place.host
        return self._proc.listener(address, place.port, beside="self")

    def _process(self, worker: Worker, pid: int | None) -> None:
        why = _NOT_HERE
        if pid is not None:
            try:
                process = self._proc.read(pid)
            except OSError as error:
                why = f"process {pid}: {(error.strerror or str(error)).lower()}"
            else:
                self.answered.add(worker.id)
                self.out.add(collect(worker.id, worker.role, process))
                self.out.put(worker.id, package_facts(process.argv[0] if process.argv else ""))
                self._checkpoint_of(worker, process)
                self._store_client(worker, process)
                return
        self.out.miss(worker.id, "command line", why)
        self.out.miss(worker.id, "environment.*", why)

    async def _pages(self, worker: Worker) -> None:
        engines = set()
        for endpoint in () if self._passive else worker.endpoints:
            try:
                answer = await self._fetcher.get(URL(endpoint.url, encoded=True), worker.secret)
                page = Parser(_All()).parse(answer.body)
            except FetchError as error:
                self.out.miss(worker.id, "metrics page", error.reason)
                if worker.role is Role.KVSTORE:
                    self.out.put(worker.id, {"reachable": "false"})
                continue
            except NotExposition as error:
                self.out.miss(worker.id, "metrics page", str(error))
                continue
            self.answered.add(worker.id)
            engines.add(detect(page.names) or endpoint.engine)
            self.out.put(worker.id, _settled(info_facts(page.layout)))
            self.out.put(worker.id, page_facts(page_numbers(page.layout.series, page.values), answer.at_s))
            self._clock_offset(worker, answer.date, answer.at_s, answer.at_s - answer.duration_s)
        if worker.url is not None and worker.role in _ENGINES and self._may_be_vllm(worker, engines):
            facts, unread = await ask_engine(worker, self._fetcher, server_info=self._known.server_info)
            self.out.put(worker.id, facts)
            if facts:
                self.answered.add(worker.id)
            for key, why in unread.items():
                self.out.miss(worker.id, key, why)
        await self._router(worker)

    def _may_be_vllm(self, worker: Worker, seen: Collection[str | None]) -> bool:
        if self._passive:
            return worker.engine in (None, "vllm")
        return "vllm" in (seen or {worker.engine})

    async def _router(self, worker: Worker) -> None:
        if worker.role is not Role.ROUTER:
            return
        if worker.id not in self._known.admin:
            self.out.miss(worker.id, "settings", "no admin address of it is given")
            return
        facts, why = await ask_router(*self._known.admin[worker.id], self._fetcher)
        self.out.put(worker.id, facts)
        if why is not None:
            self.out.miss(worker.id, "settings", why)

    def _clock_offset(self, worker: Worker, date: str, received_s: float, sent_s: float) -> None:
        if self.out.get(worker.id, "host.clock_offset_s") is not None:
            return
        offset = None
        with suppress(ValueError, TypeError):
            offset = offset_by_date(parsedate_to_datetime(date).timestamp(), sent_s, received_s)
        if offset is not None:
            self.out.put(worker.id, {"host.clock_offset_s": f"{offset:.3f}"})
        else:
            self.out.miss(
                worker.id, "host.clock_offset_s", "answers give whole seconds only; a node exporter tells more"
            )

    def _start_log(self, worker: Worker) -> None:
        path = self._known.logs.get(worker.id)
        if path is None:
            path = next((Path(log["file"]) for log in worker.logs if "file" in log), None)
        if path is None:
            self.out.miss(worker.id, "start log", "no log file of it is known")
            return
        try:
            facts = read_start(path)
        except OSError as error:
            self.out.miss(worker.id, "start log", (error.strerror or str(error)).lower())
            return
        self.out.put(worker.id, facts)
        if not facts:
            self.out.miss(worker.id, "start log", "no start of an engine is in it")

    def _checkpoint_of(self, worker: Worker, process: Process) -> None:
        model = self.out.get(worker.id, "model")
        if model is None:
            return
        revision = self.out.get(worker.id, "revision") or "main"
        folder = find_checkpoint(model, process.environ, revision)
        if folder is not None:
            with suppress(OSError, ValueError):
                self.out.put(worker.id, read_checkpoint(folder))

    def _store_client(self, worker: Worker, process: Process) -> None:
        try:
            self.out.put(worker.id, store_client_facts(process.environ))
        except OSError as error:
            self.out.miss(worker.id, "local_hostname", f"{VARIABLE}: {(error.strerror or str(error)).lower()}")
        except (ValueError, RecursionError):
            self.out.miss(worker.id, "local_hostname", f"{VARIABLE}: not a JSON object")

    def _model(self, worker: Worker) -> None:
        if self.out.get(worker.id, "num_hidden_layers") is None:
            self.out.miss(worker.id, "num_hidden_layers", "the model's configuration is not on this machine")

    def _machine(self, worker: Worker, pid: int | None) -> None:
        place = http_place(worker)
        if pid is None and (place is None or not is_here(place.host)):
            self.out.miss(worker.id, "host.*", "its process is not on this machine; run pdops preflight there as well")
            return
        places = (place, side_channel(self.out.facts.get(worker.id, {})))
        self.out.add(self._host.collect(worker.id, pid, [p.port for p in places if p is not None]))


def _settled(facts: Mapping[str, str]) -> dict[str, str]:
    """Leave out what the page shows as None because the process that makes it does not know: the layout of KV."""
    return {k: v for k, v in facts.items() if not (k == "kv_cache_layout" and v == "None")}


def is_here(host: str) -> bool:
    """Whether an address given by number, or `localhost`, is one of this machine."""
    if host == "localhost":
        return True
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((host, 0))
    except OSError:
        return False
    # A name or a wildcard binds as well, and is no address that anybody serves at.
    return not host[-1:].isalpha() and not ipaddress.ip_address(host).is_unspecified
