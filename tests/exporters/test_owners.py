"""Whose a GPU is, from a /proc that the test writes."""

from __future__ import annotations

from pathlib import Path

from pdops.model.cluster import Cluster, Role, Worker
from pdops.sources.facts.process import ProcReader
from pdops_exporters.gpu import Owner
from pdops_exporters.owners import AGAIN_S, LocalOwners

from .test_gpu import NvmlDouble, read

_TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4001 1
   1: 0100007F:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4002 1
"""
"""Listeners on 127.0.0.1, ports 8000 and 8001."""


def process(root: Path, pid: int, parent: int, inode: int | None = None) -> None:
    home = root / str(pid)
    for folder in ("net", "fd", "ns"):
        (home / folder).mkdir(parents=True)
    (home / "ns" / "net").symlink_to("net:[1]")
    (home / "net" / "tcp").write_text(_TCP)
    (home / "net" / "tcp6").write_text("")
    (home / "stat").write_text(f"{pid} (vllm) S {parent} 1 1")
    if inode is not None:
        (home / "fd" / "3").symlink_to(f"socket:[{inode}]")


def cluster(*, decode_host: str = "localhost") -> Cluster:
    return Cluster(
        name="c",
        workers=(
            Worker(id="prefill-0", role=Role.PREFILL, pool="prefill", url="http://127.0.0.1:8000"),
            Worker(id="decode-0", role=Role.DECODE, pool="decode", url=f"http://{decode_host}:8001"),
            Worker(id="router-0", role=Role.ROUTER, pool="router", url="http://127.0.0.1:8000"),
        ),
    )


def test_a_process_below_the_one_that_listens_belongs_to_the_worker(tmp_path: Path) -> None:
    process(tmp_path, 10, 1, 4001)
    process(tmp_path, 20, 1, 4002)
    process(tmp_path, 21, 20)
    process(tmp_path, 4242, 21)
    process(tmp_path, 30, 1)
    owners = LocalOwners(cluster(), lambda: 0.0, proc=ProcReader(tmp_path))
    assert owners(10) == Owner("prefill", "prefill-0")
    assert owners(4242) == Owner("decode", "decode-0")
    assert owners(30) is None
    ((labels, _),) = read(NvmlDouble(), owner=owners)["pdops_gpu_busy_ratio"].items()
    assert (dict(labels)["role"], dict(labels)["worker"]) == ("decode", "decode-0")


def test_a_worker_on_another_machine_owns_nothing_here(tmp_path: Path) -> None:
    process(tmp_path, 20, 1, 4002)
    owners = LocalOwners(cluster(decode_host="192.0.2.7"), lambda: 0.0, proc=ProcReader(tmp_path))
    assert owners(20) is None


def test_a_worker_that_starts_later_is_found_at_the_next_look(tmp_path: Path) -> None:
    now = [0.0]
    owners = LocalOwners(cluster(), lambda: now[0], proc=ProcReader(tmp_path))
    assert owners(20) is None
    process(tmp_path, 20, 1, 4002)
    assert owners(20) is None
    now[0] += AGAIN_S
    assert owners(20) == Owner("decode", "decode-0")
