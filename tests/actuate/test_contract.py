"""What every backend keeps: so already is no error, what does not answer is unknown, older runs are turned away, offers are true."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pdops.actuate.backend import Backend, Fence, Params
from pdops.actuate.fences import FenceFile
from pdops.actuate.joined import JoinedBackend
from pdops.actuate.local import LocalBackend
from pdops.actuate.router_admin import PdopsRouter, RouterAdmin, RouterBackend, VllmRouter
from pdops.actuate.sglang_router import SglangRouter
from pdops.actuate.stores import LmcacheBypass
from pdops.actuate.supervisors import Compose, Supervisor, Systemd
from pdops.actuate.units import Managed, UnitDeployment
from pdops.clock import VirtualClock
from pdops.errors import ActionError, BusyError, FencedError
from pdops.model.frame import Probe, ProbeKind
from pdops.runbook.actions import SHIPPED
from tests.actuate import api_doubles as apis
from tests.actuate.program_doubles import ProgramDouble, first_on_path, program

D1 = {"worker": "decode-1"}


@dataclass
class Kit:
    """One backend, an action of it with the value it sets, and how its other side is broken and looked into."""

    backend: Backend
    action: str
    params: Params
    subject: str
    target: Any
    break_it: Callable[[], object]
    changes: Callable[[], int]
    extra: dict[str, Any] = field(default_factory=dict)


class _Rig:
    """Engines that are doubles, in a folder."""

    def __init__(self, folder: Path, stack: ExitStack, patch: pytest.MonkeyPatch) -> None:
        self.folder, self.stack, self.patch = folder, stack, patch
        self.clock = VirtualClock(1000.0)
        self.engines = {
            w: stack.enter_context(apis.serving(apis.EngineDouble())) for w in ("prefill-0", "decode-0", "decode-1")
        }
        self.workers = {w: (w.partition("-")[0], e.url) for w, e in self.engines.items()}

    def serve(self, double: apis.ApiDouble) -> Any:
        return self.stack.enter_context(apis.serving(double))

    def units(self, kind: str) -> tuple[UnitDeployment, ProgramDouble]:
        systemd = kind == "systemd"
        unit = (lambda w: f"pd-{w}.service") if systemd else (lambda w: w)
        states = {unit(w): "running" for w in (*self.workers, "store-0")} | {unit("decode-2"): "stopped"}
        double = program(self.folder, "systemctl" if systemd else "docker", states)
        self.patch.setenv("PATH", first_on_path(self.folder))
        supervisor: Supervisor = Systemd() if systemd else Compose(self.folder / "compose.yaml", "pd")
        managed = [Managed(id=w, role=r, unit=unit(w), url=u) for w, (r, u) in self.workers.items()]
        managed.append(Managed(id="store-0", role="kvstore", unit=unit("store-0"), url=""))
        managed.append(
            Managed(id="decode-2", role="decode", unit=unit("decode-2"), url=self.workers["decode-1"][1], spare=True)
        )

        def canary(worker: str) -> tuple[Probe, ...]:
            return (Probe(t_s=0.0, kind=ProbeKind.CANARY, ok=True, pair=f"prefill-0>{worker}"),)

        return UnitDeployment(supervisor, managed, self.folder / "memory", 30.0, canary), double


def _units(rig: _Rig, kind: str) -> Kit:
    deployment, double = rig.units(kind)
    backend = LocalBackend(deployment, None, rig.clock, rig.clock.advance)
    return Kit(
        backend, "worker.stop", D1, "worker/decode-1/process", "stopped",
        lambda: double.move(broken="cannot connect to the bus"), lambda: len(double.changes), {"double": double},
    )  # fmt: skip


def _router(rig: _Rig, kind: str) -> Kit:
    ids = {url: w for w, (_, url) in rig.workers.items()}
    double = rig.serve(
        {
            "pdops-router": apis.PdopsRouterDouble,
            "vllm-router": apis.VllmRouterDouble,
            "sglang-router": apis.SglangRouterDouble,
        }[kind](rig.workers)
    )
    admin: RouterAdmin = {
        "pdops-router": lambda: PdopsRouter(double.url, None),
        "vllm-router": lambda: VllmRouter(double.url, ids),
        "sglang-router": lambda: SglangRouter(double.url, ids, rig.clock, rig.clock.advance),
    }[kind]()
    backend = RouterBackend(admin, rig.workers, rig.clock, FenceFile(rig.folder / "fence"))

    def broken(*_: object) -> tuple[int, Any]:
        return 500, {}

    return Kit(
        backend, "router.remove", D1, "worker/decode-1/routed", False,
        lambda: setattr(double, "answer", broken), lambda: len(double.changes), {"double": double},
    )  # fmt: skip


def _store(rig: _Rig, _kind: str) -> Kit:
    router = _router(rig, "pdops-router")
    caches = [rig.serve(apis.LmcacheDouble()) for _ in range(2)]
    backend = JoinedBackend(
        router.backend, [LmcacheBypass("store-0", [c.url for c in caches])], FenceFile(rig.folder / "controls")
    )
    return Kit(
        backend, "store.bypass", {"store": "store-0"}, "store/store-0/bypassed", True,
        lambda: setattr(caches[1], "answer", lambda *_: (503, {})), lambda: sum(len(c.changes) for c in caches),
        {"caches": caches},
    )  # fmt: skip


KINDS = {
    "systemd": _units, "compose": _units, "pdops-router": _router, "vllm-router": _router, "sglang-router": _router,
    "router with LMCache": _store,
}  # fmt: skip


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[_Rig]:
    with ExitStack() as stack:
        yield _Rig(tmp_path, stack, monkeypatch)


@pytest.fixture(params=sorted(KINDS))
def kit(request: pytest.FixtureRequest, rig: _Rig) -> Kit:
    return KINDS[request.param](rig, request.param)


def test_what_is_done_is_seen_and_done_again_is_no_error(kit: Kit) -> None:
    before = kit.backend.observe().get(kit.subject)
    assert (before.known, before.value == kit.target) == (True, False)
    assert kit.backend.apply(kit.action, kit.params, Fence("run", 7)).changed
    done = kit.changes()
    assert kit.backend.observe().get(kit.subject).value == kit.target
    assert not kit.backend.apply(kit.action, kit.params, Fence("run", 7)).changed
    assert kit.changes() == done


def test_what_does_not_answer_is_unknown_with_a_reason_and_not_absent(kit: Kit) -> None:
    kit.break_it()
    seen = kit.backend.observe().get(kit.subject)
    assert (seen.known, bool(seen.why)) == (False, True)
    assert kit.backend.capabilities().refusal(kit.action) or kit.action.startswith("worker.")


def test_a_change_that_cannot_be_made_is_an_error(kit: Kit) -> None:
    kit.break_it()
    with pytest.raises(ActionError):
        kit.backend.apply(kit.action, kit.params, Fence("run", 7))


def test_an_older_run_is_turned_away_and_nothing_is_done(kit: Kit) -> None:
    kit.backend.apply(kit.action, kit.params, Fence("new", 8))
    done = kit.changes()
    with pytest.raises(FencedError):
        kit.backend.apply(kit.action, kit.params, Fence("old", 7))
    assert kit.changes() == done


def test_every_action_is_offered_or_refused_with_a_reason_and_apply_says_the_same(kit: Kit) -> None:
    offers = kit.backend.capabilities()
    assert not offers.offered & offers.missing.keys()
    for spec in SHIPPED:
        why = offers.refusal(spec.name)
        if not spec.needs_backend or why is None:
            continue
        assert why
        with pytest.raises(ActionError, match="is not offered"):
            kit.backend.apply(spec.name, {"worker": "decode-1", "store": "store-0"}, Fence("run", 9))
    assert kit.changes() == 0


def test_a_worker_that_nobody_named_is_never_touched(kit: Kit) -> None:
    with pytest.raises(ActionError):
        kit.backend.apply(kit.action, {"worker": "--help", "store": "--help"}, Fence("run", 9))
    assert kit.changes() == 0


def test_two_processes_do_not_change_it_at_once(tmp_path: Path) -> None:
    one, two = FenceFile(tmp_path / "fence"), FenceFile(tmp_path / "fence")
    with one.alone(3) as first:
        assert first
        with pytest.raises(BusyError), two.alone(4):
            pass
    with two.alone(2) as second:
        assert not second


def test_a_fence_that_cannot_be_read_stops_the_change(tmp_path: Path) -> None:
    (tmp_path / "fence").write_text("not a number")
    with pytest.raises(ActionError, match="fence"), FenceFile(tmp_path / "fence").alone(1):
        pass
