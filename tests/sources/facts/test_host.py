"""The machine as /proc and /sys show it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pdops.sources.facts.devices import read_rdma
from pdops.sources.facts.host import (
    HostReader,
    free_memory,
    offset_by_date,
    parse_gpus,
    parse_limits,
    parse_meminfo,
    parse_port_range,
    read_cgroup_limit,
)

LIMITS = """Limit                     Soft Limit           Hard Limit           Units
Max open files            1024                 524288               files
Max locked memory         unlimited            unlimited            bytes
"""


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def machine(tmp_path: Path) -> tuple[Path, Path]:
    """A /proc with one engine and a /sys with one RDMA device."""
    proc, sys = tmp_path / "proc", tmp_path / "sys"
    _write(proc / "meminfo", "MemTotal:       1000 kB\nMemAvailable:    500 kB\nHugePages_Total: 0\n")
    _write(proc / "sys/vm/max_map_count", "65530\n")
    _write(proc / "sys/net/ipv4/ip_local_port_range", "32768\t60999\n")
    _write(proc / "7/limits", LIMITS)
    (proc / "7/ns").mkdir()
    (proc / "7/ns/pid").symlink_to("pid:[4026531836]")
    _write(proc / "7/root/sys/class/net/kv/operstate", "up\n")
    _write(proc / "7/root/sys/class/net/kv/mtu", "9000\n")
    _write(proc / "7/root/sys/class/net/kv/speed", "-1\n")
    (sys / "module/nvidia_peermem").mkdir(parents=True)
    (sys / "module/ext4").mkdir()
    port = sys / "class/infiniband/mlx5_0/ports/1"
    _write(port / "state", "4: ACTIVE\n")
    _write(port / "link_layer", "Ethernet\n")
    _write(port / "rate", "400 Gb/sec (4X NDR)\n")
    _write(port / "gids/0", "fe80:0000:0000:0000:0000:0000:0000:0001\n")
    _write(port / "gids/1", "0000:0000:0000:0000:0000:0000:0000:0000\n")
    _write(port / "gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001\n")
    _write(port / "gid_attrs/types/3", "RoCE v2\n")
    _write(sys / "class/infiniband/mlx5_0/device/net/eth1/mtu", "9000\n")
    _write(sys / "fs/cgroup/memory.max", "max\n")
    return proc, sys


def test_a_machine_is_read(machine: tuple[Path, Path]) -> None:
    out = HostReader(*machine, gpus=lambda: "0, NVIDIA H200, 143771, 143000, 9.0\n").collect("w", 7)
    facts = out.facts["w"]
    assert facts["host.memory_total_bytes"] == "1024000"
    assert facts["host.memory_available_bytes"] == "512000"
    assert facts["host.memlock_bytes"] == "unlimited"
    assert facts["host.nofile"] == "1024"
    assert facts["host.max_map_count"] == "65530"
    assert facts["host.ephemeral_ports"] == "32768-60999"
    assert facts["host.modules"] == "nvidia_peermem"
    assert facts["host.pid_namespace"] == "pid:[4026531836]"
    assert json.loads(facts["host.net_devices"]) == {"kv": {"state": "up", "mtu": 9000, "speed_mbits": None}}
    assert json.loads(facts["host.gpus"])[0]["memory_total_bytes"] == 143771 << 20
    (port,) = json.loads(facts["host.rdma"])["mlx5_0"].values()
    assert (port["state"], port["link_layer"], port["mtu"]) == ("ACTIVE", "Ethernet", 9000)
    assert [g["index"] for g in port["gids"]] == [0, 3]
    assert port["gids"][1]["type"] == "RoCE v2"
    assert out.unread == []


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    out = HostReader(tmp_path / "proc", tmp_path / "sys", gpus=lambda: None).collect("w", 7, [8000])
    missing = {u.key for u in out.unread}
    assert {"host.memory_total_bytes", "host.memlock_bytes", "host.gpus", "host.modules", "host.net_devices"} <= missing
    assert out.facts["w"]["host.rdma"] == "{}"
    assert not missing & set(out.facts["w"])


def test_parsers_take_only_what_they_know() -> None:
    assert parse_meminfo("MemTotal: x kB\nnonsense\n") == {}
    assert parse_limits("Max locked memory         65536 65536 bytes\n") == {"host.memlock_bytes": "65536"}
    assert parse_port_range("1") == {}
    assert parse_gpus("index, name\n[N/A]\n1, A, [N/A], 5\n") == [
        {"index": 1, "name": "A", "memory_total_bytes": None, "memory_free_bytes": 5 << 20}
    ]
    assert read_rdma(Path("/nonexistent")) == {}


def test_a_control_group_may_limit_memory(tmp_path: Path) -> None:
    assert read_cgroup_limit(tmp_path) is None
    (tmp_path / "memory.max").write_text("1048576\n")
    assert read_cgroup_limit(tmp_path) == 1 << 20
    assert free_memory({"host.memory_available_bytes": "9", "host.memory_limit_bytes": "5"}) == 5
    assert free_memory({}) is None


@pytest.mark.parametrize(
    ("date_s", "offset"),
    [(100.0, None), (101.0, 0.5), (99.0, None), (110.0, 9.5), (90.0, -8.0)],
)
def test_whole_seconds_show_only_large_offsets(date_s: float, offset: float | None) -> None:
    assert offset_by_date(date_s, 100.0, 100.5) == offset
