"""What is asked of a Grafana server: five questions, answered by whichever client package is installed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from pdops.clock import Clock, WallClock
from pdops.errors import UnreachableError, UsageError

TIMEOUT_S = 15.0
"""For a connection, and for each piece of an answer."""
DEADLINE_S = 120.0
"""For all questions of one client together: a server that sends a byte now and then keeps within `TIMEOUT_S` for ever."""


class Grafana(Protocol):
    """A Grafana server. What it refuses or does not answer is an `UnreachableError`."""

    def get(self, uid: str) -> dict[str, Any] | None:
        """Return a dashboard with its `meta`, or None when there is none of that uid."""
        ...

    def push(self, dashboard: dict[str, Any], folder_uid: str, message: str) -> None:
        """Create or replace a dashboard; fails when somebody changed it since it was read."""
        ...

    def search(self, tag: str) -> list[dict[str, Any]]:
        """Return dashboards that carry a tag."""
        ...

    def folder(self, uid: str, title: str) -> None:
        """Make a folder unless there is one of that uid."""
        ...

    def annotate(self, text: str, tags: list[str], at_ms: int) -> None:
        """Write an annotation on the time axis, Unix milliseconds."""
        ...


def connect(url: str, token_file: Path) -> Grafana:
    """Return a client: grafana-client where it is installed, else grafana-api.

    Raises:
        UsageError: the address is not safe to send a token to, the token cannot be read, or no client is installed.
    """
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise UsageError(
            "this is no address", where=url[:200], why=str(error), hint="as https://grafana.example"
        ) from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("this is no address of a Grafana server", where=url, hint="as https://grafana.example")
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1", "::1"):
        raise UsageError(
            "a token is not sent over plain HTTP", where=url, hint="use https://, or forward the port to this host"
        )
    if parts.username or parts.password or parts.query:
        raise UsageError("the address carries a secret", where=parts.hostname, hint="give --token-file instead")
    token = _token(token_file)
    try:
        from grafana_client.api import GrafanaApi
        from grafana_client.client import TokenAuth

        made = GrafanaApi.from_url(url, credential=TokenAuth(token), timeout=TIMEOUT_S)  # type: ignore[no-untyped-call,unused-ignore]
        return _Client(made, url)
    except ImportError:
        pass
    try:
        from grafana_api.grafana_face import GrafanaFace
    except ImportError as error:
        raise UsageError(
            "no Grafana client is installed", why=str(error), hint="pip install 'pdops[grafana]'"
        ) from error
    host = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
    made = GrafanaFace(
        auth=token, host=host, protocol=parts.scheme, url_path_prefix=parts.path.strip("/"), timeout=TIMEOUT_S
    )
    return _Client(made, url)


def _token(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            "the token cannot be read", where=str(path), why=str(error), hint="a file with the token and nothing else"
        ) from error
    if not token or any(c.isspace() for c in token):
        raise UsageError("this is no token", where=str(path), hint="a file with the token and nothing else")
    return token


class _Client:
    """Both packages share these methods, one being a fork of the other."""

    def __init__(self, made: Any, url: str, clock: Clock | None = None) -> None:
        self._made, self._url, self._clock = made, url, clock or WallClock()
        self._end_s = self._clock.monotonic() + DEADLINE_S

    def get(self, uid: str) -> dict[str, Any] | None:
        what = "read a dashboard"
        answer = self._ask(what, lambda: self._made.dashboard.get_dashboard(uid), may_miss=True)
        if answer is None:
            return None
        found = answer.get("dashboard") if isinstance(answer, dict) else None
        if not isinstance(found, dict) or found.get("uid") != uid:
            raise self._no_grafana(what)
        return dict(answer)

    def push(self, dashboard: dict[str, Any], folder_uid: str, message: str) -> None:
        what = "write a dashboard"
        body = {"dashboard": dashboard, "folderUid": folder_uid, "message": message, "overwrite": False}
        answer = self._ask(what, lambda: self._made.dashboard.update_dashboard(body))
        # A proxy that leads to its log-in page answers well, and nothing is stored.
        if not isinstance(answer, dict) or answer.get("uid") != dashboard["uid"]:
            raise self._no_grafana(what)

    def search(self, tag: str) -> list[dict[str, Any]]:
        return list(self._ask("search", lambda: self._made.search.search_dashboards(tag=tag)))

    def folder(self, uid: str, title: str) -> None:
        if self._ask("read a folder", lambda: self._made.folder.get_folder(uid), may_miss=True) is None:
            self._ask("make a folder", lambda: self._made.folder.create_folder(title, uid))

    def annotate(self, text: str, tags: list[str], at_ms: int) -> None:
        self._ask(
            "write an annotation",
            lambda: self._made.annotations.add_annotation(time_from=at_ms, text=text, tags=tags),
        )

    def _ask(self, what: str, ask: Callable[[], Any], *, may_miss: bool = False) -> Any:
        """Return the answer; None when there is no such thing and that `may_miss` is an answer too."""
        got: list[Any] = []
        failed: list[Exception] = []

        def go() -> None:
            try:
                got.append(ask())
            except Exception as error:  # noqa: BLE001  what the clients raise has no common base; it is raised again below
                failed.append(error)

        # Neither client has a limit on a whole answer, so it is waited for from outside.
        thread = threading.Thread(target=go, name="pdops-grafana", daemon=True)
        thread.start()
        thread.join(max(0.0, self._end_s - self._clock.monotonic()))
        if got:
            return got[0]
        if not failed:
            raise UnreachableError(
                f"Grafana did not {what}",
                where=self._url,
                why=f"not all answers came within {DEADLINE_S:.0f} s",
                hint="check the address, and what stands between here and the server",
            )
        if may_miss and getattr(failed[0], "status_code", None) == 404:
            # Any web server has no such page; Grafana says so as JSON.
            said = getattr(failed[0], "response", None)
            if isinstance(said, dict) and "message" in said:
                return None
            raise self._no_grafana(what) from failed[0]
        raise self._failed(what, failed[0]) from failed[0]

    def _no_grafana(self, what: str) -> UnreachableError:
        return UnreachableError(
            f"Grafana did not {what}",
            where=self._url,
            why="the answer is not that of a Grafana server",
            hint="check the address and the path; a proxy in front may ask for a log-in",
        )

    def _failed(self, what: str, error: Exception) -> UnreachableError:
        status = getattr(error, "status_code", None)
        hints = {
            401: "the token is not known there; make one for a service account",
            403: "the token may not do that; it needs the Editor role",
            412: "somebody changed it meanwhile; run again to see the difference",
        }
        said = getattr(error, "message", None) or str(error) or type(error).__name__
        return UnreachableError(
            f"Grafana did not {what}",
            where=self._url,
            why=f"{status}: {said}"[:300] if status else said[:300],
            hint=hints.get(status or 0, "check the address, and that the server is up"),
        )
