"""What the router in front of a deployment is started with, and how to tell that it serves."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import requests

from pdops.errors import DeploymentError
from pdops.reference import pages
from pdops.reference.spec import DeploymentSpec, RouterSpec
from pdops.reference.state import Home

REQUIREMENTS = "vllm-router.txt"


def command(spec: DeploymentSpec, home: Home, engine_python: Path) -> list[str]:
    """Return the command line of the router."""
    router = spec.router
    assert router is not None, "a deployment without a router starts none"
    return _pdops(spec, router, home) if router.kind == "pdops" else _vllm(spec, router, engine_python)


def _pdops(spec: DeploymentSpec, router: RouterSpec, home: Home) -> list[str]:
    settings: dict[str, object] = {
        "host": router.host,
        "port": router.port,
        "policy": router.policy,
        "queue-limit": router.queue_limit,
        "fallback": router.fallback,
        "admin-token-file": home.admin_token,
        "state": home.router / "workers.json",
        "block-size": spec.block_size,
        # As many as an engine runs at once; what comes on top waits in the router, where it can be seen and turned away.
        "max-inflight-prefill": spec.max_num_seqs,
        "max-inflight-decode": spec.max_num_seqs,
    }
    optional = {
        "kv-bytes-per-token": spec.kv_bytes_per_token,
        "slo-ttft": spec.slo.ttft_s,
        "slo-itl": spec.slo.itl_s,
        "otlp": spec.otlp_endpoint,
    }
    settings |= {k: v for k, v in optional.items() if v is not None}
    workers = [
        word
        for role, of_role in (("prefill", spec.prefills()), ("decode", spec.decodes()))
        for e in of_role
        for word in (f"--{role}", f"{e.id}={e.url}" + (f",zone={e.zone}" if e.zone else ""))
    ]
    start = [sys.executable, "-m", "pdops.router", "--allow-drills"]
    return [*start, *(f"--{k}={v}" for k, v in settings.items()), *workers]


def _vllm(spec: DeploymentSpec, router: RouterSpec, engine_python: Path) -> list[str]:
    program = engine_python.parent / "vllm-router"
    if not program.exists():
        raise DeploymentError(
            "vllm-router is not in the engine's environment",
            where=str(engine_python.parent),
            hint="`pdops up --router vllm-router` installs it when it builds the environment itself",
        )
    words = [str(program), "--vllm-pd-disaggregation", "--kv-connector", "nixl"]
    words += ["--host", router.host, "--port", str(router.port)]
    words += ["--prometheus-host", router.host, "--prometheus-port", str(router.metrics_port)]
    # Its defaults need up to three minutes to notice a worker that died.
    words += ["--health-check-interval-secs", "5", "--health-failure-threshold", "2"]
    words += [w for e in spec.prefills() for w in ("--prefill", e.url)]
    return words + [w for e in spec.decodes() for w in ("--decode", e.url)]


def not_ready(router: RouterSpec) -> str | None:
    """Return None when the router has a worker of each role, else what it lacks."""
    path = "/ready" if router.kind == "pdops" else "/readiness"
    try:
        pages.get(f"{router.url}{path}", 2.0)
    except requests.HTTPError as error:
        return f"it is not ready: {_reason(error.response)}"
    except OSError:
        return "it does not answer yet"
    return None


def _reason(answer: requests.Response) -> str:
    try:
        content = json.loads(answer.content)
        return str(content.get("reason") or content.get("error") or content)[:200]
    except (ValueError, AttributeError, requests.RequestException):
        return f"status {answer.status_code}"
