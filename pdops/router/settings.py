"""What the router is started with."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from urllib.parse import urlsplit

from pdops.errors import UsageError
from pdops.model.cluster import CLIENT, ROUTER, Role

ROLES = (Role.PREFILL, Role.DECODE)
POLICIES = ("round-robin", "least-loaded", "prefix-affinity", "zone-aware")
FALLBACKS = ("none", "decode-only")
MAX_BODY_BYTES = 16 << 20
"""Largest request body; a million tokens as text stay well below it."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,63}")
_RESERVED = frozenset({CLIENT, ROUTER, ".", ".."})


class RouterError(UsageError):
    """The router cannot be started, or was asked for something that is not valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker as it was named; `url` is its serving address without a trailing slash."""

    id: str
    role: Role
    url: str
    zone: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Limits and choices; times in seconds, `None` means no limit or not known.

    `deadline_s` runs from arrival to the first token. The in-flight limits are per worker. Of new requests `admit_ratio`
    (0-1) are let in, and `salt_ratio` get a cache salt of their own.
    """

    policy: str = "round-robin"
    queue_limit: int = 1000
    max_inflight_prefill: int = 64
    max_inflight_decode: int = 256
    deadline_s: float | None = 120.0
    body_timeout_s: float = 60.0
    prefill_timeout_s: float = 60.0
    first_token_timeout_s: float = 60.0
    stream_idle_timeout_s: float = 60.0
    answer_timeout_s: float = 600.0
    fallback: str = "none"
    kv_bytes_per_token: int | None = None
    block_size: int | None = None
    slo_ttft_s: float | None = None
    slo_itl_s: float | None = None
    zone: str | None = None
    allow_drills: bool = False
    admit_ratio: float = 1.0
    salt_ratio: float = 0.0

    def shown(self) -> dict[str, object]:
        """Return them for a reader, with the number of retries, which is none."""
        return {**asdict(self), "retries": 0}


def worker_id(text: object) -> str:
    """Return a worker id.

    Raises:
        RouterError: it is none: letters, digits, dot, underscore and dash, 1 to 63 of them, and not a reserved word.
    """
    if not isinstance(text, str) or not _ID.fullmatch(text) or text in _RESERVED:
        raise RouterError(
            "not a worker id",
            where=repr(text)[:80],
            why="expected 1 to 63 letters, digits, dots, underscores or dashes; client and router are reserved",
            hint="for example prefill-0",
        )
    return text


def worker_url(text: object) -> str:
    """Return a worker's address without a trailing slash.

    Raises:
        RouterError: it is not an http or https address with a host.
    """
    why = "expected http://HOST:PORT"
    if isinstance(text, str):
        try:
            parts = urlsplit(text)
            fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
            (parts.hostname or "").encode("idna")
        except ValueError as error:
            fits, why = False, str(error)
        else:
            fits = fits and not (parts.query or parts.fragment or parts.username or parts.password)
        if fits and not any(c.isspace() or not c.isprintable() for c in text):
            return text.rstrip("/")
    hint = "for example http://10.0.3.11:8000, without query, user or password"
    raise RouterError("not a worker's address", where=repr(text)[:200], why=why, hint=hint)


def zone_name(text: object) -> str | None:
    """Return a zone, None when there is none.

    Raises:
        RouterError: it is not a name.
    """
    if text is None or text == "":
        return None
    if not isinstance(text, str) or not _ID.fullmatch(text):
        raise RouterError(
            "not a zone",
            where=repr(text)[:80],
            why="expected letters, digits, dots, underscores, dashes",
            hint="for example az1",
        )
    return text


def role_name(text: object) -> Role:
    """Return the role of a worker a router has.

    Raises:
        RouterError: it is neither prefill nor decode.
    """
    for role in ROLES:
        if text == role.value:
            return role
    raise RouterError(
        "not a role", where=repr(text)[:80], why="expected prefill or decode", hint="a router knows these two roles"
    )


def parse_worker(text: str, role: Role) -> WorkerSpec:
    """Read `ID=URL[,zone=Z]`.

    Raises:
        RouterError: it does not read so.
    """
    name, sep, rest = text.partition("=")
    hint = f"for example --{role} {role}-0=http://10.0.3.11:8000,zone=az1"
    url, *extras = rest.split(",")
    if not (sep and name and url):
        raise RouterError(f"not a {role} worker", where=repr(text), why="expected ID=URL[,zone=ZONE]", hint=hint)
    zone = None
    for extra in extras:
        key, _, value = extra.partition("=")
        if key != "zone":
            why = f"unknown key {key!r}; only zone is known"
            raise RouterError(f"not a {role} worker", where=repr(text), why=why, hint=hint)
        zone = zone_name(value)
    return WorkerSpec(id=worker_id(name), role=role, url=worker_url(url), zone=zone)
