"""What Alertmanager tells, read as what it is: text from outside, bounded, and compared with names that are known."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pdops.sources.redact import clean
from pdops.sources.validate import did_you_mean

MAX_ALERTS = 500
"""Of one delivery unless more are allowed. Alertmanager's own limit, `max_alerts`, cuts groups silently and so has to be 0."""
ALERT_BYTES = 2100
"""What each alert of a full delivery may take on average."""
MAX_TEXT = 200
WATCHDOG = "Watchdog"
"""The alert that always fires, so that its silence tells that alerting is broken."""
_KEPT = ("cluster", "role", "pool", "worker", "src", "dst", "severity", "cause", "symptom")
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class Status(StrEnum):
    """What is told of an alert."""

    FIRING = "firing"
    RESOLVED = "resolved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One alert. `starts_ms` (Unix milliseconds) and `fingerprint` make an episode: what fires again later is another.

    `labels` are the few that something is done with.
    """

    name: str
    status: Status
    fingerprint: str
    starts_ms: int
    labels: Mapping[str, str]

    @property
    def episode(self) -> str:
        """The id of its episode."""
        return hashlib.sha256(f"{self.fingerprint}|{self.starts_ms}".encode()).hexdigest()[:24]

    def about(self, cluster: str) -> bool:
        """Whether it is about a cluster; one that names none is about that of whoever is told."""
        return self.labels.get("cluster", cluster) == cluster


@dataclass(frozen=True, slots=True)
class Invalid:
    """An alert that cannot be read: why, and what is the same whenever it comes again."""

    why: str
    digest: str

    def key(self) -> str:
        """Return what is the same for every delivery of it."""
        return f"invalid|{self.digest}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One body: its alerts, those that cannot be read, and how many Alertmanager left out."""

    alerts: tuple[Alert, ...]
    invalid: tuple[Invalid, ...] = ()
    truncated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """What Alertmanager's API has: alerts that fire, and the episodes among them that are silenced or inhibited.

    `watchdog_at_s` (Unix seconds) is when the Watchdog of this cluster was last renewed, None when it is not there. What is not
    there is gone only where nothing is `invalid`: an alert that cannot be read may be any.
    """

    alerts: tuple[Alert, ...]
    suppressed: frozenset[str]
    watchdog_at_s: float | None
    invalid: tuple[Invalid, ...] = ()


class BodyError(Exception):
    """A body that is no delivery; `status` is the HTTP status that says so, `hint` what to do about it."""

    def __init__(self, status: int, why: str, hint: str = "send what Alertmanager's webhook sends") -> None:
        super().__init__(why)
        self.status, self.hint = status, hint


def max_bytes(max_alerts: int) -> int:
    """Return how many bytes a body of so many alerts may have."""
    return max_alerts * ALERT_BYTES


def too_large(why: str, max_alerts: int) -> BodyError:
    """Return how a body beyond the limits is refused."""
    hint = (
        f"one delivery may have {max_alerts} alerts and {max_bytes(max_alerts)} bytes: give pdops respond a higher --max-alerts, "
        "or let Alertmanager group by more labels"
    )
    return BodyError(413, why, hint)


class TooLargeError(Exception):
    """A body that is larger once it is unpacked than one may be."""


def unpacked(body: bytes, coding: str, most: int) -> bytes:
    """Return a body as it was before it was packed, of at most so many bytes.

    Args:
        body: what was sent.
        coding: gzip, deflate or identity, as HTTP's Content-Encoding names them.
        most: bytes it may have.

    Raises:
        BodyError: it is not what the coding says, or cut off.
        TooLargeError: there is more of it.
    """
    if coding == "identity":
        return body
    # Some send deflate without the header that HTTP asks for.
    bare = coding == "deflate" and body[:1] != b"" and body[0] & 0x0F != 8
    unpack = zlib.decompressobj(
        16 + zlib.MAX_WBITS if coding == "gzip" else -zlib.MAX_WBITS if bare else zlib.MAX_WBITS
    )
    try:
        plain = unpack.decompress(body, most + 1)
    except zlib.error as error:
        raise BodyError(400, f"the body cannot be unpacked: {error}", _AS_SAID) from None
    if len(plain) > most:
        raise TooLargeError
    if not unpack.eof:
        raise BodyError(400, "the body cannot be unpacked: it is cut off", _AS_SAID)
    return plain


_AS_SAID = "send it as its Content-Encoding says, or without one"


# Another program's format: what later versions add is no error, and what is used is checked in each alert.
class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    labels: Annotated[dict[str, str], Field(min_length=1, max_length=64)]
    startsAt: Annotated[str, Field(max_length=40)]  # noqa: N815  as sent
    fingerprint: Annotated[str, Field(pattern=r"^[0-9a-f]{1,32}$")]


class _Sent(_Wire):
    status: Literal["firing", "resolved"]


class _State(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    state: Literal["active", "suppressed", "unprocessed"]


class _Receiver(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    name: str


class _Kept(_Wire):
    status: _State
    updatedAt: Annotated[str, Field(max_length=40)]  # noqa: N815  as sent
    receivers: list[_Receiver] = []


def read_delivery(body: bytes, max_alerts: int = MAX_ALERTS) -> Delivery:
    """Read the body of a webhook request.

    Group status is not used: a group that fires may carry resolved alerts.

    Raises:
        BodyError: it is not what Alertmanager sends, or has too many alerts.
    """
    content = _json(body)
    if not isinstance(content, dict) or content.get("version") != "4" or not isinstance(content.get("alerts"), list):
        raise BodyError(422, "not a webhook body of Alertmanager, version 4")
    items: list[Any] = content["alerts"]
    if len(items) > max_alerts:
        raise too_large(f"{len(items)} alerts in one delivery", max_alerts)
    left_out = content.get("truncatedAlerts", 0)
    alerts: list[Alert] = []
    invalid: list[Invalid] = []
    for item in items:
        try:
            sent = _Sent.model_validate(item)
            alerts.append(_alert(sent, Status(sent.status)))
        except (ValidationError, ValueError, OverflowError, RecursionError) as error:
            invalid.append(Invalid(_why(error), _digest(item)))
    known = isinstance(left_out, int) and not isinstance(left_out, bool)
    return Delivery(
        alerts=tuple(alerts), invalid=tuple(invalid), truncated=min(max(0, left_out), 1 << 31) if known else 0
    )


def read_list(body: bytes, receiver: str | None, cluster: str) -> Listed:
    """Read what `/api/v2/alerts` answers; with a receiver only what is routed to it, and this cluster's Watchdog wherever it goes.

    Raises:
        BodyError: it is not such an answer.
    """
    content = _json(body)
    if not isinstance(content, list):
        raise BodyError(502, "not a list of alerts")
    alerts: list[Alert] = []
    invalid: list[Invalid] = []
    suppressed: set[str] = set()
    watchdog: float | None = None
    for item in content:
        try:
            kept = _Kept.model_validate(item)
            alert = _alert(kept, Status.FIRING)
            renewed_s = moment_ms(kept.updatedAt) / 1000.0
        except (ValidationError, ValueError, OverflowError, RecursionError) as error:
            invalid.append(Invalid(_why(error), _digest(item)))
            continue
        if alert.name == WATCHDOG:
            if alert.about(cluster):
                watchdog = renewed_s if watchdog is None else max(watchdog, renewed_s)
        elif receiver is None or any(r.name == receiver for r in kept.receivers):
            alerts.append(alert)
            if kept.status.state == "suppressed":
                suppressed.add(alert.episode)
    return Listed(
        alerts=tuple(alerts), suppressed=frozenset(suppressed), watchdog_at_s=watchdog, invalid=tuple(invalid)
    )


def check_receiver(body: bytes, receiver: str) -> None:
    """Look for a receiver in what `/api/v2/receivers` answers: nothing is routed to one that is not there.

    Raises:
        BodyError: it is not there, or this is not such an answer.
    """
    content = _json(body)
    if not isinstance(content, list):
        raise BodyError(502, "not a list of receivers")
    names = [n for item in content if isinstance(item, dict) and isinstance(n := item.get("name"), str)]
    if receiver not in names:
        raise BodyError(404, f"no receiver {short(receiver)!r}; {did_you_mean(receiver, map(short, names[:20]))}")


def moment_ms(text: str) -> int:
    """Return Unix milliseconds of an RFC 3339 time; finer digits are cut off, as Alertmanager's API does.

    Raises:
        ValueError: it is no such time.
        OverflowError: it is before the year 1 or after 9999.
    """
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError("a time without a zone")
    # In UTC first: what is then before the year 1 could not be written down as a time again.
    return (moment.astimezone(dt.UTC) - _EPOCH) // dt.timedelta(milliseconds=1)


def _alert(wire: _Wire, status: Status) -> Alert:
    name = short(wire.labels.get("alertname", ""))
    if not name.strip():
        raise ValueError("an alert without a name")
    kept = {label: short(wire.labels[label]) for label in _KEPT if label in wire.labels}
    return Alert(
        name=name, status=status, fingerprint=wire.fingerprint, starts_ms=moment_ms(wire.startsAt), labels=kept
    )


def short(text: str) -> str:
    """Return text from outside for a line of ours."""
    return clean(text.encode("utf-8", "replace").decode())[:MAX_TEXT]


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BodyError(400, f"not JSON: {short(str(error))}") from None


def _why(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        what = "not a JSON object" if first["type"] == "model_type" else first["msg"]
        return short(f"{place}: {what}" if place else what)
    return short(str(error))


def _digest(item: Any) -> str:
    try:
        return hashlib.sha256(json.dumps(item, sort_keys=True).encode()).hexdigest()[:24]
    except RecursionError:
        raise BodyError(422, "nested too deeply") from None
