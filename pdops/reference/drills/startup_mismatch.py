"""An engine that starts with something its peer does not have: block size, dtype, version, or an address nobody can reach."""

from __future__ import annotations

import os
from pathlib import Path

from pdops.model.report import Layer, ScopeKind, Verdict
from pdops.reference import engines
from pdops.reference.drills import direct
from pdops.reference.drills.plan import Drill, Expect, Need, Split
from pdops.reference.drills.stage import Stage
from pdops.reference.profiles import free_ports
from pdops.reference.spec import LOOPBACK

FAILED = "vllm:nixl_num_failed_transfers_total"
_PAIR: tuple[tuple[ScopeKind, str], ...] = (
    ("pair", "{prefill}>{decode}"),
    ("worker", "{prefill}"),
    ("worker", "{decode}"),
)
_PLUGIN = '''"""Say that this engine's NIXL connector speaks another version than it does; for a drill only."""


def register():
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import metadata

    metadata.NIXL_CONNECTOR_VERSION -= 1
'''
_ENTRY = "[vllm.general_plugins]\npdops_drill_version = pdops_drill_version:register\n"
_METADATA = "Metadata-Version: 2.1\nName: pdops-drill-version\nVersion: 1\n"


def _with_option(stage: Stage, worker: str, option: str, value: str) -> None:
    stage.undo(f"serves again with its own --{option}", worker, lambda: stage.restart(worker))
    stage.restart(worker, overrides={option: value})
    stage.did(f"serves with --{option} {value}", worker)
    stage.until_moved(stage.decode, FAILED, 60)


def _block_size(stage: Stage) -> None:
    # Decode can split larger blocks of its own, but not those of prefill, into prefill's size.
    _with_option(stage, stage.prefill, "block-size", str(2 * stage.deployment.spec.block_size))


def _dtype(stage: Stage) -> None:
    other = "bfloat16" if stage.deployment.spec.dtype != "bfloat16" else "float32"
    _with_option(stage, stage.decode, "dtype", other)


def write_plugin(folder: Path) -> Path:
    """Write a plugin of the engine that changes the connector's version; return the folder for PYTHONPATH."""
    info = folder / "pdops_drill_version-1.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (folder / "pdops_drill_version.py").write_text(_PLUGIN, encoding="utf-8")
    (info / "entry_points.txt").write_text(_ENTRY, encoding="utf-8")
    (info / "METADATA").write_text(_METADATA, encoding="utf-8")
    return folder


def _version(stage: Stage) -> None:
    decode = stage.decode
    folder = write_plugin(stage.deployment.state_dir / "drills" / "version")
    stage.undo("serves again with the connector's own version", decode, lambda: stage.restart(decode))
    stage.restart(decode, env={"PYTHONPATH": os.pathsep.join((str(engines.SITE), str(folder)))})
    stage.did("serves with a NIXL connector that says it is one version older", decode)
    stage.until_moved(decode, FAILED, 60)


def _side_channel(stage: Stage) -> None:
    if stage.deployment.network is None:
        stage.did("begin to give decode addresses whose side channel is closed", stage.decode)
        _closed_port(stage, 0)
        return
    prefill = stage.prefill
    stage.undo("serves again with its own side-channel host", prefill, lambda: stage.restart(prefill))
    # In a namespace of its own nobody else reaches its loopback, the classic mistake in containers.
    stage.restart(prefill, env={"VLLM_NIXL_SIDE_CHANNEL_HOST": LOOPBACK})
    stage.did(f"serves, and tells its peers to find its side channel at {LOOPBACK}", prefill)
    stage.until_moved(stage.decode, FAILED, 90)


def _keep_side_channel(stage: Stage) -> None:
    if stage.deployment.network is None:
        for number in range(1, 9):
            _closed_port(stage, number)


def _closed_port(stage: Stage, number: int) -> None:
    prompt = direct.prompts(1, 300, seed=100 + number)[0]
    # A known engine id would make decode use the address it knows already.
    wrong = {"remote_engine_id": f"unreachable-{number}", "remote_host": LOOPBACK, "remote_port": free_ports(1)[0]}
    address = {**direct.prefilled(stage, prompt), **wrong}
    pair = f"{stage.prefill}>{stage.decode}"
    try:
        direct.pulled(stage, prompt, address)
    except OSError as error:
        stage.did(f"pull from an engine whose side channel is closed: {str(error)[:60]}", pair)
    else:
        stage.did("pull from an engine whose side channel is closed: status 200", pair)


DRILLS = (
    Drill(
        name="block-size-mismatch",
        family="startup_mismatch",
        summary="prefill starts with blocks twice as large as decode's",
        split=Split.DEVELOP,
        expect=Expect(Verdict.FAULT, (Layer.CONFIG,), ("config-asymmetry",), _PAIR),
        act=_block_size,
        needs=(Need.ROUTER,),
        settle_s=15,
        linger_s=35,
    ),
    Drill(
        name="dtype-mismatch",
        family="startup_mismatch",
        summary="decode starts with another dtype than prefill",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.CONFIG,), ("config-asymmetry",), _PAIR),
        act=_dtype,
        needs=(Need.ROUTER, Need.CPU),
        settle_s=15,
        linger_s=35,
    ),
    Drill(
        name="version-mismatch",
        family="startup_mismatch",
        summary="decode's NIXL connector says it has another version than prefill's",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.CONFIG,), ("version-skew",), _PAIR),
        act=_version,
        needs=(Need.ROUTER, Need.CPU),
        settle_s=15,
        linger_s=35,
        note="both engines are the same build; a plugin on decode's PYTHONPATH lowers the version that its connector tells",
    ),
    Drill(
        name="side-channel-unreachable",
        family="startup_mismatch",
        summary="decode cannot reach the side channel that prefill names",
        split=Split.JUDGE,
        expect=Expect(Verdict.FAULT, (Layer.CONFIG,), ("handshake-address",), _PAIR),
        act=_side_channel,
        keep=_keep_side_channel,
        needs=(Need.ROUTER,),
        settle_s=10,
        linger_s=35,
        note="with namespaces prefill advertises its loopback; without, decode is asked directly, with a closed port",
    ),
)
