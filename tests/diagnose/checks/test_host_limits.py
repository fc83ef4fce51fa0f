"""host/limits: shared memory, open files, outgoing ports."""

from __future__ import annotations

import pytest

from tests.diagnose.build import causes, golden_preflight, unread, verdict
from tests.diagnose.hostfacts import D, P, cards, engine, judge, seen

ID = "host/limits"
MIB = 2**20
Side = dict[str, str | None]


def ends(**more: str | None) -> tuple[Side, Side]:
    known: dict[str, str | None] = {
        "host__shm_total_bytes": str(8 * 2**30),
        "host__shm_free_bytes": str(7 * 2**30),
        "host__nofile": "65535",
        "host__ephemeral_ports": "32768-60999",
        "tensor_parallel_size": "2",
    }
    left, right = (engine(h, **known) for h in "ab")
    return left | {k.replace("__", "."): v for k, v in more.items()}, right


@pytest.mark.parametrize(
    ("size", "says"),
    [(64 * MIB, "fail"), (64 * MIB + 1, "warn"), (1024 * MIB - 1, "warn"), (1024 * MIB, "ok"), (None, "unknown")],
)
def test_shared_memory_of_several_ranks(size: int | None, says: str) -> None:
    text = None if size is None else str(size)
    assert verdict(judge(ID, *ends(host__shm_total_bytes=text, host__shm_free_bytes=text))) == says


def test_one_rank_needs_little() -> None:
    small: Side = {
        "host.shm_total_bytes": str(64 * MIB),
        "host.shm_free_bytes": str(64 * MIB),
        "tensor_parallel_size": "1",
    }
    left, right = ends()
    assert verdict(judge(ID, left | small, right)) == "ok"
    assert verdict(judge(ID, left | small | {"host.gpus": cards(1.0, 1.0)}, right)) == "fail"


@pytest.mark.parametrize(("free", "says"), [(64 * MIB, "ok"), (64 * MIB - 1, "fail")])
def test_shared_memory_that_is_full(free: int, says: str) -> None:
    assert verdict(judge(ID, *ends(host__shm_free_bytes=str(free)))) == says


@pytest.mark.parametrize(
    ("files", "says"), [("65535", "ok"), ("65534", "warn"), ("unlimited", "ok"), (None, "unknown")]
)
def test_open_files(files: str | None, says: str) -> None:
    assert verdict(judge(ID, *ends(host__nofile=files))) == says


@pytest.mark.parametrize(
    ("ports", "says"),
    [("32768-60999", "ok"), ("32768\t60999", "ok"), ("32769-60999", "warn"), ("few", "unknown"), (None, "unknown")],
)
def test_outgoing_ports(ports: str | None, says: str) -> None:
    found = judge(ID, *ends(host__ephemeral_ports=ports))
    assert verdict(found) == says
    if says == "warn":
        assert causes(found) == ["transport-error"]


@pytest.mark.parametrize(("pool", "says"), [("1", "ok"), (None, "warn"), ("0", "warn")])
def test_mooncake_over_tcp_pools_its_connections(pool: str | None, says: str) -> None:
    found = judge(ID, *ends(kv_connector="MooncakeConnector", MC_PROTOCOL="tcp", MC_TCP_ENABLE_CONNECTION_POOL=pool))
    assert verdict(found) == says


def test_what_was_not_read_is_unknown() -> None:
    names = ("host.shm_total_bytes", "host.nofile", "host.ephemeral_ports")
    assert unread(judge(ID)) == [(w, n) for n in names for w in (P, D)]


def test_golden() -> None:
    left, right = ends(host__shm_total_bytes=str(64 * MIB), host__nofile="1024", host__ephemeral_ports="50000-60999")
    assert verdict(golden_preflight(ID, seen(left, right))) == "fail"
