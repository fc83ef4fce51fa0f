"""The PromQL source against a double that speaks the HTTP API and replays answers by expression."""

from __future__ import annotations

import asyncio
import base64
import json
import math
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from pdops.clock import VirtualClock
from pdops.errors import PdopsError, UnreachableError, UsageError
from pdops.history.readings import Readings
from pdops.history.ring import Ring
from pdops.model.cluster import Cluster, Endpoint, Role, Secret, Worker
from pdops.model.frame import EventKind, Frame
from pdops.model.view import Presence
from pdops.sources.promql import PromqlSettings, PromqlSource
from pdops.sources.promql import client as promql_client

NOW = 1_800_000_000.0
Series = tuple[dict[str, str], float]
Trouble = Callable[[web.Request, dict[str, str]], Awaitable[web.StreamResponse | None]]


@dataclass
class Up:
    """A target of the double."""

    instance: str
    role: str | None = None
    up: float = 1.0
    age_s: float = 4.0
    more: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, str]:
        role = {"role": self.role} if self.role is not None else {}
        return {"instance": self.instance, "job": "engines", **role, **self.more}


class PrometheusDouble:
    """Answers presence from `targets`, discovery from `names`, all else from `answers` by a part of the expression."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.url = ""
        self.targets = [Up("p:8000", "prefill"), Up("d:8000", "decode")]
        self.names = [
            "vllm:num_requests_running",
            "vllm:generation_tokens_total",
            "vllm:time_to_first_token_seconds_count",
        ]
        self.answers: dict[str, list[Series]] = {}
        self.label_values: dict[str, list[str]] = {}
        self.scrape_s = 15.0
        self.ahead_s = 0.0
        self.trouble: Trouble | None = None
        self.more: dict[str, Any] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.authorization: list[str] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = await request.post() if request.method == "POST" else request.query
        params = {k: str(v) for k, v in form.items()}
        self.asked.append((request.method, request.path, params))
        self.authorization.append(request.headers.get("Authorization", ""))
        if self.trouble is not None and (answer := await self.trouble(request, params)) is not None:
            return answer
        if request.path.startswith("/api/v1/label/"):
            return self.ok(self.label_values.get(request.path.split("/")[4], []))
        expr = params["query"]
        if request.path.endswith("query_range"):
            start, end, step = (float(params[k]) for k in ("start", "end", "step"))
            times = [start + i * step for i in range(round((end - start) / step) + 1)]
            rows = [self.series(expr, t) for t in times]
            found = {json.dumps(labels, sort_keys=True) for row in rows for labels, _ in row}
            points: dict[str, list[list[Any]]] = {key: [] for key in sorted(found)}
            for t, row in zip(times, rows, strict=True):
                for labels, value in row:
                    points[json.dumps(labels, sort_keys=True)].append([t, text(value)])
            result = [{"metric": json.loads(k), "values": v} for k, v in points.items()]
            return self.ok({"resultType": "matrix", "result": result})
        at_s = float(params.get("time", self.clock.now() + self.ahead_s))
        if expr == "time()":
            return self.ok({"resultType": "scalar", "result": [at_s, text(at_s)]})
        if expr.endswith("[600s]"):
            times = [at_s - 40 * self.scrape_s + i * self.scrape_s for i in range(40)] if self.scrape_s else [at_s]
            found_targets = [t for t in self.targets if t.instance in expr.replace("\\", "")]
            return self.ok(
                {
                    "resultType": "matrix",
                    "result": [{"metric": t.labels, "values": [[s, "1"] for s in times]} for t in found_targets],
                }
            )
        rows_now = [{"metric": labels, "value": [at_s, text(value)]} for labels, value in self.series(expr, at_s)]
        return self.ok({"resultType": "vector", "result": rows_now})

    def series(self, expr: str, at_s: float) -> list[Series]:
        if expr.startswith("up{"):
            return [({"__name__": "up", **t.labels}, t.up) for t in self.targets]
        if expr.startswith("timestamp(up"):
            return [(t.labels, at_s - t.age_s) for t in self.targets]
        if expr.startswith("count by (__name__"):
            return [({"__name__": name, "role": "decode"}, 1.0) for name in self.names if name in expr]
        found = [rows for part, rows in self.answers.items() if part in expr]
        return found[0] if found else []

    def ok(self, data: Any) -> web.Response:
        return web.json_response({"status": "success", "data": data, **self.more})


def text(value: float) -> str:
    return {math.inf: "+Inf"}.get(value, "NaN" if math.isnan(value) else repr(value))


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@asynccontextmanager
async def serve(made: PrometheusDouble, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", made.handle)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    made.url = f"http{'s' if tls else ''}://127.0.0.1:{runner.addresses[0][1]}"
    yield
    await runner.cleanup()


@pytest.fixture
async def double(clock: VirtualClock) -> AsyncIterator[PrometheusDouble]:
    made = PrometheusDouble(clock)
    async with serve(made):
        yield made


def build(double: PrometheusDouble, cluster: Cluster | None = None, **changes: Any) -> PromqlSource:
    settings = PromqlSettings(**{"url": double.url, "history_s": 0.0, "selector": '{cluster="x"}', **changes})
    return PromqlSource(settings, cluster=cluster, clock=double.clock)


async def look(source: PromqlSource, n: int = 1) -> list[Frame]:
    out: list[Frame] = []
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        async for frame in frames:
            out.append(frame)
            if len(out) == n:
                break
    await source.aclose()
    return out


def inventory(*workers: tuple[str, Role, str, str]) -> Cluster:
    made = [Worker(id=i, role=r, pool=p, url=u, endpoints=(Endpoint(f"{u}/metrics"),)) for i, r, p, u in workers]
    return Cluster(name="x", workers=tuple(made))


TWO = inventory(
    ("prefill-0", Role.PREFILL, "prefill", "http://p:8000"), ("decode-0", Role.DECODE, "decode", "http://d:8000")
)


def values(frame: Frame, endpoint: str = "pools") -> dict[str, float]:
    (page,) = [s for s in frame.scrapes if s.endpoint == endpoint]
    assert page.layout is not None
    assert page.values is not None
    return dict(zip(page.layout.series, page.values.tolist(), strict=True))


def errors(frame: Frame) -> dict[str, str | None]:
    return {s.worker: s.error for s in frame.scrapes if s.worker != "prometheus"}


def codes(source: PromqlSource) -> list[str]:
    return [note.code for note in source.notes]


# what is read


async def test_pools_and_presence(double: PrometheusDouble) -> None:
    double.answers = {
        "sum by (__name__,role)": [
            ({"__name__": "vllm:num_requests_running", "role": "prefill"}, 3.0),
            ({"__name__": "vllm:num_requests_running", "role": "decode"}, 41.0),
            ({"__name__": "vllm:num_requests_running"}, 7.0),
        ],
        "rate(vllm:generation_tokens_total": [({"role": "decode"}, 120.5)],
    }
    source = build(double, TWO)
    (frame,) = await look(source)
    assert errors(frame) == {"prefill-0": None, "decode-0": None}
    assert values(frame) == {
        'running_requests{scope="pool:prefill"}': 3.0,
        'running_requests{scope="pool:decode"}': 41.0,
        'generated_tokens:rate{scope="pool:decode"}': 120.5,
    }
    assert source.notes == ()
    assert frame.at_s == NOW
    assert frame.facts["prometheus"]["names_escaped"] == "none"


async def test_both_spellings_and_the_note(double: PrometheusDouble) -> None:
    double.names = ["vllm_num_requests_running", "vllm:num_requests_waiting"]
    double.answers = {
        "vllm_num_requests_running": [
            ({"__name__": "vllm_num_requests_running", "role": "decode"}, 2.0),
            ({"__name__": "vllm:num_requests_waiting", "role": "decode"}, 5.0),
        ]
    }
    source = build(double)
    (frame,) = await look(source)
    assert values(frame) == {
        'running_requests{scope="pool:decode"}': 2.0,
        'queue_depth{scope="pool:decode"}': 5.0,
    }
    assert frame.facts["prometheus"]["names_escaped"] == "vllm_num_requests_running"
    (note,) = source.notes
    assert note.code == "names-escaped"
    assert "1 names" in note.why


async def test_a_quantile_in_the_top_bucket_is_a_bound(double: PrometheusDouble) -> None:
    edges = {"0.5": 1.0, "1.0": 2.0, "+Inf": 10.0}
    double.answers = {
        "seconds_bucket": [({"role": "decode", "le": le}, rate) for le, rate in edges.items()],
        "seconds_sum": [({"role": "decode"}, 30.0)],
    }
    source = build(double, TWO)
    ring = Ring(TWO, interval_s=10.0)
    for frame in await look(source, 7):
        ring.add(frame)
    ask = Readings(ring.view())
    p95 = ask.quantile("pool:decode", "ttft_seconds", 0.95)
    assert (p95.value, p95.bound) == (1.0, "ge")
    assert ask.mean("pool:decode", "ttft_seconds").value == pytest.approx(3.0)
    assert ask.rate("pool:decode", "ttft_seconds").value == pytest.approx(10.0)


async def test_buckets_that_contradict_each_other_are_left_out(double: PrometheusDouble) -> None:
    edges = {"0.5": 4.0, "0.8": 1.0, "1": 6.0, "+Inf": 6.0}
    double.answers = {
        "seconds_bucket": [({"role": "decode", "le": le}, rate) for le, rate in edges.items()],
        "seconds_sum": [({"role": "decode"}, 3.0)],
    }
    source = build(double)
    (frame,) = await look(source)
    got = values(frame)
    assert got['ttft_seconds:rate_count{scope="pool:decode"}'] == 6.0
    assert all(math.isnan(v) for k, v in got.items() if "_bucket" in k)
    assert codes(source) == ["buckets"]


async def test_first_engine_wins_and_is_never_added_to_another(double: PrometheusDouble) -> None:
    double.names = ["vllm:num_requests_running", "sglang:num_running_reqs"]
    double.answers = {
        "sum by (__name__,role)": [
            ({"__name__": "sglang:num_running_reqs", "role": "decode"}, 5.0),
            ({"__name__": "vllm:num_requests_running", "role": "decode"}, 2.0),
            ({"__name__": "sglang:num_running_reqs", "role": "prefill"}, 9.0),
        ]
    }
    source = build(double)
    (frame,) = await look(source)
    assert values(frame) == {
        'running_requests{scope="pool:decode"}': 2.0,
        'running_requests{scope="pool:prefill"}': 9.0,
    }
    assert codes(source) == ["mixed"]


async def test_a_value_that_goes_away_is_unknown_not_zero(double: PrometheusDouble) -> None:
    gauge = {"__name__": "vllm:num_requests_running", "role": "decode"}
    double.answers = {"sum by (__name__,role)": [(gauge, 3.0)]}
    source = build(double)
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        first = await anext(frames)
        double.answers = {}
        second = await anext(frames)
    await source.aclose()
    key = 'running_requests{scope="pool:decode"}'
    assert values(first)[key] == 3.0
    assert math.isnan(values(second)[key])
    assert first.scrapes[-1].layout is second.scrapes[-1].layout


async def test_router_signals_belong_to_clients_and_pairs(double: PrometheusDouble) -> None:
    double.targets.append(Up("r:8080", "router"))
    double.names = [
        "pdops_router_requests_total",
        "pdops_plugin_kv_transfer_bytes_total",
        "pdops_plugin_kv_transfer_seconds_count",
        "pdops_router_worker_up",
    ]
    pair = {"src": "http://p:8000", "dst": "d:8000"}
    double.answers = {
        "rate(pdops_router_requests_total": [
            ({"role": "router", "outcome": "ok"}, 9.0),
            ({"role": "router", "outcome": "timeout"}, 1.0),
        ],
        "rate(pdops_plugin_kv_transfer_bytes_total": [(pair, 5e9)],
        "rate(pdops_plugin_kv_transfer_seconds_sum": [(pair, 2.0)],
        "rate(pdops_plugin_kv_transfer_seconds_count": [(pair, 4.0)],
        "max by (worker)": [({"worker": "decode-0"}, 1.0)],
    }
    (frame,) = await look(build(double, TWO))
    assert values(frame) == {
        'request_success:rate{scope="client"}': 9.0,
        'request_failure:rate{scope="client"}': 1.0,
        'request_timeouts:rate{scope="client"}': 1.0,
        'kv_transfer_bytes:rate{scope="pair:prefill-0>decode-0"}': 5e9,
        'kv_transfer_seconds:rate_sum{scope="pair:prefill-0>decode-0"}': 2.0,
        'kv_transfer_seconds:rate_count{scope="pair:prefill-0>decode-0"}': 4.0,
    }
    assert values(frame, "workers") == {'worker_health{scope="decode-0"}': 1.0}


async def test_the_failing_worker_is_named(double: PrometheusDouble) -> None:
    double.names = ["vllm:nixl_num_failed_transfers_total"]
    double.answers = {
        "sum by (instance,pod)": [({"instance": "d:8000"}, 0.25), ({"instance": "p:8000"}, 0.0)],
        "sum by (role)": [({"role": "decode"}, 0.25)],
    }
    source = build(double, TWO)
    ring = Ring(TWO, interval_s=10.0)
    for frame in await look(source, 2):
        ring.add(frame)
    ask = Readings(ring.view())
    assert ask.increase("decode-0", "kv_transfer_failures").value == pytest.approx(15.0)
    assert ask.increase("prefill-0", "kv_transfer_failures").value == 0.0
    assert ask.increase("pool:decode", "kv_transfer_failures").value == pytest.approx(15.0)


async def test_history_comes_first(double: PrometheusDouble) -> None:
    double.answers = {"sum by (__name__,role)": [({"__name__": "vllm:num_requests_running", "role": "decode"}, 3.0)]}
    source = build(double, TWO, history_s=900.0)
    frames = await look(source, 89)
    assert [f.at_s for f in frames] == sorted({f.at_s for f in frames})
    assert frames[0].at_s == NOW - 30.0 - 86 * 10.0
    assert frames[86].at_s == NOW - 30.0
    assert frames[87].at_s == NOW
    assert len({id(f.scrapes[-1].layout) for f in frames}) == 1
    ranges = [params for _, path, params in double.asked if path.endswith("query_range")]
    assert len(ranges) == source.queries_per_tick
    assert {params["step"] for params in ranges} == {"10"}


async def test_history_that_is_refused_is_said(double: PrometheusDouble) -> None:
    double.trouble = only("query_range", api_error(422, "execution", "query processing would load too many samples"))
    source = build(double, TWO, history_s=900.0)
    (frame,) = await look(source)
    assert frame.at_s == NOW
    (note,) = source.notes
    assert note.code == "history"
    assert "too many samples" in note.why


async def test_restarts_are_events(double: PrometheusDouble) -> None:
    double.names = ["process_start_time_seconds"]
    started = {"__name__": "process_start_time_seconds", "instance": "d:8000"}
    double.answers = {"by (__name__,instance,pod,engine)": [(started, NOW - 5000.0)]}
    source = build(double, TWO)
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        assert (await anext(frames)).events == ()
        double.answers = {"by (__name__,instance,pod,engine)": [(started, NOW + 3.0)]}
        (event,) = (await anext(frames)).events
        assert (await anext(frames)).events == ()
    await source.aclose()
    assert (event.kind, event.worker, event.t_s) == (EventKind.RESTART, "decode-0", NOW + 3.0)


# who is there


async def test_workers_are_found_without_an_inventory(double: PrometheusDouble) -> None:
    double.targets = [
        Up("10.0.0.1:8000", "prefill", more={"node": "n1"}),
        Up("10.0.0.2:8000", "decode", more={"pod": "decode-0", "namespace": "a"}),
        Up("10.0.0.3:8000", "decode", more={"pod": "decode-0", "namespace": "b"}),
        Up("10.0.0.2:9400", None, more={"pod": "decode-0", "namespace": "a", "job": "gpu"}),
        Up("[::1]:8000", "decode"),
        Up("10.0.0.9:9100", None),
        Up("10.0.0.8:8000", "both"),
    ]
    source = build(double)
    await source.connect()
    found = {w.id: (w.role, w.pool, w.node) for w in source.cluster.workers}
    assert found == {
        "10.0.0.1-8000": (Role.PREFILL, "prefill", "n1"),
        "decode-0": (Role.DECODE, "decode", None),
        "decode-0-2": (Role.DECODE, "decode", None),
        "---1--8000": (Role.DECODE, "decode", None),
    }
    (note,) = source.notes
    assert note.code == "unplaced"
    assert note.why == "2 targets belong to no known worker: 10.0.0.8:8000, 10.0.0.9:9100"
    await source.aclose()


async def test_down_absent_and_present(double: PrometheusDouble) -> None:
    cluster = inventory(
        ("prefill-0", Role.PREFILL, "prefill", "http://P:8000"),
        ("decode-0", Role.DECODE, "decode", "http://d:8000"),
        ("decode-1", Role.DECODE, "decode", "http://e:8000"),
    )
    double.targets[1].up = 0.0
    (frame,) = await look(build(double, cluster))
    assert errors(frame) == {
        "prefill-0": None,
        "decode-0": "up == 0 in Prometheus",
        "decode-1": "no target of that address in Prometheus",
    }


async def test_a_dead_sidecar_is_not_a_dead_worker(double: PrometheusDouble) -> None:
    double.targets.append(Up("d:9400", "decode", up=0.0, more={"pod": "decode-0", "job": "gpu"}))
    (frame,) = await look(build(double, TWO))
    assert errors(frame) == {"prefill-0": None, "decode-0": None}
    double.targets[1].more = {"pod": "decode-0"}
    (frame,) = await look(build(double))
    assert errors(frame)["decode-0"] == "up == 0 in Prometheus for d:9400, one of its 2 targets"


async def test_old_data_is_not_fresh(double: PrometheusDouble) -> None:
    double.answers = {
        "sum by (__name__,role)": [
            ({"__name__": "vllm:num_requests_running", "role": "decode"}, 3.0),
            ({"__name__": "vllm:num_requests_running", "role": "prefill"}, 1.0),
        ]
    }
    source = build(double, TWO)
    ring = Ring(TWO, interval_s=10.0)
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        ring.add(await anext(frames))
        double.targets[1].age_s = 46.0
        for _ in range(4):
            frame = await anext(frames)
            ring.add(frame)
    await source.aclose()
    assert errors(frame) == {"prefill-0": None}
    assert values(frame)['running_requests{scope="pool:prefill"}'] == 1.0
    assert math.isnan(values(frame)['running_requests{scope="pool:decode"}'])
    assert ring.view().health["decode-0"].presence is Presence.STALE
    assert [n.why for n in source.notes] == ["1 workers have no sample of the last 45 s: decode-0 (46 s old)"]
    assert "decode-0" in frame.facts.get("prometheus", {}).get("stale", "decode-0")


async def test_targets_come_and_go(double: PrometheusDouble) -> None:
    source = build(double)
    seen: list[Frame] = []
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        seen.append(await anext(frames))
        double.targets = [double.targets[0], Up("new:8000", "decode")]
        seen.append(await anext(frames))
        seen.append(await anext(frames))
    await source.aclose()
    assert errors(seen[1])["d-8000"] == "no target of that address in Prometheus"
    assert errors(seen[2]) == {"p-8000": None, "new-8000": None}
    assert [(e.kind, e.worker) for e in seen[2].events] == [
        (EventKind.SCALE_OUT, "new-8000"),
        (EventKind.SCALE_IN, "d-8000"),
    ]
    assert [w.id for w in source.cluster.workers] == ["new-8000", "p-8000"]


async def test_pools_by_address_when_no_label_tells_them(double: PrometheusDouble) -> None:
    double.targets = [Up("p:8000"), Up("d:8000")]
    double.answers = {'instance=~"d:8000",__name__': [({"__name__": "vllm:num_requests_running"}, 4.0)]}
    (frame,) = await look(build(double, TWO))
    assert values(frame) == {'running_requests{scope="pool:decode"}': 4.0}
    assert not any("by (role" in params.get("query", "") for _, _, params in double.asked)


async def test_many_workers_need_the_label(double: PrometheusDouble) -> None:
    many = [(f"decode-{i}", Role.DECODE, "decode", f"http://d{i}:8000") for i in range(51)]
    double.targets = [Up(f"d{i}:8000") for i in range(51)]
    source = build(double, inventory(*many))
    with pytest.raises(UsageError) as caught:
        await source.connect()
    await source.aclose()
    assert str(caught.value) == (
        f"pools cannot be told apart: {double.url}: label role has (none) x51; "
        "51 workers in 1 pools, at most 50 in 8 can be told by address"
    )
    assert "target label role" in caught.value.hint


async def test_pools_of_one_role_are_told_by_address(double: PrometheusDouble) -> None:
    cluster = inventory(("d0", Role.DECODE, "small", "http://d:8000"), ("d1", Role.DECODE, "large", "http://e:8000"))
    double.targets = [Up("d:8000", "decode"), Up("e:8000", "decode")]
    double.answers = {'instance=~"e:8000",__name__': [({"__name__": "vllm:num_requests_running"}, 4.0)]}
    (frame,) = await look(build(double, cluster))
    assert values(frame) == {'running_requests{scope="pool:large"}': 4.0}


async def test_targets_outside_the_inventory_are_said_to_be_in_the_sums(double: PrometheusDouble) -> None:
    double.targets.append(Up("other:8000", "decode"))
    source = build(double, TWO)
    await look(source)
    (note,) = source.notes
    assert note.why == "1 targets that are not in the inventory are in the sums: other:8000"


async def test_a_series_that_is_there_twice_is_said(double: PrometheusDouble) -> None:
    double.targets += [Up("d:8000", "decode", more={"replica": "b"})]
    source = build(double, TWO)
    (frame,) = await look(source)
    assert errors(frame) == {"prefill-0": None, "decode-0": None}
    assert codes(source) == ["twice"]


async def test_the_window_fits_the_scrape_interval(double: PrometheusDouble) -> None:
    double.scrape_s = 30.0
    source = build(double, TWO)
    await look(source)
    assert any("[120s]" in params["query"] for _, _, params in double.asked)
    assert not any("[60s]" in params["query"] for _, _, params in double.asked)
    assert codes(source) == ["window"]


async def test_a_server_whose_clock_is_ahead(double: PrometheusDouble) -> None:
    double.ahead_s = 500.0
    double.names = ["process_start_time_seconds"]
    started = {"__name__": "process_start_time_seconds", "instance": "d:8000"}
    double.answers = {"by (__name__,instance,pod,engine)": [(started, NOW + 480.0)]}
    source = build(double, TWO)
    (frame,) = await look(source)
    assert frame.at_s == NOW
    assert errors(frame) == {"prefill-0": None, "decode-0": None}
    assert double.asked[-1][2]["time"] == f"{NOW + 500.0:.3f}"
    assert [e.t_s for e in frame.events] == [NOW - 20.0]
    assert codes(source) == ["clock"]


@pytest.mark.parametrize("workers", [2, 64, 512])
async def test_questions_do_not_grow_with_workers(double: PrometheusDouble, workers: int) -> None:
    double.names = ENGINE_NAMES
    double.targets = [Up(f"w{i}:8000", "prefill" if i % 4 == 0 else "decode") for i in range(workers)]
    source = build(double)
    await source.connect()
    before = len(double.asked)
    await look(source, 3)
    assert (len(double.asked) - before) / 3 == source.queries_per_tick == 46
    assert codes(source) == (["pools-only"] if workers > 64 else [])


ENGINE_NAMES = [
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "vllm:admission_rejections_total",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:external_prefix_cache_hits_total",
    "vllm:external_prefix_cache_queries_total",
    "vllm:generation_tokens_total",
    "vllm:inter_token_latency_seconds_count",
    "vllm:kv_cache_usage_perc",
    "vllm:nixl_bytes_transferred_count",
    "vllm:nixl_num_failed_transfers_total",
    "vllm:nixl_num_kv_expired_reqs_total",
    "vllm:nixl_num_notifications_after_expiry_total",
    "vllm:nixl_post_time_seconds_count",
    "vllm:nixl_xfer_time_seconds_count",
    "vllm:num_preemptions_total",
    "vllm:num_requests_kv_fetch_by_stage",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:num_requests_waiting_by_reason",
    "vllm:prefix_cache_hits_total",
    "vllm:prefix_cache_queries_total",
    "vllm:prompt_tokens_by_source_total",
    "vllm:prompt_tokens_total",
    "vllm:request_decode_time_seconds_count",
    "vllm:request_generation_tokens_count",
    "vllm:request_prefill_time_seconds_count",
    "vllm:request_prompt_tokens_count",
    "vllm:request_queue_time_seconds_count",
    "vllm:request_success_total",
    "vllm:request_time_per_output_token_seconds_count",
    "vllm:time_to_first_token_seconds_count",
]


# what goes wrong


def reply(status: int = 200, body: str = "", kind: str = "application/json", **headers: str) -> Trouble:
    async def answer(_request: web.Request, _params: dict[str, str]) -> web.StreamResponse:
        return web.Response(status=status, text=body, content_type=kind, headers=headers)

    return answer


def api_error(status: int, error_type: str, error: str) -> Trouble:
    return reply(status, json.dumps({"status": "error", "errorType": error_type, "error": error}))


def only(part: str, trouble: Trouble) -> Trouble:
    """Make trouble for the questions whose path or expression contains a text."""

    async def answer(request: web.Request, params: dict[str, str]) -> web.StreamResponse | None:
        return await trouble(request, params) if part in request.path + " " + params.get("query", "") else None

    return answer


async def hang(request: web.Request, _params: dict[str, str]) -> web.StreamResponse:
    await asyncio.sleep(0.5)
    return web.Response()


async def flood(request: web.Request, _params: dict[str, str]) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Type": "application/json"})
    await answer.prepare(request)
    await answer.write(b'{"status":"success","data":[' + b"1," * 50_000)
    await answer.write_eof()
    return answer


LOGIN = "<!DOCTYPE html><html><head><title>Sign in\x1b[31m</title></head></html>"
BROKEN: list[tuple[str, Trouble, type[PdopsError], str, str]] = [
    ("bearer missing", reply(401), UsageError, "HTTP 401", "bearer_token_file"),
    ("forbidden page", reply(403, "<html>no</html>", "text/html"), UsageError, "HTTP 403", "basic_auth"),
    ("tenant missing", reply(401, "no org id\n", "text/plain"), UsageError, "HTTP 401: no org id", "bearer_token_file"),
    (
        "wrong path",
        reply(404, "404 page not found", "text/plain"),
        UsageError,
        "HTTP 404: 404 page not found",
        "/select",
    ),
    ("log-in page", reply(200, LOGIN, "text/html"), UsageError, "a web page titled 'Sign in [31m'", "log-in page"),
    (
        "log-in redirect",
        reply(302, "", "text/plain", Location="https://sso.example/login?next=secret"),
        UsageError,
        "redirects to https://sso.example/login",
        "log-in page",
    ),
    ("not JSON", reply(200, "hello", "text/plain"), UsageError, "not the API's JSON", "proxy"),
    ("JSON of another API", reply(200, '{"a": 1}'), UsageError, "not the API's JSON", "proxy"),
    ("a list", reply(200, "[1]"), UsageError, "not the API's JSON", "proxy"),
    (
        "odd result",
        reply(200, '{"status": "success", "data": {"resultType": "vector", "result": [{"value": [1]}]}}'),
        UsageError,
        "unexpected shape",
        "proxy",
    ),
    (
        "bad query",
        api_error(400, "bad_data", "1:4: parse error"),
        UsageError,
        "HTTP 400 bad_data: 1:4: parse error",
        "sel",
    ),
    (
        "limit",
        api_error(422, "execution", "too many samples"),
        UsageError,
        "HTTP 422 execution: too many samples",
        "limits",
    ),
    ("server timeout", api_error(503, "timeout", "query timed out"), UnreachableError, "query timed out", "load"),
    (
        "busy",
        reply(503, "Service Unavailable", "text/plain"),
        UnreachableError,
        "HTTP 503: Service Unavailable",
        "wait",
    ),
    ("gateway page", reply(502, "<html>Bad</html>", "text/html"), UnreachableError, "HTTP 502", "wait"),
    ("too many requests", reply(429, "slow down", "text/plain"), UnreachableError, "HTTP 429: slow down", "wait"),
    ("no answer", hang, UnreachableError, "no answer within 0.05 s", "load"),
]


@pytest.mark.parametrize(("trouble", "kind", "why", "hint"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
async def test_at_the_start(
    double: PrometheusDouble,
    trouble: Trouble,
    kind: type[PdopsError],
    why: str,
    hint: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    double.trouble = trouble
    source = build(double, TWO, timeout_s=0.05 if trouble is hang else 5.0)
    monkeypatch.setattr(promql_client, "GRACE_S", 0.05)
    with pytest.raises(kind) as caught:
        await source.connect()
    await source.aclose()
    assert why in caught.value.why
    assert hint in caught.value.hint
    assert caught.value.where == double.url
    assert "\x1b" not in str(caught.value)
    assert "secret" not in str(caught.value)


async def test_nobody_listens(double: PrometheusDouble) -> None:
    source = build(double, url="http://127.0.0.1:1")
    with pytest.raises(UnreachableError) as caught:
        await source.connect()
    await source.aclose()
    assert str(caught.value) == "Prometheus does not answer: http://127.0.0.1:1: 127.0.0.1:1: Connection refused"
    assert caught.value.exit_code == 3


async def test_an_answer_that_is_too_large(double: PrometheusDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(promql_client, "MAX_BYTES", 64 * 1024)
    double.trouble = flood
    source = build(double)
    with pytest.raises(UnreachableError) as caught:
        await source.connect()
    await source.aclose()
    assert "larger than" in caught.value.why


async def test_nothing_matches_the_selector(double: PrometheusDouble) -> None:
    double.targets = []
    double.label_values = {"cluster": ["prod-eu", "prod-us"]}
    source = build(double, selector='{cluster="x",team="a"}')
    with pytest.raises(UsageError) as caught:
        await source.connect()
    await source.aclose()
    assert caught.value.why == 'no `up` series matches {cluster="x",team="a"}'
    assert caught.value.hint == "cluster has prod-eu, prod-us; no series has a label team"


async def test_no_target_has_a_role(double: PrometheusDouble) -> None:
    double.targets = [Up("a:1", "infer"), Up("b:1")]
    source = build(double)
    with pytest.raises(UsageError) as caught:
        await source.connect()
    await source.aclose()
    assert caught.value.why == "label role has infer x1, (none) x1; targets: a:1, b:1"


async def test_later_the_trouble_is_in_the_frames(double: PrometheusDouble) -> None:
    source = build(double, TWO)
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        await anext(frames)
        double.trouble = reply(503, "restarting", "text/plain")
        bad = await anext(frames)
        assert codes(source) == ["server"]
        double.trouble = None
        good = await anext(frames)
    await source.aclose()
    (page,) = bad.scrapes
    assert (page.worker, page.endpoint, page.error) == ("prometheus", "pools", "HTTP 503: restarting")
    assert errors(good) == {"prefill-0": None, "decode-0": None}
    assert source.notes == ()


async def test_one_question_fails_and_the_others_count(double: PrometheusDouble) -> None:
    double.answers = {"sum by (__name__,role)": [({"__name__": "vllm:num_requests_running", "role": "decode"}, 3.0)]}
    double.trouble = only("seconds_bucket", api_error(422, "execution", "too many samples"))
    source = build(double, TWO)
    (frame,) = await look(source)
    assert values(frame) == {'running_requests{scope="pool:decode"}': 3.0}
    (note,) = source.notes
    assert note.why == "1 questions got no answer (ttft_seconds bucket): HTTP 422 execution: too many samples"
    assert frame.facts["prometheus"]["unanswered"] == note.why


async def test_no_question_but_presence_is_answered(double: PrometheusDouble) -> None:
    double.trouble = only(" by (", api_error(422, "execution", "disabled"))
    source = build(double, TWO)
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        double.trouble = None
        await anext(frames)
        double.trouble = only("(role", api_error(422, "execution", "disabled"))
        await anext(frames)
        double.trouble = only(" by (", api_error(422, "execution", "disabled"))
        frame = await anext(frames)
    await source.aclose()
    assert errors(frame) == {"prefill-0": None, "decode-0": None}
    assert [s.error for s in frame.scrapes if s.worker == "prometheus"] == ["HTTP 422 execution: disabled"]


@pytest.mark.parametrize(
    ("more", "said"),
    [({"warnings": ["store 10.0.0.7 is away"]}, "store 10.0.0.7"), ({"isPartial": True}, "answer is partial")],
)
async def test_partial_answers_are_said(double: PrometheusDouble, more: dict[str, Any], said: str) -> None:
    double.more = more
    source = build(double, TWO)
    (frame,) = await look(source)
    (note,) = source.notes
    assert note.code == "partial"
    assert said in note.why
    assert said in frame.facts["prometheus"]["partial"]


async def test_a_proxy_that_refuses_post(double: PrometheusDouble) -> None:
    async def no_post(request: web.Request, _params: dict[str, str]) -> web.StreamResponse | None:
        return web.Response(status=405) if request.method == "POST" else None

    double.trouble = no_post
    (frame,) = await look(build(double, TWO))
    assert errors(frame) == {"prefill-0": None, "decode-0": None}
    assert [method for method, _, _ in double.asked].count("POST") == 1


# secrets


async def test_secrets_are_read_when_they_are_used(double: PrometheusDouble, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("first\n")
    source = build(double, TWO, secret=Secret(bearer_token_file=str(token)))
    async with aclosing(source.frames()) as frames:  # type: ignore[type-var]
        await anext(frames)
        assert set(double.authorization) == {"Bearer first"}
        token.write_text("second\n")
        double.authorization.clear()
        await anext(frames)
        assert set(double.authorization) == {"Bearer second"}
        token.write_text("")
        assert "empty" in str((await anext(frames)).scrapes[0].error)
    await source.aclose()


async def test_basic_authentication(double: PrometheusDouble, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("pä:ss\n")
    await look(build(double, TWO, secret=Secret(username="me", password_file=str(tmp_path / "password"))))
    assert set(double.authorization) == {"Basic " + base64.b64encode("me:pä:ss".encode()).decode()}


@pytest.mark.parametrize("content", [None, b"", b"a\nb", b"\xff\xfe"])
async def test_a_secret_that_cannot_be_used(double: PrometheusDouble, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "token"
    if content is not None:
        path.write_bytes(content)
    source = build(double, TWO, secret=Secret(bearer_token_file=str(path)))
    with pytest.raises(UsageError) as caught:
        await source.connect()
    await source.aclose()
    assert caught.value.where == str(path)
    assert not double.asked


async def test_tls_files_that_cannot_be_used(double: PrometheusDouble, tmp_path: Path) -> None:
    source = build(double, TWO, secret=Secret(ca=str(tmp_path / "ca.pem")))
    with pytest.raises(UsageError, match="TLS files cannot be used"):
        await source.connect()
    await source.aclose()


async def test_a_server_that_only_trusts_those_it_knows(clock: VirtualClock, tmp_path: Path) -> None:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("no openssl to make certificates with")
    for name in ("server", "client"):
        files = ["-keyout", f"{tmp_path}/{name}.key", "-out", f"{tmp_path}/{name}.pem"]
        more = ["-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
        subprocess.run(
            [openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", *files, *more],
            check=True,
            capture_output=True,
        )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=f"{tmp_path}/client.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(f"{tmp_path}/server.pem", f"{tmp_path}/server.key")
    made = PrometheusDouble(clock)
    async with serve(made, context):
        known = Secret(ca=f"{tmp_path}/server.pem", cert=f"{tmp_path}/client.pem", key=f"{tmp_path}/client.key")
        (frame,) = await look(build(made, TWO, secret=known))
        assert errors(frame) == {"prefill-0": None, "decode-0": None}
        stranger = build(made, TWO)
        with pytest.raises(UnreachableError, match="its certificate is not trusted"):
            await stranger.connect()
        await stranger.aclose()


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "ftp://p", "http://", "http://p:9x", "http://u:secret@p:9090", "http://p/?a=1"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(UsageError) as caught:
        PromqlSource(PromqlSettings(url=url))
    assert "secret" not in str(caught.value)
    assert caught.value.hint


async def test_a_path_prefix_and_headers(double: PrometheusDouble) -> None:
    source = build(double, TWO, url=double.url + "/prometheus/", headers={"X-Scope-OrgID": "a"})
    await source.connect()
    await source.aclose()
    assert {path for _, path, _ in double.asked} == {"/prometheus/api/v1/query"}


def names_of(asked: Iterable[tuple[str, str, dict[str, str]]]) -> set[str]:
    return {path.removeprefix("/api/v1/").split("/")[0] for _, path, _ in asked}


async def test_only_calls_that_all_servers_document(double: PrometheusDouble) -> None:
    await look(build(double, TWO, history_s=900.0), 90)
    assert names_of(double.asked) == {"query", "query_range"}
