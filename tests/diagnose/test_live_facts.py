"""Configuration that a live source reads of a sound pair, whole or in part, is no fault; a difference is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdops.diagnose.engine import diagnose
from pdops.model.cluster import Role, Worker
from pdops.model.report import Verdict
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.process import Process, collect
from pdops.sources.facts.resolve import resolve
from pdops.sources.facts.startlog import read_start
from tests.diagnose.build import but, sound, view


def engine(out: Collected, name: str, role: Role, port: int, *, block_size: int = 32, log: Path | None = None) -> None:
    """Read an engine as the reference deployment starts it."""
    kv = {
        "kv_connector": "NixlConnector",
        "kv_role": "kv_producer" if role is Role.PREFILL else "kv_consumer",
        "engine_id": name,
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {"kv_lease_duration": 30},
    }
    argv = (
        "python -m vllm.entrypoints.openai.api_server --enforce-eager --model=/m --dtype=float32 --max-model-len=1024 "
        f"--host=10.99.0.1 --port={port} --block-size={block_size} --max-num-seqs=16"
    ).split()
    environ = {"VLLM_NIXL_SIDE_CHANNEL_PORT": str(port + 1), "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": f"veth-{port}"}
    out.add(
        collect(name, role, Process(pid=1, argv=(*argv, f"--kv-transfer-config={json.dumps(kv)}"), environ=environ))
    )
    out.put(name, {"version": "0.32.0"} | ({} if log is None else read_start(log)))


def settle(out: Collected) -> None:
    for name, role in (("prefill-0", Role.PREFILL), ("decode-0", Role.DECODE)):
        resolve(out, Worker(id=name, role=role, pool=role.value, engine="vllm", url="http://x:1"))


@pytest.fixture
def log(fixtures: Path) -> Path:
    return fixtures / "facts" / "vllm-0.32.0-start.log"


def test_a_sound_pair_that_is_read_whole_is_healthy_and_agrees(log: Path) -> None:
    out = Collected()
    engine(out, "prefill-0", Role.PREFILL, 8100, log=log)
    engine(out, "decode-0", Role.DECODE, 8200, log=log)
    settle(out)
    report = diagnose(view(series=sound(), facts=out.facts))
    assert report.verdict is Verdict.HEALTHY
    assert "config-asymmetry" in {r.cause for r in report.ruled_out}


def test_a_sound_pair_of_which_one_side_is_elsewhere_is_healthy(log: Path) -> None:
    out = Collected()
    engine(out, "prefill-0", Role.PREFILL, 8100, log=log)
    out.put("decode-0", {"version": "0.32.0", "served_model_name": "tiny", "max_model_len": "1024"})
    for key in ("command line", "environment.*", "start log"):
        out.miss("decode-0", key, "its process is not on this machine")
    settle(out)
    assert diagnose(view(series=sound(), facts=out.facts)).verdict is Verdict.HEALTHY


def test_a_pair_with_different_block_sizes_that_moves_no_kv_is_named() -> None:
    out = Collected()
    engine(out, "prefill-0", Role.PREFILL, 8100)
    engine(out, "decode-0", Role.DECODE, 8200, block_size=16)
    settle(out)
    broken = {"decode-0": {"kv_transfer_failures": (0, 40), "kv_transfer_bytes": (240e9, 0)}}
    report = diagnose(view(series=but(sound(), broken), facts=out.facts))
    assert "config-asymmetry" in {h.cause for h in report.hypotheses}
