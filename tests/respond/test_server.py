"""The webhook and the API over HTTP: who is let in, what is answered, and that it is on disk before that."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import io
import json
import os
import sqlite3
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from pdops.clock import WallClock
from pdops.errors import JournalError, RefusedError, UnreachableError
from pdops.model.report import Verdict
from pdops.respond import server as server_module
from pdops.respond.alerts import MAX_ALERTS, max_bytes
from pdops.respond.alone import alone
from pdops.respond.candidates import with_modes
from pdops.respond.listen import listen
from pdops.respond.server import app
from pdops.respond.service import SHOWN, Service, Settings
from pdops.respond.status import schema
from pdops.respond.tokens import Tokens
from pdops.runbook.journal import Event, Journal
from pdops.runbook.model import Mode
from tests.respond.kit import ADD, CLUSTER, RESTART, Scene, World, alert, body

TOKENS = {role: role * 4 for role in ("viewer", "operator", "approver", "admin")}
BOTH = {"add-prefill": Mode.AUTO, "restart-decode": Mode.APPROVE}
Ask = Callable[..., Any]


class Http:
    """A service that listens, and a client."""

    def __init__(self, client: TestClient[web.Request, web.Application], service: Service, scene: Scene) -> None:
        self.client, self.service, self.scene = client, service, scene

    async def ask(self, method: str, path: str, role: str | None = "admin", data: Any = None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {TOKENS[role]}"} if role is not None else {}
        async with self.client.request(method, path, headers=headers, data=data) as answer:
            return answer.status, json.loads(await answer.text())

    def events(self) -> list[Event]:
        with Journal(self.service.settings.journal, WallClock()) as other:
            return list(other.events(""))

    async def until(self, path: str, wanted: Callable[[Any], bool]) -> Any:
        """Ask until it is as wanted; the test's own time limit ends it."""
        while True:
            _, found = await self.ask("GET", path)
            if wanted(found):
                return found
            await asyncio.sleep(0.05)


def _settings(folder: Path, scene: Scene, **more: Any) -> Settings:
    (folder / "tokens").write_text("".join(f"{name}:{name}:{token}\n" for name, token in TOKENS.items()))
    World(folder / "world.json", scene)
    quick = [r.model_copy(update={"observe_s": 0.0, "cooldown_s": 0.0}) for r in (ADD, RESTART)]
    content: dict[str, Any] = {
        "cluster": CLUSTER, "journal": folder / "journal.db", "runbooks": with_modes(quick, BOTH), "look": scene.look,
        "backend": lambda: World(folder / "world.json", scene), "tokens": Tokens(folder / "tokens"), "watchdog_s": 0.0,
    }  # fmt: skip
    return Settings(**{**content, **more})


async def _client(service: Service) -> TestClient[web.Request, web.Application]:
    """A client of a server that leaves bodies packed, as the real one does."""
    server = TestServer(app(service))
    await server.start_server(auto_decompress=False)
    return TestClient(server)


@pytest.fixture
async def http(tmp_path: Path) -> AsyncIterator[Http]:
    scene = Scene()
    service = Service(_settings(tmp_path, scene), WallClock())
    await service.open()
    async with await _client(service) as client:
        yield Http(client, service, scene)
    await service.close()
    assert service.failure() is None


def _first(found: dict[str, Any], state: str) -> bool:
    return any(run["state"] == state for run in found["runs"])


async def test_an_alert_is_on_disk_when_it_is_answered_and_becomes_a_run(http: Http, tmp_path: Path) -> None:
    status, told = await http.ask("POST", "/alerts", "operator", body(alert()))
    assert (status, told) == (200, {"new": 1, "known": 0, "invalid": 0, "truncated": 0})
    with Journal(tmp_path / "journal.db", WallClock()) as other:
        assert [e.actor for e in other.events("") if e.kind == "delivered"] == ["operator"]
    await http.until("/runs", lambda found: _first(found, "done"))
    _, found = await http.ask("GET", "/status", "viewer")
    assert [(e["alert"], e["made"], e["firing"]) for e in found["episodes"]] == [("PDPrefillQueueing", "started", True)]


async def test_seven_deliveries_at_once_are_one_run(http: Http) -> None:
    answers = await asyncio.gather(*(http.ask("POST", "/alerts", "operator", body(alert())) for _ in range(7)))
    assert sorted(told["new"] for _, told in answers) == [0] * 6 + [1]
    await http.until("/runs", lambda found: _first(found, "done"))
    _, found = await http.ask("GET", "/runs")
    assert (len(found["runs"]), found["shown"], found["total"]) == (1, 1, 1)


async def test_when_the_journal_cannot_be_written_the_sender_is_told_to_come_again(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise JournalError("the journal cannot be used", why="disk full", hint="-")

    with monkeypatch.context() as full:
        full.setattr("pdops.respond.intake.Intake.take", fails)
        full.setattr("pdops.respond.intake.Intake.wrote_again", fails)
        status, told = await http.ask("POST", "/alerts", "operator", body(alert()))
        assert (status, "disk full" in told["error"]) == (503, True)
        follow = asyncio.create_task(http.service.follow())
        await asyncio.sleep(0)
        _, found = await http.ask("GET", "/status")
        assert found["ok"] is False
        assert any("of operator" in p and "HTTP 503" in p for p in found["problems"])
        assert any("cannot be written down: the journal cannot be used" in p for p in found["problems"])
    http.service.ask_soon()
    await http.until("/status", lambda found: not any("written down" in p for p in found["problems"]))
    assert any("now they can" in str(e.body.get("say")) for e in http.events())
    await http.ask("POST", "/alerts", "operator", body(alert()))
    await http.until("/status", lambda found: found["ok"])
    follow.cancel()
    await asyncio.gather(follow, return_exceptions=True)


async def test_an_approver_who_did_not_ask_approves_and_nobody_else(http: Http) -> None:
    http.scene.names("decode-down", "decode-1")
    await http.ask("POST", "/alerts", "approver", body(alert("PDDecodeWorkerDown")))
    found = await http.until("/runs", lambda found: _first(found, "planned"))
    run = found["runs"][0]["id"]
    assert (await http.ask("POST", f"/runs/{run}/approve", "operator"))[0] == 403
    status, told = await http.ask("POST", f"/runs/{run}/approve", "approver")
    assert (status, "somebody else" in told["error"]) == (409, True)
    assert (await http.ask("POST", f"/runs/{run}/approve", "admin"))[0] == 200
    await http.until("/runs", lambda found: _first(found, "done"))
    _, run_told = await http.ask("GET", f"/runs/{run}", "viewer")
    assert (run_told["requester"], run_told["approver"]) == ("approver", "admin")


async def test_what_waits_can_be_aborted_and_what_ended_cannot(http: Http) -> None:
    http.scene.names("decode-down", "decode-1")
    await http.ask("POST", "/alerts", "operator", body(alert("PDDecodeWorkerDown")))
    run = (await http.until("/runs", lambda found: _first(found, "planned")))["runs"][0]["id"]
    status, told = await http.ask("POST", f"/runs/{run}/abort", "operator")
    assert (status, told["state"]) == (200, "aborted")
    assert (await http.ask("POST", f"/runs/{run}/abort", "operator"))[0] == 409
    assert (await http.ask("POST", f"/runs/{run}/approve"))[0] == 409
    assert (await http.ask("POST", f"/runs/{run}/resume"))[0] == 409


async def test_a_held_run_goes_on_when_it_is_resumed(http: Http) -> None:
    http.scene.names("decode-down", "decode-1")
    await http.ask("POST", "/alerts", "operator", body(alert("PDDecodeWorkerDown")))
    run = (await http.until("/runs", lambda found: _first(found, "planned")))["runs"][0]["id"]
    # Known when it was planned, and not when it begins.
    found, http.scene.found, http.scene.verdict = http.scene.found, (), Verdict.UNKNOWN
    await http.ask("POST", f"/runs/{run}/approve")
    await http.until(f"/runs/{run}", lambda found: found["state"] == "held")
    http.scene.found, http.scene.verdict = found, Verdict.FAULT
    assert (await http.ask("POST", f"/runs/{run}/resume", "operator"))[0] == 202
    await http.until(f"/runs/{run}", lambda found: found["state"] == "done")


async def test_an_operator_freezes_and_an_admin_lets_go_on(http: Http) -> None:
    status, told = await http.ask("POST", "/freeze", "operator", json.dumps({"why": "maintenance"}))
    assert (status, told) == (200, {"frozen": "frozen by operator: maintenance"})
    await http.ask("POST", "/alerts", "operator", body(alert()))
    found = await http.until("/status", lambda found: found["episodes"][0]["made"] is not None)
    assert (found["episodes"][0]["made"], found["frozen"]) == ("frozen", "frozen by operator: maintenance")
    assert (await http.ask("POST", "/thaw", "operator"))[0] == 403
    assert (await http.ask("POST", "/thaw", "admin")) == (200, {"frozen": None})


@pytest.mark.parametrize(
    ("method", "path", "least"),
    [
        ("GET", "/status", "viewer"),
        ("GET", "/runs", "viewer"),
        ("GET", "/runs/x", "viewer"),
        ("POST", "/alerts", "operator"),
        ("POST", "/runs/x/approve", "approver"),
        ("POST", "/runs/x/abort", "operator"),
        ("POST", "/runs/x/resume", "operator"),
        ("POST", "/freeze", "operator"),
        ("POST", "/thaw", "admin"),
    ],
)
async def test_every_route_needs_its_role(method: str, path: str, least: str, http: Http) -> None:
    assert (await http.ask(method, path, None))[0] == 401
    order = list(TOKENS)
    for role in order:
        status, _ = await http.ask(method, path, role, "{}" if path == "/freeze" else None)
        assert (status == 403) is (order.index(role) < order.index(least)), role


async def test_health_and_metrics_need_no_token(http: Http) -> None:
    async with http.client.get("/healthz") as answer:
        assert answer.status == 200
    await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse"), truncated=3))
    await http.until("/status", lambda found: found["episodes"][0]["made"] == "no-runbook")
    async with http.client.get("/metrics") as answer:
        families = {f.name: f for f in text_string_to_metric_families(await answer.text())}
    told = {s.labels["result"]: s.value for s in families["pdops_respond_alerts"].samples}
    assert told == {"new": 1, "known": 0, "invalid": 0, "truncated": 3}
    made = {s.labels["made"]: s.value for s in families["pdops_respond_episodes"].samples}
    assert made["no-runbook"] == 1
    assert "pdops_respond_watchdog_up" not in families, "nobody watches"


async def test_alerts_beyond_those_that_are_listed_are_counted(http: Http) -> None:
    many = [alert("Unknown", worker=f"w{n}") for n in range(SHOWN + 7)]
    await http.ask("POST", "/alerts", "operator", body(*many))
    found = await http.until("/status", lambda status: status["firing"]["no-runbook"] == SHOWN + 7)
    assert len(found["episodes"]) == found["episodes_shown"] == SHOWN
    assert found["episodes_total"] == SHOWN + 7
    async with http.client.get("/metrics") as answer:
        families = {f.name: f for f in text_string_to_metric_families(await answer.text())}
    assert sum(s.value for s in families["pdops_respond_episodes"].samples) == SHOWN + 7


async def test_a_status_is_as_its_schema_says(http: Http) -> None:
    await http.ask("POST", "/alerts", "operator", body(alert(), truncated=1))
    await http.until("/runs", lambda found: _first(found, "done"))
    _, found = await http.ask("GET", "/status")
    jsonschema.validate(found, schema())
    assert found["ok"] is False
    assert found["problems"] == ["1 alerts were left out by Alertmanager: set max_alerts: 0"]


async def test_bodies_that_are_too_large_too_many_or_compressed_bombs_are_turned_away(http: Http) -> None:
    assert (await http.ask("POST", "/alerts", "operator", io.BytesIO(b"x" * (max_bytes(MAX_ALERTS) + 1))))[0] == 413
    many = [alert(worker=str(n)) for n in range(MAX_ALERTS + 1)]
    assert (await http.ask("POST", "/alerts", "operator", body(*many)))[0] == 413
    packed = zlib.compress(b" " * (64 << 20))
    headers = {"Authorization": f"Bearer {TOKENS['operator']}", "Content-Encoding": "deflate"}
    async with http.client.post("/alerts", data=packed, headers=headers) as answer:
        assert answer.status in (400, 413)
    assert (await http.ask("GET", "/status"))[0] == 200


@pytest.mark.parametrize(
    ("sent", "code"),
    [(b"no json", 400), (b"[]", 422), (body(*[alert(worker=str(n)) for n in range(MAX_ALERTS + 1)]), 413)],
)
async def test_a_delivery_that_was_refused_is_a_problem_until_one_is_taken(http: Http, sent: bytes, code: int) -> None:
    assert (await http.ask("GET", "/status"))[1]["ok"] is True
    status, told = await http.ask("POST", "/alerts", "operator", sent)
    assert status == code
    await http.ask("POST", "/alerts", "admin", body(alert("SomethingElse")))
    (problem,) = (await http.ask("GET", "/status"))[1]["problems"]
    assert "a delivery of operator" in problem
    assert f"HTTP {code}: {told['error']}" in problem
    for nothing in (body(alert("Watchdog")), body()):
        assert (await http.ask("POST", "/alerts", "operator", nothing))[0] == 200
        assert (await http.ask("GET", "/status"))[1]["problems"] == [problem]
    await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse")))
    assert (await http.ask("GET", "/status"))[1]["problems"] == []


async def test_a_delivery_without_a_valid_token_is_a_problem_and_asks_nobody(http: Http) -> None:
    assert (await http.ask("POST", "/alerts", None, body(alert())))[0] == 401
    (problem,) = (await http.ask("GET", "/status"))[1]["problems"]
    assert problem.startswith("a delivery at ")
    assert "HTTP 401" in problem
    assert (await http.ask("POST", "/runs/x/approve", None))[0] == 401
    await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse")))
    assert (await http.ask("GET", "/status"))[1]["problems"] == [problem], "another's good delivery does not mend it"


async def test_one_who_may_not_deliver_is_a_problem_while_the_tokens_know_them(http: Http) -> None:
    assert (await http.ask("POST", "/alerts", "viewer", body(alert())))[0] == 403
    (problem,) = (await http.ask("GET", "/status"))[1]["problems"]
    assert "of viewer" in problem
    assert "HTTP 403" in problem
    path = http.service.settings.tokens.path
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("viewer")))
    assert (await http.ask("GET", "/status"))[1]["problems"] == []


@pytest.mark.parametrize("replaced", [False, True])
async def test_alerts_are_not_taken_into_a_journal_that_is_not_in_its_place(replaced: bool, http: Http) -> None:
    await http.ask("POST", "/alerts", "operator", body(alert()))
    await http.until("/runs", lambda found: _first(found, "done"))  # every thread has opened it
    path = http.service.settings.journal
    aside = path.with_name("aside.db")
    for end in ("", "-wal", "-shm"):
        os.rename(f"{path}{end}", f"{aside}{end}")
    if replaced:
        Journal(path, WallClock()).close()
    assert (await http.ask("GET", "/status"))[1]["ok"] is False, "before anything is delivered"
    status, told = await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse")))
    assert (status, "put back the file" in told["hint"]) == (503, True)
    _, found = await http.ask("GET", "/status")
    assert any("the journal cannot be used" in p and "put back the file" in p for p in found["problems"])
    with Journal(aside, WallClock()) as other:
        assert not any("SomethingElse" in str(e.body) for e in other.events())
    for end in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{aside}{end}", f"{path}{end}")
    assert (await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse"))))[1]["new"] == 1


@pytest.mark.parametrize("replaced", [False, True])
async def test_a_journal_that_was_moved_without_its_log_is_said_as_moved(replaced: bool, http: Http) -> None:
    await http.ask("POST", "/alerts", "operator", body(alert()))
    await http.until("/runs", lambda found: _first(found, "done"))  # every thread has opened it
    path = http.service.settings.journal
    path.unlink()
    if replaced:
        path.touch()
    status, told = await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse")))
    assert (status, "put back the file" in told["hint"]) == (503, True)
    assert "another file was put in its place" in told["error"] or "it was moved away or deleted" in told["error"]
    # What SQLite still gives of it decides whether there is a status or an error.
    status, told = await http.ask("GET", "/status")
    assert status == 503 or told["ok"] is False


@pytest.mark.parametrize(("coding", "whole"), [("gzip", True), ("deflate", True), ("gzip", False)])
async def test_a_body_that_cannot_be_unpacked_is_refused_and_said(
    coding: str, whole: bool, http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    headers = {"Authorization": f"Bearer {TOKENS['operator']}", "Content-Encoding": coding}
    sent = b"\xff garbage" * 9 if whole else gzip.compress(body(alert()))[:40]
    async with http.client.post("/alerts", data=sent, headers=headers) as answer:
        assert (answer.status, "error" in json.loads(await answer.text())) == (400, True)
    (problem,) = (await http.ask("GET", "/status"))[1]["problems"]
    assert "HTTP 400" in problem
    assert http.service.answers[400] == 1
    assert not [r for r in caplog.records if r.exc_info]


@pytest.mark.parametrize("coding", ["gzip", "deflate", "identity"])
async def test_a_packed_delivery_is_taken(coding: str, http: Http) -> None:
    pack: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
    headers = {"Authorization": f"Bearer {TOKENS['operator']}", "Content-Encoding": coding}
    async with http.client.post("/alerts", data=pack[coding](body(alert())), headers=headers) as answer:
        assert (answer.status, (await answer.json())["new"]) == (200, 1)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, br"])
async def test_a_coding_that_is_not_understood_is_answered_with_those_that_are(coding: str, http: Http) -> None:
    runner = await listen(app(http.service), "127.0.0.1", 0)
    host, port = runner.addresses[0][:2]
    headers = {"Authorization": f"Bearer {TOKENS['operator']}", "Content-Encoding": coding}
    async with (
        ClientSession() as session,
        session.post(f"http://{host}:{port}/alerts", data=io.BytesIO(b"packed"), headers=headers) as answer,
    ):
        assert (answer.status, answer.content_type) == (415, "application/json")
        assert answer.headers["Accept-Encoding"] == "gzip, deflate, identity"
        assert coding in (await answer.json())["error"]
    await runner.cleanup()


async def test_a_locked_journal_is_said_while_it_is_locked_and_loses_nothing(
    http: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdops.respond.service.WRITE_S", 0.2)
    headers = {"Authorization": f"Bearer {TOKENS['operator']}"}
    with contextlib.closing(sqlite3.connect(http.service.settings.journal, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with http.client.post("/alerts", data=body(alert()), headers=headers) as answer:
            assert (answer.status, answer.headers["Retry-After"]) == (503, "5")
            assert "locked" in (await answer.json())["error"]
        other.execute("ROLLBACK")
    status, told = await http.ask("POST", "/alerts", "operator", body(alert()))
    assert (status, told["new"] + told["known"]) == (200, 1)


@pytest.mark.parametrize(
    ("head", "tail"),
    [
        (f"Authorization: Bearer {TOKENS['operator']}\r\nContent-Length: 99", b""),
        ("Content-Length: 99", b""),
        ("Content-Encoding: gzip\r\nContent-Length: 99", b"garbage"),
        ("Content-Encoding: br\r\nContent-Length: 99", b"garbage"),
    ],
)
async def test_a_client_that_goes_in_mid_body_leaves_no_traceback(
    head: str, tail: bytes, http: Http, caplog: pytest.LogCaptureFixture
) -> None:
    runner = await listen(app(http.service), "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*runner.addresses[0][:2])
    writer.write(f"POST /alerts HTTP/1.1\r\nHost: x\r\n{head}\r\n\r\n".encode() + b"abc")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.write(tail)
    await asyncio.sleep(0.05)
    writer.transport.abort()
    await asyncio.sleep(0.05)
    await runner.cleanup()
    assert not [r for r in caplog.records if r.exc_info]
    assert (await http.ask("GET", "/healthz"))[0] == 200


async def test_an_alert_of_a_delivery_that_cannot_be_read_is_a_problem_until_all_can(http: Http) -> None:
    await http.ask("POST", "/alerts", "operator", body({**alert(), "startsAt": "yesterday"}, alert("SomethingElse")))
    (problem,) = (await http.ask("GET", "/status"))[1]["problems"]
    assert problem.startswith("1 alerts of the delivery of operator at ")
    assert "cannot be read" in problem
    await http.ask("POST", "/alerts", "operator", body(alert("Watchdog")))
    assert (await http.ask("GET", "/status"))[1]["problems"] == [problem]
    await http.ask("POST", "/alerts", "operator", body(alert("SomethingElse")))
    assert (await http.ask("GET", "/status"))[1]["ok"] is True


async def test_a_body_that_is_too_large_is_answered_with_the_limit_and_how_to_raise_it(tmp_path: Path) -> None:
    scene = Scene()
    service = Service(_settings(tmp_path, scene, max_alerts=2), WallClock())
    await service.open()
    async with await _client(service) as client:
        http = Http(client, service, scene)
        for sent in (io.BytesIO(b"x" * 4201), body(*[alert(worker=str(n)) for n in range(3)])):
            status, told = await http.ask("POST", "/alerts", "operator", sent)
            assert status == 413
            assert "2 alerts and 4200 bytes" in told["hint"]
            assert "--max-alerts" in told["hint"]
    await service.close()


async def test_what_was_never_heard_is_not_well(tmp_path: Path) -> None:
    service = Service(_settings(tmp_path, Scene(), alertmanager="http://127.0.0.1:9", watchdog_s=300.0), WallClock())
    await service.open()
    found = await service.status()
    assert (found.ok, found.alertmanager.state, found.watchdog.state) == (False, "waiting", "waiting")
    assert found.problems == (
        "the Watchdog alert has not come yet; nothing starts by itself", "Alertmanager has not said yet what fires",
    )  # fmt: skip
    await service.close()


async def test_a_body_that_does_not_come_is_not_waited_for(http: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "BODY_S", 0.05)
    server = http.client.server
    reader, writer = await asyncio.open_connection(server.host, server.port)
    head = (
        f"POST /alerts HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['operator']}\r\nContent-Length: 9\r\n\r\n"
    )
    writer.write(head.encode())
    await writer.drain()
    assert b" 408 " in await reader.readline()
    writer.close()


@pytest.mark.parametrize("path", ["/nothing", "/runs/..%2f..%2fetc", "/runs/%00", "/alerts/x", f"/runs/{'a' * 200}"])
async def test_unknown_paths_are_json_errors(path: str, http: Http) -> None:
    status, told = await http.ask("GET", path)
    assert (status, "error" in told) == (404, True)


async def test_an_unknown_run_is_not_found(http: Http) -> None:
    status, told = await http.ask("POST", "/runs/nobody/approve")
    assert (status, told["error"].startswith("no such run")) == (404, True)


@pytest.mark.parametrize("sent", [b"[", b"[]", b'{"why": 1}', b"\xff"])
async def test_a_reason_that_is_none_is_told(sent: bytes, http: Http) -> None:
    status, told = await http.ask("POST", "/freeze", "operator", sent)
    assert (status in (400, 422), told["hint"]) == (True, 'send {"why": "TEXT"}, or no body')
    assert (await http.ask("GET", "/status"))[1]["frozen"] is None


async def test_the_server_lives_whatever_is_sent(http: Http) -> None:
    loop = asyncio.get_running_loop()
    drawn: list[bytes] = []

    @settings(max_examples=150, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300) | st.builds(_like, st.dictionaries(st.text(max_size=9), st.text(max_size=40))))
    def collect(sent: bytes) -> None:
        drawn.append(sent)

    await loop.run_in_executor(None, collect)
    for sent in drawn:
        status, _ = await http.ask("POST", "/alerts", "operator", sent)
        assert status in (200, 400, 413, 422)
    assert (await http.ask("GET", "/status"))[0] == 200
    assert http.service.failure() is None


def _like(labels: dict[str, str]) -> bytes:
    return body({**alert(), "labels": {"alertname": "PDPrefillQueueing", **labels}})


async def test_reading_bytes_that_are_no_http_does_not_end_the_server(http: Http) -> None:
    server = http.client.server
    for sent in (
        b"\x00\xff\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /alerts HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    ):
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(sent)
        await writer.drain()
        assert b" 400 " in await reader.readline()
        writer.close()
    assert (await http.ask("GET", "/status"))[0] == 200


async def test_tokens_that_change_count_from_the_next_request(http: Http) -> None:
    path = http.service.settings.tokens.path
    path.write_text(path.read_text() + f"zoe:viewer:{'z' * 32}\n")
    async with http.client.get("/status", headers={"Authorization": f"Bearer {'z' * 32}"}) as answer:
        assert answer.status == 200
    path.write_text("broken")
    _, found = await http.ask("GET", "/status")
    assert any("tokens" in problem for problem in found["problems"])


async def test_a_thread_that_ends_is_said_by_its_health(tmp_path: Path) -> None:
    scene = Scene()

    def broken() -> World:
        raise ValueError("a defect")

    service = Service(replace(_settings(tmp_path, scene), backend=broken), WallClock())
    await service.open()
    async with await _client(service) as client:
        while service.failure() is None:
            await asyncio.sleep(0.01)
        async with client.get("/healthz") as answer:
            assert answer.status == 503
    await service.close()


def test_one_process_answers_the_alerts_of_a_cluster(tmp_path: Path) -> None:
    journal = tmp_path / "journal.db"
    with (
        alone(journal, "a"),
        alone(journal, "b"),
        pytest.raises(RefusedError, match="another process"),
        alone(journal, "a"),
    ):
        pass
    with alone(journal, "a"):
        pass


class Alerting:
    """A double of Alertmanager's API that answers what is set."""

    def __init__(self) -> None:
        self.status, self.listed, self.asked = 200, b"[]", 0

    async def answer(self, _: web.Request) -> web.Response:
        self.asked += 1
        return web.Response(status=self.status, body=self.listed, content_type="application/json")

    async def receivers(self, _: web.Request) -> web.Response:
        return web.json_response([{"name": "default"}, {"name": "pdops"}])


def _listed(*alerts: dict[str, Any], state: str = "active") -> bytes:
    now = "2026-11-30T00:00:00.000Z"
    items = [
        {
            **a,
            "status": {"state": state, "silencedBy": [], "inhibitedBy": []},
            "updatedAt": now,
            "receivers": [{"name": "pdops"}],
        }
        for a in alerts
    ]
    return json.dumps(items).encode()


async def test_what_alertmanager_will_not_send_again_is_asked_for(tmp_path: Path) -> None:
    scene, double = Scene(), Alerting()
    made = web.Application()
    made.router.add_get("/api/v2/alerts", double.answer)
    async with TestServer(made) as manager:
        url = f"http://{manager.host}:{manager.port}"
        service = Service(_settings(tmp_path, scene, alertmanager=url), WallClock())
        await service.open()
        double.listed = _listed(alert())
        await service.reconcile()
        await service.reconcile()
        while not any(e.made == "started" for e in (await service.status()).episodes):
            await asyncio.sleep(0.02)
        assert (await service.status()).alertmanager.state == "ok"
        for status, listed in ((500, b"[]"), (200, b"<html>"), (200, b'{"a": 1}')):
            double.status, double.listed = status, listed
            with pytest.raises(Exception, match="does not say what fires"):
                await service.reconcile()
            assert (await service.status()).alertmanager.state == "failing"
        await service.close()


async def test_what_alertmanager_lists_and_cannot_be_read_is_a_problem_until_it_can(tmp_path: Path) -> None:
    double = Alerting()
    async with _manager(double) as url:
        service = Service(_settings(tmp_path, Scene(), alertmanager=url), WallClock())
        await service.open()
        double.listed = _listed({**alert(), "fingerprint": "-"})
        await service.reconcile()
        (problem,) = (await service.status()).problems
        assert problem.startswith("1 alerts that Alertmanager lists cannot be read")
        service.troubles.refused("operator", 413, "too large")
        await service.reconcile()
        assert len((await service.status()).problems) == 2, "a list that cannot be read in full mends nothing"
        double.listed = _listed()
        await service.reconcile()
        assert (await service.status()).ok
        service.troubles.refused("", 401, "no valid token")
        await service.reconcile()
        assert not (await service.status()).ok, "who was not let in still is not"
        await service.close()


async def test_a_receiver_that_alertmanager_does_not_have_is_said_and_nothing_is_gone(tmp_path: Path) -> None:
    double = Alerting()
    async with _manager(double) as url:
        service = Service(_settings(tmp_path, Scene(), alertmanager=url, receiver="pdop"), WallClock())
        await service.open()
        with pytest.raises(UnreachableError, match="no receiver 'pdop'; did you mean 'pdops'"):
            await service.reconcile()
        assert double.asked == 0, "what is routed to nobody is not taken for all that fires"
        assert not (await service.status()).ok
        await service.close()


@asynccontextmanager
async def _manager(double: Alerting) -> AsyncIterator[str]:
    made = web.Application()
    made.router.add_get("/api/v2/alerts", double.answer)
    made.router.add_get("/api/v2/receivers", double.receivers)
    async with TestServer(made) as manager:
        yield f"http://{manager.host}:{manager.port}"


async def test_what_a_cut_group_leaves_out_is_asked_for_at_once(tmp_path: Path) -> None:
    scene, double = Scene(), Alerting()
    made = web.Application()
    made.router.add_get("/api/v2/alerts", double.answer)
    async with TestServer(made) as manager:
        url = f"http://{manager.host}:{manager.port}"
        service = Service(_settings(tmp_path, scene, alertmanager=url), WallClock())
        await service.open()
        follow = asyncio.create_task(service.follow())
        async with await _client(service) as client:
            while double.asked < 1:
                await asyncio.sleep(0.01)
            double.listed = _listed(alert(), alert(worker="prefill-1"))
            await Http(client, service, scene).ask("POST", "/alerts", "operator", body(alert(), truncated=1))
            while len((await service.status()).episodes) < 2:
                await asyncio.sleep(0.01)
            assert (await service.status()).ok
        follow.cancel()
        await asyncio.gather(follow, return_exceptions=True)
        await service.close()
