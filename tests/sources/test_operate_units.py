"""`operate:` of an inventory: which units are which workers, who is a spare, and what is said about a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.errors import InventoryError
from pdops.model.cluster import Role
from pdops.sources.inventory import parse_inventory
from pdops.sources.operate_units import Spare

BASE = """\
version: 1
cluster: c
workers:
  - {id: prefill-0, role: prefill, url: "http://10.0.0.1:8000", engine: vllm}
  - {id: decode-0, role: decode, url: "http://10.0.0.2:8000", engine: vllm}
  - {id: router-0, role: router, url: "http://10.0.0.3:8080", engine: sglang_router}
  - {id: store-0, role: kvstore, url: "http://10.0.0.4:50051", metrics: "http://10.0.0.4:9003/metrics", engine: mooncake}
operate:
"""
SYSTEMD = "  systemd: {kv_lease_s: 60, units: {prefill-0: pd-prefill@0.service, decode-0: pd-decode@0.service%s}}\n"


def test_units_spares_and_a_bypass_arrive() -> None:
    text = (
        BASE
        + SYSTEMD % ", decode-1: pd-decode@1.service"
        + (
            '  spare: [{id: decode-1, role: decode, url: "http://10.0.0.5:8000"}]\n'
            '  lmcache: {store: store-0, urls: ["http://127.0.0.1:6999", "http://127.0.0.1:7000"]}\n'
        )
    )
    units = parse_inventory(text).units
    assert units is not None
    assert (units.supervisor, units.names["decode-1"], units.kv_lease_s) == ("systemd", "pd-decode@1.service", 60.0)
    assert units.spares == (Spare(id="decode-1", role=Role.DECODE, url="http://10.0.0.5:8000"),)
    assert (units.lmcache_store, len(units.lmcache_urls), units.lmcache_backend) == (
        "store-0",
        2,
        "RemoteBackend",
    )
    assert "decode-1" not in {w.id for w in parse_inventory(text).cluster.workers}


def test_a_compose_file_is_beside_the_inventory() -> None:
    text = BASE + "  compose: {file: compose.yaml, project: pd, services: {decode-0: decode}}\n"
    units = parse_inventory(text, "/srv/pd/pdops.yaml").units
    assert units is not None
    assert (units.compose_file, units.project) == (str(Path("/srv/pd/compose.yaml")), "pd")


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ("  systemd: {units: {decode-0: --force}}\n", "is not the name of a service unit"),
        ("  systemd: {units: {decode-0: ../x.service}}\n", "is not the name of a service unit"),
        ("  systemd: {units: {decode-0: ssh.socket}}\n", "is not the name of a service unit"),
        ("  compose: {file: c.yaml, project: pd, services: {decode-0: -x}}\n", "is not the name of a service"),
        ("  compose: {file: c.yaml, project: PD, services: {decode-0: d}}\n", "is not the name of a project"),
        ("  systemd: {units: {decode-9: a.service}}\n", "decode-9 is no prefill, decode or kvstore worker"),
        ("  systemd: {units: {router-0: a.service}}\n", "router-0 is no prefill, decode or kvstore worker"),
        ("  systemd: {units: {decode-0: a.service, prefill-0: a.service}}\n", "a.service is given twice"),
        ("  lmcache: {store: decode-0, urls: ['http://h:1']}\n", "decode-0 is no kvstore"),
        (SYSTEMD % "" + "  spare: [{id: decode-1, role: decode, url: 'http://h:1'}]\n", "nobody starts decode-1"),
        (SYSTEMD % "" + "  spare: [{id: decode-0, role: decode, url: 'http://h:1'}]\n", "is a worker already"),
        (
            SYSTEMD % "" + "  spare: [{id: extra, role: decode, url: 'http://h:1'}]\n",
            "is no name that a new worker gets",
        ),
        (
            SYSTEMD % "" + "  compose: {file: c.yaml, project: pd, services: {decode-0: d}}\n",
            "systemd and compose are given",
        ),
        (SYSTEMD % "" + "  kubernetes: {pools: {decode: StatefulSet/d}}\n", "kubernetes and systemd are given"),
        ("  shell: rm\n", "shell"),
    ],
)
def test_what_could_not_be_meant_is_refused_with_its_line(more: str, why: str) -> None:
    with pytest.raises(InventoryError) as caught:
        parse_inventory(BASE + more)
    assert why in str(caught.value)
    assert caught.value.where.startswith("pdops.yaml:")
    assert caught.value.hint


@given(st.text(max_size=40))
def test_no_text_becomes_an_option_or_a_path_of_a_program(text: str) -> None:
    quoted = "'" + text.replace("'", "''").replace("\n", " ") + "'"
    try:
        units = parse_inventory(BASE + f"  systemd: {{units: {{decode-0: {quoted}}}}}\n").units
    except InventoryError:
        return
    assert units is not None
    unit = units.names["decode-0"]
    assert unit.endswith(".service")
    assert not unit.startswith("-")
    assert not set(unit) & set("/ \t;|&$`'\"")
