"""Pushing, against a double of Grafana's HTTP API that keeps dashboards in memory and records every request."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pdops.cli.dashboards import command
from pdops.errors import UnreachableError, UsageError
from pdops.grafana.dashboards import client
from pdops.grafana.dashboards.build import files
from pdops.grafana.dashboards.client import connect
from pdops.grafana.dashboards.push import plan, push

TOKEN = "glsa_0123456789"


class GrafanaDouble(ThreadingHTTPServer):
    """Dashboards by uid with versions, folders by uid; a write over another version than the stored one is a 412."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.folders: dict[str, str] = {}
        self.annotations: list[dict[str, Any]] = []
        self.requests: list[tuple[str, str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def writes(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.requests if method != "GET"]


class Handler(BaseHTTPRequestHandler):
    server: GrafanaDouble

    def do_GET(self) -> None:
        self.answer("GET", None)

    def do_POST(self) -> None:
        self.answer("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

    def answer(self, method: str, body: Any) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((method, path, self.headers.get("Authorization")))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.send(401, {"message": "Invalid API key"})
        kind, _, uid = path.removeprefix("/api/").rpartition("/")
        if (method, path) == ("POST", "/api/dashboards/db"):
            return self.write(body)
        if (method, path) == ("POST", "/api/folders"):
            self.server.folders[body["uid"]] = body["title"]
            return self.send(200, body)
        if (method, path) == ("POST", "/api/annotations"):
            self.server.annotations.append(body)
            return self.send(200, {"id": 1})
        if (method, path) == ("GET", "/api/search"):
            return self.send(200, [{"uid": u, "title": d["title"]} for u, d in self.server.dashboards.items()])
        if (method, kind) == ("GET", "dashboards/uid") and uid in self.server.dashboards:
            return self.send(200, {"dashboard": self.server.dashboards[uid], "meta": {}})
        if (method, kind) == ("GET", "folders") and uid in self.server.folders:
            return self.send(200, {"uid": uid, "title": self.server.folders[uid]})
        return self.send(404, {"message": "not found"})

    def write(self, body: Any) -> None:
        document = body["dashboard"]
        there = self.server.dashboards.get(document["uid"])
        if there is not None and not body["overwrite"] and there["version"] != document.get("version"):
            return self.send(412, {"message": "The dashboard has been changed by someone else"})
        version = 1 if there is None else there["version"] + 1
        self.server.dashboards[document["uid"]] = {**document, "id": 7, "version": version}
        return self.send(200, {"status": "success", "uid": document["uid"], "version": version})

    def send(self, status: int, body: Any) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def grafana() -> Iterator[GrafanaDouble]:
    server = GrafanaDouble()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n")
    return path


@pytest.fixture(params=["grafana-client", "grafana-api"])
def package(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Use one of the two client packages, as if only that one were installed."""
    if request.param == "grafana-api":
        for name in ("grafana_client", "grafana_client.api", "grafana_client.client"):
            monkeypatch.setitem(sys.modules, name, None)
    return str(request.param)


def test_a_first_push_makes_the_folder_and_all_six(package: str, grafana: GrafanaDouble, token: Path) -> None:
    server, made = connect(grafana.url, token), files()
    assert push(server, made, plan(server, made), "pdops") == 6
    assert set(grafana.dashboards) == {f"pdops-{name.removesuffix('.json')}" for name in made}
    assert grafana.folders == {"pdops": "pdops"}


def test_a_second_push_writes_nothing(package: str, grafana: GrafanaDouble, token: Path) -> None:
    server, made = connect(grafana.url, token), files()
    push(server, made, plan(server, made), "pdops")
    before = len(grafana.writes)
    steps = plan(server, made)
    assert {s.change for s in steps} == {"same"}
    assert push(server, made, steps, "pdops") == 0
    assert len(grafana.writes) == before


def test_what_somebody_edited_is_shown_and_put_back(grafana: GrafanaDouble, token: Path) -> None:
    server, made = connect(grafana.url, token), files()
    push(server, made, plan(server, made), "pdops")
    grafana.dashboards["pdops-overview"]["title"] = "mine"
    (step,) = [s for s in plan(server, made) if s.change == "changed"]
    assert any('-  "title": "mine"' in line or '- "title": "mine"' in line for line in step.diff)
    assert push(server, made, (step,), "pdops") == 1
    assert grafana.dashboards["pdops-overview"]["title"] == "PD overview"


def test_a_dashboard_that_is_not_ours_is_left_alone(grafana: GrafanaDouble, token: Path) -> None:
    theirs = {"uid": "pdops-decode", "title": "hand made", "tags": [], "version": 3}
    grafana.dashboards["pdops-decode"] = theirs
    server, made = connect(grafana.url, token), files()
    steps = plan(server, made)
    assert {s.uid for s in steps if s.change == "foreign"} == {"pdops-decode"}
    push(server, made, steps, "pdops")
    assert grafana.dashboards["pdops-decode"] == theirs


def test_a_rivals_change_between_reading_and_writing_is_not_lost(grafana: GrafanaDouble, token: Path) -> None:
    server, made = connect(grafana.url, token), files()
    push(server, made, plan(server, made), "pdops")
    grafana.dashboards["pdops-overview"]["title"] = "mine"
    steps = plan(server, made)
    grafana.dashboards["pdops-overview"]["version"] += 1
    with pytest.raises(UnreachableError, match="412") as refused:
        push(server, made, steps, "pdops")
    assert "changed it meanwhile" in (refused.value.hint or "")
    assert grafana.dashboards["pdops-overview"]["title"] == "mine"


def test_all_five_questions_are_answered(package: str, grafana: GrafanaDouble, token: Path) -> None:
    server = connect(grafana.url, token)
    server.folder("pdops", "pdops")
    server.folder("pdops", "another title")
    assert grafana.folders == {"pdops": "pdops"}
    assert server.get("nothing") is None
    server.annotate("runbook scale-out-decode: done", ["pdops"], 1_700_000_000_000)
    assert grafana.annotations[0]["time"] == 1_700_000_000_000
    assert grafana.annotations[0]["tags"] == ["pdops"]
    grafana.dashboards["x"] = {"uid": "x", "title": "X"}
    assert [d["uid"] for d in server.search("pdops")] == ["x"]


def test_a_dry_run_shows_all_and_writes_nothing(grafana: GrafanaDouble, token: Path) -> None:
    done = CliRunner().invoke(command, ["push", "--url", grafana.url, "--token-file", str(token), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert done.output.count("new     pdops-") == 6
    assert "nothing was written" in done.output
    assert grafana.writes == []


def test_a_wrong_token_is_said_with_what_to_do(package: str, grafana: GrafanaDouble, tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_text("glsa_wrong")
    with pytest.raises(UnreachableError, match="401") as refused:
        plan(connect(grafana.url, path), files())
    assert "token" in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("url", "content", "said"),
    [
        ("http://grafana.example", TOKEN, "plain HTTP"),
        ("grafana.example", TOKEN, "no address"),
        ("https://user:secret@grafana.example", TOKEN, "carries a secret"),
        ("https://grafana.example?token=x", TOKEN, "carries a secret"),
        ("https://grafana.example", "", "no token"),
        ("https://grafana.example", "two words", "no token"),
    ],
)
def test_what_is_not_safe_is_refused_before_anything_is_sent(url: str, content: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text(content)
    with pytest.raises(UsageError, match=said) as refused:
        connect(url, path)
    assert refused.value.hint
    assert "secret@" not in str(refused.value)


def test_no_client_installed_says_what_to_install(token: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grafana_client", "grafana_client.api", "grafana_client.client", "grafana_api.grafana_face"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(UsageError) as refused:
        connect("https://grafana.example", token)
    assert "pdops[grafana]" in (refused.value.hint or "")


def test_a_server_that_answers_well_and_stores_nothing_is_not_believed(
    package: str, grafana: GrafanaDouble, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "write", lambda self, body: self.send(200, {}))
    server, made = connect(grafana.url, token), files()
    with pytest.raises(UnreachableError, match="not that of a Grafana server"):
        push(server, made, plan(server, made), "pdops")


@pytest.mark.parametrize("url", ["http://127.0.0.1:99999", "http://[::1"])
def test_an_address_that_cannot_be_read_is_refused(url: str, token: Path) -> None:
    with pytest.raises(UsageError) as refused:
        connect(url, token)
    assert refused.value.hint


@pytest.mark.parametrize("status", [200, 404])
def test_a_server_that_is_no_grafana_is_an_error_before_anything_is_planned(
    package: str, status: int, grafana: GrafanaDouble, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "answer", lambda self, method, body: self.send(status, {}))
    done = CliRunner().invoke(command, ["push", "--url", grafana.url, "--token-file", str(token), "--dry-run"])
    assert isinstance(done.exception, UnreachableError)
    assert "not that of a Grafana server" in str(done.exception)
    assert done.output == ""


def test_a_server_that_does_not_end_its_answer_is_given_up(
    package: str, grafana: GrafanaDouble, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr(Handler, "answer", lambda self, method, body: released.wait() and self.send(200, {}))
    monkeypatch.setattr(client, "DEADLINE_S", 0.2)
    try:
        with pytest.raises(UnreachableError, match="not all answers came") as refused:
            plan(connect(grafana.url, token), files())
    finally:
        released.set()
    assert refused.value.hint


def test_a_dashboard_of_others_in_our_place_is_told_by_the_exit_status(grafana: GrafanaDouble, token: Path) -> None:
    grafana.dashboards["pdops-decode"] = {"uid": "pdops-decode", "title": "hand made", "tags": [], "version": 3}
    for written in (5, 0):
        done = CliRunner().invoke(
            command, ["push", "--url", grafana.url, "--token-file", str(token)], standalone_mode=False
        )
        assert done.return_value == 1, done.output
        assert f"{written} written" in done.output
        assert "pdops-decode; give those another uid" in done.output


def test_a_written_dashboard_that_cannot_be_read_has_drifted(tmp_path: Path) -> None:
    (tmp_path / "overview.json").write_bytes(b"\xff\xfe")
    build = ["build", "-o", str(tmp_path)]
    done = CliRunner().invoke(command, [*build, "--check"], standalone_mode=False)
    assert done.return_value == 1
    assert f"differs {tmp_path / 'overview.json'}" in done.output
    assert CliRunner().invoke(command, build, standalone_mode=False).return_value == 0
    assert CliRunner().invoke(command, [*build, "--check"], standalone_mode=False).return_value == 0
