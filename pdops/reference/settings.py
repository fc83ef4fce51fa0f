"""What of a deployment was asked for, by the options of `pdops up`."""

from __future__ import annotations

from collections.abc import Iterable

from pdops.reference.spec import DeploymentSpec, EngineSpec

UNASKED = "-"
"""What stands for an option that was not given and has no default."""


def settings(spec: DeploymentSpec, network: str, router_port: int | None) -> dict[str, str]:
    """Return what can be asked for as text, by the option that asks for it; what is a deployment's own choice is not there.

    Args:
        spec: what it consists of.
        network: where its engines listen.
        router_port: None where any will do.
    """
    router, store = spec.router, spec.store
    found: dict[str, object] = {
        "profile": spec.profile.value,
        "prefill": len(spec.prefills()),
        "decode": len(spec.decodes()),
        # By the name it is served under: the folder of the one made here may be written in several ways.
        "model": spec.served_model,
        "tp": spec.tensor_parallel_size,
        "gpus": " ".join(",".join(map(str, e.gpus)) for e in spec.engines if e.gpus) or None,
        "kv-store": "none" if store is None else "mooncake",
        "network": network,
        "router": "none" if router is None else router.kind,
        "router-port": router_port,
        "policy": None if router is None else router.policy,
        "max-model-len": spec.max_model_len,
        "block-size": spec.block_size,
        "prefill-blocks": _blocks(spec.prefills()),
        "decode-blocks": _blocks(spec.decodes()),
        "prefill-seqs": _each(e.max_num_seqs or spec.max_num_seqs for e in spec.prefills()),
        "lease": spec.lease_s,
        "slo-ttft": spec.slo.ttft_s,
        "slo-itl": spec.slo.itl_s,
        "plugin": spec.plugin,
        "otlp": spec.otlp_endpoint,
    }
    return {name: UNASKED if value is None else str(value) for name, value in found.items()}


def _blocks(engines: Iterable[EngineSpec]) -> str:
    return _each(e.blocks for e in engines)


def _each(values: Iterable[object]) -> str:
    """Return what all engines of a role have, or what each of them has where they differ."""
    found = [UNASKED if v is None else str(v) for v in values]
    return found[0] if len(set(found)) == 1 else " ".join(found)
