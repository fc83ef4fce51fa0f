"""Command lines and environments of the engines, as they were when this was last looked at."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pdops.model.cluster import Role, Slo
from pdops.reference import engines
from pdops.reference.spec import DeploymentSpec, EngineSpec, Profile

WITH_ENGINES = [profile for profile in Profile if profile is not Profile.SIM]
GOLDENS = Path(__file__).parent / "goldens"
PATHS = engines.Paths(Path("/state/logs"), Path("/state/cache"), Path("/state/store"))
BASE = {
    "PATH": "/bin",
    "HOME": "/home/sre",
    "VLLM_USE_V1": "0",
    "PYTHONPATH": "/secret",
    "UCX_TLS": "rc",
    "CUDA_VISIBLE_DEVICES": "7",
}


def _spec(profile: Profile) -> DeploymentSpec:
    cpu = profile is Profile.CPU
    sides = ((Role.PREFILL, 0, (0, 1)), (Role.DECODE, 0, (2, 3)))
    return DeploymentSpec(
        name="default",
        profile=profile,
        model="/state/model" if cpu else "Qwen/Qwen3-8B",
        served_model="pdops-tiny" if cpu else "Qwen/Qwen3-8B",
        engines=tuple(
            EngineSpec(
                id=f"{role.value}-{n}",
                role=role,
                host="127.0.0.1",
                port=8000 + 10 * i,
                side_port=5600 + i,
                engine_id=f"{role.value}-{n}",
                blocks=400 if cpu else None,
                gpus=() if cpu else gpus,
            )
            for i, (role, n, gpus) in enumerate(sides)
        ),
        tensor_parallel_size=1 if cpu else 2,
        block_size=32 if cpu else 16,
        max_model_len=1024 if cpu else 8192,
        dtype="float32" if cpu else "auto",
        slo=Slo(ttft_s=1.0),
    )


@pytest.mark.parametrize("profile", WITH_ENGINES)
@pytest.mark.parametrize("side", [0, 1], ids=["prefill", "decode"])
def test_command_lines_are_as_written_down(profile: Profile, side: int) -> None:
    spec = _spec(profile)
    engine = spec.engines[side]
    environment = engines.environment(spec, engine, BASE, PATHS)
    if profile is Profile.CPU:
        assert environment["PYTHONPATH"] == str(engines.SITE)
        environment["PYTHONPATH"] = "ENGINE_SITE"
    found = [
        *(f"{k}={v}" for k, v in sorted(environment.items())),
        *engines.command(spec, engine, Path("/venv/bin/python")),
    ]
    golden = GOLDENS / f"{profile.value}-{engine.role.value}.txt"
    text = "\n".join(found) + "\n"
    if os.environ.get("PDOPS_UPDATE"):
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text)
    assert text == golden.read_text()


def test_settings_of_ours_do_not_leak_into_an_engine() -> None:
    spec = _spec(Profile.GPU)
    environment = engines.environment(spec, spec.engines[0], BASE, PATHS)
    assert "PYTHONPATH" not in environment
    assert "VLLM_USE_V1" not in environment
    assert environment["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert environment["HOME"] == "/home/sre"


def test_the_two_sides_differ_in_nothing_that_must_match() -> None:
    for profile in WITH_ENGINES:
        spec = _spec(profile)
        left, right = (engines.kv_transfer(spec, e) for e in spec.engines)
        assert (left.pop("kv_role"), right.pop("kv_role")) == ("kv_producer", "kv_consumer")
        assert (left.pop("engine_id"), right.pop("engine_id")) == ("prefill-0", "decode-0")
        assert left == right


def test_traces_go_where_they_are_asked_to() -> None:
    spec = replace(_spec(Profile.CPU), otlp_endpoint="http://127.0.0.1:4318/v1/traces")
    words = engines.command(spec, spec.engines[0], Path("python"))
    assert "--otlp-traces-endpoint=http://127.0.0.1:4318/v1/traces" in words
    environment = engines.environment(spec, spec.engines[0], {}, PATHS)
    assert environment["OTEL_SERVICE_NAME"] == "prefill-0"
    assert json.loads(next(w for w in words if "kv-transfer-config" in w).partition("=")[2])["kv_role"] == "kv_producer"
