"""Tell people and programs outside what a run does: lines, webhooks, Slack-compatible webhooks, annotations in Grafana.

An address of a webhook is a secret by itself, so it comes from a file and is never shown; what failed names its host only.
"""

from __future__ import annotations

import hashlib
import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import requests

from pdops.errors import PdopsError, TellingError, UsageError
from pdops.model.times import rfc3339
from pdops.sources.redact import clean, redact
from pdops.sources.schemas import DIALECT

SCHEMA = "pdops/notification/v1"
TIMEOUT_S = (3.0, 7.0)
"""To connect and to answer, in seconds."""
LIMIT = 1500
"""Characters of a message: Slack cuts a text into several from 4,000 on, and nobody reads that many at night."""
_AGAIN = frozenset({408, 425, 429})
"""Client errors that sending later may mend; 408, 425 and 429 of RFC 9110, 8470 and 6585."""
Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One thing to tell. `id` is the same when it is told twice; `at_s` is Unix seconds; names are empty where none fits."""

    id: str
    at_s: float
    level: Level
    event: str
    cluster: str
    runbook: str
    run: str
    text: str


class Channel(Protocol):
    """One way to tell."""

    @property
    def name(self) -> str:
        """What people call it; without secrets."""
        ...

    @property
    def key(self) -> str | None:
        """What its place in the journal is kept under; None for one that only knows what happens while it listens."""
        ...

    def send(self, note: Note) -> None:
        """Tell it.

        Raises:
            TellingError: it did not arrive.
        """
        ...


def safe(text: str) -> str:
    """Return text without credentials and control characters, cut at `LIMIT`."""
    told = clean(redact(text))
    return told if len(told) <= LIMIT else told[: LIMIT - 1] + "…"


class Lines:
    """A line for each note.

    Args:
        write: takes a line.
    """

    name, key = "stdout", None

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def send(self, note: Note) -> None:
        """Write the line. See `Channel.send`."""
        try:
            self._write(f"{rfc3339(note.at_s)}  {note.level}  {safe(note.text)}")
        except (OSError, ValueError) as error:
            raise TellingError("a line could not be written", where=self.name, why=str(error), final=True) from error


class Webhook:
    """POSTs a note as JSON: `pdops/notification/v1`, or `{"text": …}` as Slack, Mattermost and others take it.

    Args:
        file: holds the address and nothing else.
        slack: send the second form.

    Raises:
        UsageError: the file cannot be read, or holds no address that a message may be sent to.
    """

    def __init__(self, file: Path, *, slack: bool = False) -> None:
        self._file, self._slack = file, slack
        url = self._url()
        self.name = f"{'slack' if slack else 'webhook'} {urlsplit(url).hostname}"
        self.key = f"{'slack' if slack else 'webhook'}-{hashlib.sha256(url.encode()).hexdigest()[:16]}"

    def send(self, note: Note) -> None:
        """POST it; answers of 2xx are taken for arrived. See `Channel.send`."""
        body = slack_body(note) if self._slack else webhook_body(note)
        try:
            url = self._url()
        except UsageError as error:
            raise TellingError(
                "a notification was not sent", where=self.name, why=str(error), hint=error.hint
            ) from None
        status = _post(url, body, self.name)
        if not 200 <= status < 300:
            raise TellingError(
                "a notification was refused",
                where=self.name,
                why=f"status {status}",
                hint=f"check the address in {self._file}",
                final=400 <= status < 500 and status not in _AGAIN,
            )

    def _url(self) -> str:
        """Return the address as the file has it now: whoever changes a secret changes the file."""
        hint = "a file with one https:// address and nothing else"
        what = "the address of a webhook cannot be used"
        try:
            url = self._file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(what, where=str(self._file), why=str(error), hint=hint) from None
        try:
            parts = urlsplit(url)
            _ = parts.port
        except ValueError:
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname or any(c.isspace() for c in url):
            raise UsageError(what, where=str(self._file), why="it is no http(s) address", hint=hint)
        if parts.scheme == "http" and not _loopback(parts.hostname):
            raise UsageError(what, where=str(self._file), why="it would go over plain HTTP", hint=hint)
        return url


def webhook_body(note: Note) -> dict[str, Any]:
    """Return the published form of a note."""
    return {
        "schema": SCHEMA, "id": note.id, "at": rfc3339(note.at_s), "level": note.level, "event": note.event,
        "cluster": note.cluster, "runbook": note.runbook, "run": note.run, "text": safe(note.text),
    }  # fmt: skip


def schema() -> dict[str, Any]:
    """Return the JSON Schema of what a webhook is sent; receivers that see an `id` again have been told twice."""
    words = {name: {"type": "string"} for name in ("id", "event", "cluster", "runbook", "run", "text")}
    properties = {
        "schema": {"const": SCHEMA},
        "at": {"type": "string", "format": "date-time"},
        "level": {"enum": ["info", "warning", "error"]},
        **words,
    }
    return {
        "$schema": DIALECT, "title": "what pdops sends to --notify webhook:FILE", "type": "object",
        "required": sorted(properties), "additionalProperties": False, "properties": properties,
    }  # fmt: skip


def slack_body(note: Note) -> dict[str, Any]:
    """Return a note as incoming webhooks of Slack take it; what would be markup or a mention is written out."""
    told = safe(note.text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return {"text": f"{ {'info': '', 'warning': ':warning: ', 'error': ':rotating_light: '}[note.level] }{told}"}


class Annotator(Protocol):
    """What is needed of a Grafana client."""

    def annotate(self, text: str, tags: list[str], at_ms: int) -> None:
        """Write an annotation on the time axis, Unix milliseconds."""
        ...


class Annotations:
    """Marks in Grafana, over every panel that asks for the tag `pdops`.

    Args:
        connect: gives a client for one note; clients keep a deadline for all they are asked.
        where: the server's address, without secrets.
    """

    def __init__(self, connect: Callable[[], Annotator], where: str) -> None:
        self._connect = connect
        self.name = f"grafana {urlsplit(where).hostname}"
        self.key = f"grafana-{hashlib.sha256(where.encode()).hexdigest()[:16]}"

    def send(self, note: Note) -> None:
        """Write the annotation. See `Channel.send`."""
        tags = ["pdops", *(f"{k}:{v}" for k, v in (("cluster", note.cluster), ("runbook", note.runbook)) if v)]
        try:
            self._connect().annotate(safe(note.text), tags, int(note.at_s * 1000))
        except TellingError:
            raise
        except PdopsError as error:
            raise TellingError(
                "an annotation was not written", where=self.name, why=str(error), hint=error.hint
            ) from error


def _post(url: str, body: dict[str, Any], name: str) -> int:
    """Return the status; the body of the answer is not read."""
    host = urlsplit(url).hostname or ""
    try:
        with requests.Session() as session:
            # A proxy of the environment is used, a .netrc is not.
            session.trust_env = False
            if not _loopback(host):
                session.proxies = requests.utils.get_environ_proxies(url)
            with session.post(url, json=body, timeout=TIMEOUT_S, allow_redirects=False, stream=True) as answer:
                return answer.status_code
    except (OSError, requests.RequestException) as error:
        # The text of these errors holds the address, and with it the secret.
        raise TellingError(
            "a notification was not sent", where=name, why=type(error).__name__, hint="check that the host is reachable"
        ) from None


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
