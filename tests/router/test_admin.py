"""The admin API, readiness and what of them lasts."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from pdops.model.cluster import Role
from pdops.router import state
from pdops.router.settings import RouterError, Settings, WorkerSpec
from pdops.router.workers import seeded
from tests.router.doubles import bench


@pytest.mark.parametrize("bearer", ["", "wrong", "correct-horse2", "\u00e9"])
async def test_nothing_is_told_without_the_token(bearer: str) -> None:
    async with bench() as b:
        for method, path in (("GET", "/workers"), ("DELETE", "/workers/decode-0"), ("POST", "/drills")):
            headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
            async with b.client.request(method, f"/admin{path}", headers=headers) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert len(b.registry.workers) == 2


async def test_workers_come_and_go() -> None:
    async with bench(decodes=2) as b:
        url = b.registry.get("decode-1").spec.url
        assert (await b.admin("DELETE", "/workers/decode-1"))[0] == 200
        assert await b.value("worker_up", worker="decode-1") is None
        assert await b.value("pair_requests_total", dst="decode-1") is None
        status, shown = await b.admin("POST", "/workers", {"id": "decode-9", "role": "decode", "url": url, "zone": "z"})
        assert (status, shown["up"], shown["zone"]) == (201, True, "z")
        assert await b.value("pair_requests_total", dst="decode-9") == 0
        assert [w["id"] for w in (await b.admin("GET", "/workers"))[1]["workers"]] == [
            "prefill-0",
            "decode-0",
            "decode-9",
        ]
        assert (await b.admin("POST", "/workers", {"id": "decode-9", "role": "decode", "url": url}))[0] == 409


async def test_a_cordoned_worker_gets_no_new_request_and_ends_what_it_has() -> None:
    async with bench(decodes=2) as b:
        b.decode.gate = asyncio.Event()
        running = asyncio.create_task(b.ask())
        await b.until(lambda: b.decode.running == 1)
        assert (await b.admin("POST", "/workers/decode-0/cordon"))[1]["cordoned"] is True
        assert await b.value("worker_cordoned", worker="decode-0") == 1
        for _ in range(3):
            assert (await b.ask())[0] == 200
        assert (len(b.decode.bodies), len(b.decodes["decode-1"].bodies)) == (1, 3)
        b.decode.gate.set()
        assert (await running)[0] == 200
        assert (await b.admin("POST", "/workers/decode-0/uncordon"))[1]["cordoned"] is False


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("DELETE", "/workers/nobody", None, 404, "known are: prefill-0, decode-0"),
        ("POST", "/workers/nobody/cordon", None, 404, "no worker of that id"),
        ("DELETE", "/workers/..%2F..%2Fetc%2Fpasswd", None, 400, "not a worker id"),
        ("DELETE", "/workers/%2E%2E", None, None, ""),
        ("POST", "/workers", {"id": "../x", "role": "decode", "url": "http://h:1"}, 400, "not a worker id"),
        ("POST", "/workers", {"id": "client", "role": "decode", "url": "http://h:1"}, 400, "reserved"),
        ("POST", "/workers", {"id": 7, "role": "decode", "url": "http://h:1"}, 400, "not a worker id"),
        ("POST", "/workers", {"id": "x", "role": "router", "url": "http://h:1"}, 400, "expected prefill or decode"),
        ("POST", "/workers", {"id": "x", "role": "decode", "url": "file:///etc/passwd"}, 400, "address"),
        ("POST", "/workers", {"id": "x", "role": "decode", "url": "http://h:99999"}, 400, "address"),
        ("POST", "/workers", {"id": "x", "role": "decode", "url": "http://u:p@h:1"}, 400, "address"),
        ("POST", "/workers", {"id": "x", "role": "decode"}, 400, "address"),
        ("POST", "/workers", {"id": "x", "role": "decode", "url": "http://h:1", "port": 1}, 400, "unknown key 'port'"),
        ("POST", "/workers", ["x"], 400, "not a JSON object"),
        ("POST", "/workers", None, 400, "not JSON"),
        ("POST", "/drills", {"mode": "explode"}, 400, "mode is one of"),
        ("POST", "/drills", {"mode": []}, 400, "mode is one of"),
        ("POST", "/drills", {"mode": "abandon", "fraction": 2}, 400, "fraction"),
        ("POST", "/drills", {"mode": "abandon", "fraction": True}, 400, "fraction"),
        ("PUT", "/workers", {}, 405, "Method Not Allowed"),
    ],
)
async def test_bad_wishes_are_refused_with_the_reason(
    method: str, path: str, body: Any, status: int | None, message: str
) -> None:
    async with bench() as b:
        got, content = await b.admin(method, path, body)
        assert got == (status or got)
        assert got >= 400
        assert message in content["error"]["message"]
        assert list(b.registry.workers) == ["prefill-0", "decode-0"]


async def test_drills_are_off_unless_allowed() -> None:
    async with bench(Settings()) as b:
        assert (await b.admin("POST", "/drills", {"mode": "hold"}))[0] == 404
        assert (await b.admin("GET", "/drills"))[0] == 404


async def test_settings_are_shown() -> None:
    async with bench() as b:
        shown = (await b.admin("GET", "/settings"))[1]
        assert (shown["queue_limit"], shown["retries"], shown["fallback"]) == (1000, 0, "none")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({}, "nothing is to change"),
        ({"fallback": "decode-only"}, "cannot change while the router runs"),
        ({"policy": "random"}, "expected one of round-robin"),
        ({"policy": ["round-robin"]}, "expected one of round-robin"),
        ({"salt_ratio": 1.5}, "a share from 0 to 1"),
        ({"admit_ratio": True}, "a share from 0 to 1"),
        ({"salt_ratio": float("nan")}, "a share from 0 to 1"),
        ({"queue_limit": -1}, "a whole number from 0"),
        ({"max_inflight_prefill": 0}, "a whole number from 1"),
        ({"max_inflight_decode": 2.5}, "a whole number from 1"),
        ({"queue_limit": 5, "salt_ratio": "all"}, "a share from 0 to 1"),
    ],
)
async def test_settings_that_cannot_be_are_refused_and_none_of_them_changes(wanted: Any, message: str) -> None:
    async with bench() as b:
        before = (await b.admin("GET", "/settings"))[1]
        status, content = await b.admin("POST", "/settings", wanted)
        assert (status, message in content["error"]["message"]) == (400, True), content
        assert (await b.admin("GET", "/settings"))[1] == before


async def test_salted_requests_carry_a_salt_of_their_own_on_both_legs() -> None:
    async with bench() as b:
        assert (await b.ask(cache_salt="tenant"))[0] == 200
        assert [leg["cache_salt"] for leg in (b.prefill.bodies[0], b.decode.bodies[0])] == ["tenant", "tenant"]
        assert (await b.admin("POST", "/settings", {"salt_ratio": 1}))[1]["salt_ratio"] == 1
        for _ in range(2):
            assert (await b.ask(cache_salt="tenant"))[0] == 200
        salts = [leg["cache_salt"] for leg in b.prefill.bodies[1:]]
        assert salts == [leg["cache_salt"] for leg in b.decode.bodies[1:]]
        assert len(set(salts)) == 2
        assert all(s.startswith("tenant-") for s in salts)
        await b.admin("POST", "/settings", {"salt_ratio": 0})
        await b.ask()
        assert "cache_salt" not in b.prefill.bodies[-1]


async def test_a_closed_door_turns_new_requests_away_and_counts_them() -> None:
    async with bench() as b:
        await b.admin("POST", "/settings", {"admit_ratio": 0.0})
        assert (await b.ask())[0] == 503
        assert await b.value("rejected_total", reason="not_admitted") == 1
        await b.admin("POST", "/settings", {"admit_ratio": 1.0})
        assert (await b.ask())[0] == 200


async def test_a_policy_and_limits_hold_from_the_next_request_on() -> None:
    async with bench(Settings(max_inflight_decode=1, max_inflight_prefill=1), decodes=1) as b:
        b.decode.gate = asyncio.Event()
        first = asyncio.create_task(b.ask())
        await b.until(lambda: b.decode.running == 1)
        second = asyncio.create_task(b.ask())
        await b.until(lambda: b.router.queue.depth == 1)
        wanted = {"max_inflight_decode": 2, "policy": "least-loaded"}
        assert (await b.admin("POST", "/settings", wanted))[1]["policy"] == "least-loaded"
        await b.until(lambda: b.decode.running == 2)
        b.decode.gate.set()
        assert [(await first)[0], (await second)[0]] == [200, 200]


async def test_a_change_that_cannot_be_kept_says_so() -> None:
    def fail() -> None:
        raise RouterError("cannot write the state file", why="disk full")

    async with bench(persist=fail) as b:
        status, content = await b.admin("POST", "/workers/decode-0/cordon")
        assert (status, "will be lost at a restart" in content["error"]["message"]) == (507, True)


async def test_ready_tells_each_role_and_each_pair() -> None:
    async with bench(decodes=2) as b:
        async with b.client.get("/ready") as answer:
            content = await answer.json()
            assert (answer.status, content["ready"], content["mode"]) == (200, True, "prefill-decode")
        assert [(p["src"], p["dst"], p["ready"]) for p in content["pairs"]] == [
            ("prefill-0", "decode-0", True),
            ("prefill-0", "decode-1", True),
        ]
        await b.admin("POST", "/workers/decode-1/cordon")
        b.decode.health = 503
        await b.until(lambda: not b.registry.get("decode-0").up)
        async with b.client.get("/ready") as answer:
            content = await answer.json()
            assert (answer.status, content["ready"], content["reason"]) == (
                503,
                False,
                "no decode worker takes requests",
            )
        assert content["roles"]["decode"] == {"ready": False, "workers": 2, "up": 1, "cordoned": 1}
        assert [p["why"] for p in content["pairs"]] == ["decode-0: health answers 503", "decode-1 is cordoned"]
        async with b.client.get("/health") as answer:
            assert answer.status == 200, "alive all the same"


async def test_ready_names_decode_only() -> None:
    async with bench(Settings(fallback="decode-only")) as b:
        await b.admin("POST", "/workers/prefill-0/cordon")
        async with b.client.get("/ready") as answer:
            content = await answer.json()
        assert (content["ready"], content["mode"]) == (True, "decode-only")


P0 = WorkerSpec(id="p0", role=Role.PREFILL, url="http://h:1")
D0 = WorkerSpec(id="d0", role=Role.DECODE, url="http://h:2", zone="z")


def test_state_is_kept_for_its_owner_only_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "workers.json"
    registry = seeded([P0, D0])
    registry.cordon("d0", cordoned=True)
    registry.add(WorkerSpec(id="d1", role=Role.DECODE, url="http://h:3"))
    registry.remove("p0")
    state.write(path, registry)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["workers.json"]
    moved = WorkerSpec(id="d0", role=Role.DECODE, url="http://h:22")
    again = seeded([P0, moved], *state.read(path))
    assert {w.id: (w.spec.url, w.cordoned) for w in again.workers.values()} == {
        "d0": ("http://h:22", True),
        "d1": ("http://h:3", False),
    }, "removed stays removed, the command line says where, the file says cordoned"


def test_no_state_file_is_an_empty_one(tmp_path: Path) -> None:
    assert state.read(tmp_path / "none.json") == ([], set())


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "null", '{"schema": "pdops/router-state/v9", "workers": [], "removed": []}',
     '{"schema": "pdops/router-state/v1"}', '{"schema": "pdops/router-state/v1", "workers": [3], "removed": []}',
     '{"schema": "pdops/router-state/v1", "workers": [], "removed": ["../x"]}'],
)  # fmt: skip
def test_a_damaged_state_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "workers.json"
    path.write_text(text)
    with pytest.raises(RouterError, match="damaged"):
        state.read(path)


def test_a_worker_cannot_change_its_role_over_a_restart() -> None:
    changed = WorkerSpec(id="d0", role=Role.PREFILL, url="http://h:2")
    with pytest.raises(RouterError, match="changed its role"):
        seeded([changed], [(D0, False)])


@pytest.mark.parametrize("url", ["http://a..b:80", "http://.:80", f"http://{'a' * 70}.x", "http://h/\x1b[31m"])
async def test_an_address_no_resolver_can_write_is_refused(url: str) -> None:
    async with bench() as b:
        assert (await b.admin("POST", "/workers", {"id": "w", "role": "decode", "url": url}))[0] == 400
        assert "w" not in b.registry.workers


async def test_a_look_that_cannot_be_made_does_not_end_the_watch() -> None:
    async with bench() as b:
        b.registry.add(WorkerSpec(id="bad", role=Role.DECODE, url="http://a..b:80"))
        await b.until(lambda: b.registry.get("bad").up is False)
        b.decode.health = 500
        await b.until(lambda: b.registry.get("decode-0").up is False)


def test_a_state_file_of_endless_depth_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "w.json"
    path.write_text("[" * 100_000)
    with pytest.raises(RouterError, match="damaged"):
        state.read(path)
