"""KV moves more slowly than half of what the link between two workers carries."""

from __future__ import annotations

from collections.abc import Iterator

from pdops.diagnose.context import Context
from pdops.diagnose.devices import gpus, net_devices
from pdops.diagnose.fabric import fabric
from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.hosts import NO_PAIR, env, listed, same_host
from pdops.diagnose.preflight import Seen, agrees, engines, must, not_applicable, unread
from pdops.model.cluster import Pair
from pdops.model.frame import Probe, ProbeKind

META = CheckMeta(
    id="host/data-path",
    title="Data path: a measured transfer reaches half of the link's rate",
    causes=("transport-fallback-slow",),
    needs=(),
    tier=Tier.PAIR,
    no_alert="a probe on demand is no metric; the bandwidth of real transfers is judged by transfer/link-slow",
    preflight=True,
)

CAUSE = "transport-fallback-slow"
SHARE = 0.5
"""Share of the link that an undisturbed transfer reaches at least; a fall to TCP costs ten to a hundred times in public
incidents, so that half tells both apart."""
_FIX = "measure the path with the bandwidth probe while the cluster is idle"
_TRANSPORT_FIX = (
    "measure with the transport itself (ucx_perftest, nixlbench) and give the rate as a probe that names it"
)
_TRANSPORTS = ("ucx", "nixl", "rdma", "ib_", "mooncake")
_MBIT = 1e6 / 8


def check(ctx: Context) -> Iterator[Finding]:
    """Set the newest bandwidth probe of each pair beside its link."""
    if not engines(ctx):
        yield not_applicable(CAUSE, NO_PAIR)
        return
    good: list[str] = []
    for pair in ctx.cluster.pairs():
        probe = _newest(ctx, pair)
        link = _link(ctx, pair)
        if link is None and _in_memory(ctx, pair) and (probe is None or probe.ok is not False):
            rate = "" if probe is None or probe.value is None else f", {probe.value / 1e6:.0f} MB/s measured"
            yield not_applicable(CAUSE, f"{pair} stays within the memory of one host, and no link sets its rate{rate}")
        elif probe is None:
            yield unread(CAUSE, str(pair), "bandwidth", "no transfer was measured", _FIX)
        elif probe.value is None:
            if probe.ok is False:
                yield _slow(pair, probe.detail or "failed", "a transfer that succeeds")
            else:
                yield unread(CAUSE, str(pair), "bandwidth", probe.detail or "the probe told no rate", _FIX)
        elif _beside(ctx, pair, probe):
            why = f"a plain TCP copy reached {probe.value / 1e6:.0f} MB/s; KV is to travel over RDMA, which it says nothing of"
            yield unread(CAUSE, str(pair), "bandwidth", why, _TRANSPORT_FIX)
        else:
            if link is not None and probe.value < SHARE * link:
                yield _slow(pair, probe.value, f"at least {SHARE * link / 1e6:.0f} MB/s, half of the link")
            elif probe.ok is False:
                yield _slow(pair, probe.value, probe.detail or "the rate that was asked for")
            elif link is not None:
                good.append(f"{pair} {probe.value / 1e6:.0f} of {link / 1e6:.0f} MB/s")
            else:
                why = f"{probe.value / 1e6:.0f} MB/s were measured, and what the link carries is not known"
                yield unread(CAUSE, str(pair), "link", why, "give links.baseline_bytes_per_s in pdops.yaml")
    if good:
        yield agrees(CAUSE, f"measured: {', '.join(good)}")


def _in_memory(ctx: Context, pair: Pair) -> bool:
    ends = (pair.src, pair.dst)
    return bool(same_host(ctx, *ends)) and all(gpus(ctx, end) == () for end in ends)


def _newest(ctx: Context, pair: Pair) -> Probe | None:
    ours = [p for p in ctx.view.probes if p.kind is ProbeKind.BANDWIDTH and p.pair == str(pair)]
    return max(ours, key=lambda p: p.t_s, default=None)


def _beside(ctx: Context, pair: Pair, probe: Probe) -> bool:
    """Whether a probe measured another path than KV takes; pdops' own is a plain TCP copy."""
    named = any(name in (probe.detail or "").casefold() for name in _TRANSPORTS)
    return not named and any(fabric(ctx, end).rdma for end in (pair.src, pair.dst))


def _link(ctx: Context, pair: Pair) -> float | None:
    """Return bytes/s: what the inventory says, else the slower end of the devices that are named for UCX."""
    if ctx.cluster.link_bytes_per_s is not None:
        return ctx.cluster.link_bytes_per_s
    rates = [_rate(ctx, end) for end in (pair.src, pair.dst)]
    known = [r for r in rates if r is not None]
    return min(known) if len(known) == len(rates) else None


def _rate(ctx: Context, worker: str) -> float | None:
    names = listed(env(ctx, worker, "UCX_NET_DEVICES") or "")
    devices = {name.casefold(): device for name, device in (net_devices(ctx, worker) or {}).items()}
    speeds = [devices[n].get("speed_mbits") if n in devices else None for n in names]
    told = [float(s) for s in speeds if isinstance(s, int | float) and s > 0]
    return sum(told) * _MBIT if told and len(told) == len(names) else None


def _slow(pair: Pair, value: float | str, expected: str) -> Finding:
    return must(
        CAUSE,
        [Seen(str(pair), "bandwidth", value, "bytes/s" if isinstance(value, float) else "")],
        expected,
        f"repeat one transfer with UCX_PROTO_INFO=y on {pair.dst} and read which transport carried it",
        "compare UCX_TLS, UCX_NET_DEVICES and the PID namespace of both ends",
        basis="probe",
    )
