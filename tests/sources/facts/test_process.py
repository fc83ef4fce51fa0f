"""Processes as /proc shows them."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from pdops.model.cluster import Role
from pdops.router.settings import Settings
from pdops.sources.facts.process import (
    Process,
    ProcReader,
    arguments_of,
    collect,
    environment_facts,
    listening,
    parse_argv,
    parse_environ,
)
from pdops.sources.facts.router import DEFAULTS, settings_facts
from pdops.sources.redact import REDACTED

TCP = """  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4001 1 0 100 0 0 10 0
   1: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4002 1 0 100 0 0 10 0
   2: 0100007F:1F40 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4003 1 0 100 0 0 10 0
   broken
"""
TCP6 = """  sl  local_address rem_address st
   0: 00000000000000000000000000000000:1F42 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4004 1
   1: 0000000000000000FFFF00000100007F:1F43 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 4005 1
"""


def _fake(root: Path, pid: int, parent: int, environ: dict[str, str], argv: tuple[str, ...] = ()) -> Path:
    home = root / str(pid)
    (home / "net").mkdir(parents=True)
    (home / "fd").mkdir()
    (home / "ns").mkdir()
    (home / "ns" / "net").symlink_to("net:[1]")
    (home / "net" / "tcp").write_text(TCP)
    (home / "net" / "tcp6").write_text(TCP6)
    (home / "stat").write_text(f"{pid} (a (odd) name) S {parent} 1 1")
    (home / "environ").write_bytes(b"\0".join(f"{k}={v}".encode() for k, v in environ.items()))
    (home / "cmdline").write_bytes(b"\0".join(word.encode() for word in argv) + b"\0")
    return home


def test_command_line_and_environment_are_split() -> None:
    assert parse_argv(b"vllm\0serve\0m\0") == ("vllm", "serve", "m")
    assert parse_argv(b"") == ()
    assert parse_environ(b"A=1\0B=x=y\0broken\0") == {"A": "1", "B": "x=y"}


def test_only_variables_of_engine_and_transport_are_kept() -> None:
    assert environment_facts({"UCX_TLS": "tcp", "PATH": "/bin", "PYTHONHASHSEED": "0", "AWS_SECRET": "x"}) == {
        "UCX_TLS": "tcp",
        "PYTHONHASHSEED": "0",
    }


def test_secrets_never_become_facts() -> None:
    process = Process(
        pid=1,
        argv=("vllm", "serve", "m", "--api-key", "abcdef", "--hf-token=hf_abcdefghijklmnop"),
        environ={"VLLM_API_KEY": "abcdef", "UCX_TLS": "tcp\x1b[31m", "VLLM_X": "http://me:word@host/"},
    )
    facts = collect("prefill-0", Role.PREFILL, process).facts["prefill-0"]
    assert facts["api_key"] == facts["VLLM_API_KEY"] == REDACTED
    assert not any("abcdef" in value or "word@" in value for value in facts.values())
    assert facts["UCX_TLS"] == "tcp"


def test_options_of_routers_and_stores_take_the_names_of_the_checks() -> None:
    router = arguments_of(
        Role.ROUTER, ("python", "-m", "pdops.router", "--deadline", "30", "--queue-limit", "9")
    ).options
    assert (router["deadline_s"], router["queue_limit"]) == ("30", "9")
    other = arguments_of(Role.ROUTER, ("vllm-router", "--cb-failure-threshold", "5", "--disable-retries")).options
    assert (other["breaker_threshold"], other["retries"]) == ("5", "0")
    assert "deadline_s" not in other
    assert arguments_of(Role.KVSTORE, ("mooncake_master", "--client_ttl=10")).options["client_ttl_s"] == "10"


def test_a_router_of_ours_is_known_by_its_defaults_too() -> None:
    own = arguments_of(
        Role.ROUTER, ("python", "-m", "pdops.router", "--deadline=none", "--prefill-timeout", "$T")
    ).options
    assert (own["deadline_s"], own["retries"], own["keepalive_s"]) == ("unlimited", "0", "0")
    assert "prefill_timeout_s" not in own
    shown = settings_facts(Settings().shown())
    assert {key: shown[key] for key in DEFAULTS} == DEFAULTS
    assert settings_facts({}) == settings_facts([]) == {}


def test_what_workers_were_given_beside_the_server_is_seen(tmp_path: Path) -> None:
    _fake(tmp_path, 10, 1, {"UCX_TLS": "tcp"}, ("vllm", "serve"))
    _fake(tmp_path, 11, 10, {"UCX_TLS": "rc", "UCX_RCACHE_MAX_UNRELEASED": "1024"})
    _fake(tmp_path, 12, 1, {"UCX_OTHER": "x"})
    read = ProcReader(tmp_path).read(10)
    assert read.environ == {"UCX_TLS": "tcp", "UCX_RCACHE_MAX_UNRELEASED": "1024"}
    assert list(ProcReader(tmp_path).descendants(10)) == [11]


def test_a_listener_is_found_by_address_and_port(tmp_path: Path) -> None:
    holder = _fake(tmp_path, 10, 1, {})
    (holder / "fd" / "3").symlink_to("socket:[4001]")
    reader = ProcReader(tmp_path)
    assert reader.listener("127.0.0.1", 8000) == 10
    assert reader.listener("", 8000) == 10
    assert reader.listener("10.0.0.1", 8000) is None
    assert reader.listener("127.0.0.1", 8001) is None
    assert listening(TCP, "10.0.0.1", 8001) == ["4002"]
    assert listening(TCP6, "127.0.0.1", 8002) == ["4004"]
    assert listening(TCP6, "127.0.0.1", 8003) == ["4005"]


@pytest.mark.skipif(not Path("/proc/self/net/tcp").exists(), reason="no /proc on this system")
def test_our_own_process_is_found_by_its_port() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        assert ProcReader().listener("127.0.0.1", port, beside="self") == os.getpid()
    assert ProcReader().same_network(os.getpid())
    assert ProcReader().read(os.getpid()).argv


def test_a_process_that_is_gone_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        ProcReader(tmp_path).read(99)
    assert ProcReader(tmp_path / "none").pids() == []
