"""The deployments that are rendered in tests."""

from __future__ import annotations

from pdops.model.cluster import Role, Slo
from pdops.reference.render import Settings
from pdops.reference.spec import DeploymentSpec, EngineSpec, Profile, RouterSpec, StoreSpec


def plan(prefill: int = 1, decode: int = 1, tp: int = 1, *, store: bool = False) -> DeploymentSpec:
    """Make a plan on GPUs, with the ports of a host as `pdops up` would have taken them."""
    ids = [(Role.PREFILL, n) for n in range(prefill)] + [(Role.DECODE, n) for n in range(decode)]
    return DeploymentSpec(
        name="demo",
        profile=Profile.GPU,
        model="Qwen/Qwen3-8B",
        served_model="Qwen/Qwen3-8B",
        engines=tuple(
            EngineSpec(
                id=f"{role.value}-{n}",
                role=role,
                host="127.0.0.1",
                port=41000 + i,
                side_port=42000 + i,
                engine_id=f"{role.value}-{n}",
                gpus=tuple(range(i * tp, (i + 1) * tp)),
            )
            for i, (role, n) in enumerate(ids)
        ),
        router=RouterSpec(port=43000),
        store=StoreSpec(rpc_port=43001, metrics_port=43002, http_port=43003) if store else None,
        block_size=16,
        max_model_len=8192,
        max_num_seqs=256,
        tensor_parallel_size=tp,
        dtype="auto",
        slo=Slo(ttft_s=1.0, itl_s=0.05),
    )


PLANS = {
    "1p1d": (plan(), Settings(exporter=False)),
    "2p3d-tp2-store": (plan(2, 3, 2, store=True), Settings(exporter=True)),
}
