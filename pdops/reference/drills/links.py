"""The KV link of a worker: slow, lossy, cut. Scrapes, HTTP and side channel stay untouched."""

from __future__ import annotations

from pdops.errors import DeploymentError
from pdops.model.report import Layer, ScopeKind, Verdict
from pdops.reference.drills import tcpcopy
from pdops.reference.drills.plan import STEADY, Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage, Undo

_NEEDS = (Need.NAMESPACES, Need.ROUTER)
_SCOPES: tuple[tuple[ScopeKind, str], ...] = (
    ("pair", "{prefill}>{decode}"),
    ("worker", "{decode}"),
    ("worker", "{prefill}"),
)
_QUEUE_MS = 400.0
_PROBE_S = 3.0
"""Length of a plain TCP copy at the rate that is asked for, in seconds."""
LOSS_PERCENT = 10.0
"""At 5 % of wire packets a pull of 3.8 MB took 0.19 s instead of 0.03 s; at 20 % of larger ones nothing arrived."""


def limit(stage: Stage, *, seconds: float) -> Undo:
    """Limit decode's KV link so that one pull of the steady load takes that long; prove it with a plain TCP copy.

    Raises:
        DeploymentError: the copy was not within a half and one and a half of the rate that was set.
    """
    per_token = stage.deployment.spec.kv_bytes_per_token
    if per_token is None:
        raise DeploymentError("the size of a token's KV is not known", hint="drills of the link need the cpu profile")
    bits_per_s = STEADY["prompt"] * per_token * 8 / seconds
    net, worker = stage.network, stage.decode
    free = _proven(stage)
    undo = stage.undo("KV link at full speed", worker, lambda: net.clear(worker))
    net.slow(worker, bits_per_s, _QUEUE_MS)
    proven = _proven(stage, int(bits_per_s / 8 * _PROBE_S))
    if not 0.5 <= proven / bits_per_s <= 1.5:
        raise DeploymentError(
            "the link is not as slow as it should be",
            where=worker,
            why=f"{_mbit(proven)}, not {_mbit(bits_per_s)}",
            hint="play it again when the machine is less busy",
        )
    stage.did(
        f"limit the KV link to {_mbit(bits_per_s)} (a plain TCP copy: {_mbit(proven)}; before: {_mbit(free)})", worker
    )
    return undo


def _proven(stage: Stage, most_bytes: int = 16 << 20) -> float:
    return tcpcopy.bits_per_s(stage.network, stage.prefill, stage.decode, most_bytes=most_bytes, seconds=2 * _PROBE_S)


def _mbit(bits_per_s: float) -> str:
    return f"{bits_per_s / 1e6:.3g} Mbit/s"


def _slow(stage: Stage) -> None:
    limit(stage, seconds=1.2)


def _lossy(stage: Stage) -> None:
    net, worker = stage.network, stage.decode
    free = _proven(stage)
    stage.undo("KV link without loss", worker, lambda: net.clear(worker))
    net.lossy(worker, LOSS_PERCENT)
    proven = _proven(stage, 1 << 18)
    stage.did(
        f"drop {LOSS_PERCENT:g} % of the packets of the KV link (a plain TCP copy: {_mbit(proven)}; before: {_mbit(free)})",
        worker,
    )


def _cut(stage: Stage) -> None:
    net, worker = stage.network, stage.decode
    free = _proven(stage)
    stage.undo("KV link whole again", worker, lambda: net.clear(worker))
    net.cut(worker)
    stage.did(f"cut the KV link (a plain TCP copy before: {_mbit(free)})", worker)


def _cut_and_expired(stage: Stage) -> None:
    _cut(stage)
    lease_s = stage.deployment.spec.lease_s
    stage.until_moved(stage.prefill, "vllm:nixl_num_kv_expired_reqs_total", lease_s + 60)


DRILLS = (
    Drill(
        name="link-slow",
        family="links",
        summary="decode's KV link is slow: a pull takes a second",
        split=Split.DEVELOP,
        expect=Expect(Verdict.FAULT, (Layer.TRANSFER, Layer.NETWORK), ("transport-slow", "network-saturated"), _SCOPES),
        act=_slow,
        needs=(*_NEEDS, Need.CPU),
        settle_s=20,
    ),
    Drill(
        name="link-lossy",
        family="links",
        summary="decode's KV link loses every tenth packet",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.NETWORK, Layer.TRANSFER), ("network-degraded", "transport-slow"), _SCOPES),
        act=_lossy,
        needs=_NEEDS,
        settle_s=20,
    ),
    Drill(
        name="link-cut-below-lease",
        family="links",
        summary="decode's KV link is cut for less than the lease of the KV",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.NETWORK, Layer.TRANSFER), ("network-partition",), _SCOPES),
        act=_cut,
        needs=_NEEDS,
        settle_s=10,
        hold_s=14,
    ),
    Drill(
        name="link-cut-above-lease",
        family="links",
        summary="decode's KV link is cut for longer than the lease of the KV, which prefill then frees",
        split=Split.DEVELOP,
        expect=Expect(
            Verdict.FAULT, (Layer.NETWORK, Layer.TRANSFER), ("network-partition", "kv-lease-expiry"), _SCOPES
        ),
        act=_cut_and_expired,
        needs=_NEEDS,
        settle_s=5,
        hold_s=45,
        linger_s=10,
    ),
)
