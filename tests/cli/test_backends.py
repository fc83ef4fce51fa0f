"""Which backend an inventory leads to, and what it offers there."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdops.actuate.joined import JoinedBackend
from pdops.actuate.local import LocalBackend
from pdops.actuate.router_admin import RouterBackend
from pdops.cli.backends import backend_for
from pdops.cli.inputs import Inputs
from tests.actuate.api_doubles import EngineDouble, LmcacheDouble, SglangRouterDouble, serving
from tests.actuate.program_doubles import first_on_path, program
from tests.sources.test_operate_units import BASE, SYSTEMD

HEAD = BASE.removesuffix("operate:\n")


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def _backend(folder: Path, text: str) -> object:
    file = folder / "pdops.yaml"
    file.write_text(text)
    return backend_for(Inputs((file,), (), None, "", "", None, None, 1.0))


def test_a_router_alone_is_a_backend_of_its_own(tmp_path: Path) -> None:
    alone = "".join(line for line in HEAD.splitlines(keepends=True) if "kvstore" not in line)
    assert isinstance(_backend(tmp_path, alone), RouterBackend)


def test_a_store_beside_a_router_is_asked_and_says_what_it_has_no_switch_for(tmp_path: Path) -> None:
    backend = _backend(tmp_path, HEAD.replace("10.0.0.3:8080", "127.0.0.1:9"))
    assert isinstance(backend, JoinedBackend)
    assert "no switch" in (backend.capabilities().refusal("store.bypass") or "")
    assert "only the router" in (backend.capabilities().refusal("store.restart") or "")


def test_without_a_router_or_operate_there_is_nothing_to_change(tmp_path: Path) -> None:
    only = "version: 1\ncluster: c\nworkers:\n  - {id: decode-0, role: decode, url: 'http://h:1'}\n"
    assert _backend(tmp_path, only) is None


def test_units_router_store_and_engines_are_one_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "systemctl", {"pd-prefill@0.service": "running", "pd-decode@0.service": "running"})
    monkeypatch.setenv("PATH", first_on_path(tmp_path))
    with serving(EngineDouble()) as prefill, serving(EngineDouble()) as decode, serving(LmcacheDouble()) as cache:
        workers = {"prefill-0": ("prefill", prefill.url), "decode-0": ("decode", decode.url)}
        with serving(SglangRouterDouble(workers)) as router:
            text = BASE + SYSTEMD % "" + f"  lmcache: {{store: store-0, urls: ['{cache.url}']}}\n"
            for there, here in (("http://10.0.0.1:8000", prefill.url), ("http://10.0.0.2:8000", decode.url),
                                ("http://10.0.0.3:8080", router.url)):  # fmt: skip
                text = text.replace(there, here)
            text = text.replace("10.0.0.4", "127.0.0.1").replace(":9003", ":9")
            backend = _backend(tmp_path, text)
            assert isinstance(backend, JoinedBackend)
            assert isinstance(backend._base, LocalBackend)
            offers = backend.capabilities()
            state = backend.observe()
    for action in ("worker.restart", "worker.cordon", "router.add", "store.bypass"):
        assert offers.refusal(action) is None, action
    assert offers.refusal("pool.scale-out") == "the inventory lists no spare worker"
    assert "developer mode" in (offers.refusal("worker.drop-cache") or "")
    assert state.get("worker/decode-0/routed").value is True
    assert state.get("store/store-0/bypassed").value is False
    assert state.get("store/store-0/serving").value is False


@pytest.mark.parametrize(
    ("engine", "why"),
    [
        ("engine: pdops_router", "the inventory gives no admin: for router-0"),
        ("engine: nixl", "router-0 is a nixl, which pdops cannot change"),
        (None, "the inventory has no router"),
    ],
)
def test_a_router_that_is_there_and_cannot_be_changed_is_not_called_missing(
    engine: str | None, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "systemctl", {"pd-prefill@0.service": "running", "pd-decode@0.service": "running"})
    monkeypatch.setenv("PATH", first_on_path(tmp_path))
    text = BASE + SYSTEMD % ""
    if engine is None:
        text = "".join(line for line in text.splitlines(keepends=True) if "router-0" not in line)
    else:
        assert "engine: sglang_router" in text
        text = text.replace("engine: sglang_router", engine)
    backend = _backend(tmp_path, text)
    assert isinstance(backend, JoinedBackend)
    assert backend.capabilities().refusal("router.add") == why
