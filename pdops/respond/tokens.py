"""Who may do what: a file of names, roles and tokens, read again when it changes."""

from __future__ import annotations

import errno
import hashlib
import hmac
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pdops.errors import UsageError

FILE = "tokens"
"""Its name beside the journal."""
OWN_NAMES = frozenset({"respond", "pdops"})
"""Names under which pdops itself writes into the journal."""
_MAX_BYTES = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_TOKEN = re.compile(r"[\x21-\x7e]{16,512}")
_WHAT = "tokens cannot be used"
_HINT = "write NAME:ROLE:TOKEN, as ada:approver:$(openssl rand -hex 32)"


class Role(StrEnum):
    """What somebody may do; each may do what those before it may."""

    VIEWER = "viewer"
    """See status and runs."""
    OPERATOR = "operator"
    """Deliver alerts, resume, abort, freeze."""
    APPROVER = "approver"
    """Approve runs that somebody else asked for."""
    ADMIN = "admin"
    """Let automation go on after a freeze."""

    def may(self, needed: Role) -> bool:
        """Return whether this role includes another."""
        order = list(Role)
        return order.index(self) >= order.index(needed)


@dataclass(frozen=True, slots=True)
class Person:
    """Whom a token belongs to; a program has one too."""

    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class _Entry:
    person: Person
    digest: bytes


class Tokens:
    """The people of a file.

    Several lines of one name are several valid tokens, which is how a token is changed without a gap. The file is looked at
    for every request. One that is gone lets nobody in; one that cannot be read in full leaves the last good one valid.

    Args:
        path: the file; each line is NAME:ROLE:TOKEN, blank or a comment that begins with #.

    Raises:
        UsageError: it is not there or not valid.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._seen: tuple[int, int, int] | None = None
        self._entries = _read(path)
        self._seen = _stamp(path)

    def who(self, header: str | None) -> Person | None:
        """Return whose token an Authorization header bears, or None. Takes as long whichever token is wrong."""
        self._again()
        scheme, _, token = (header or "").partition(" ")
        given = hashlib.sha256(token.strip().encode("utf-8", "replace")).digest()
        found = None
        for entry in self._entries:
            if hmac.compare_digest(entry.digest, given):
                found = entry.person
        return found if scheme.lower() == "bearer" else None

    def role_of(self, name: str) -> Role | None:
        """Return the role of a name, or None when the file does not know it."""
        self._again()
        return next((e.person.role for e in self._entries if e.person.name == name), None)

    def _again(self) -> None:
        stamp = _stamp(self.path)
        if stamp == self._seen:
            return
        self._seen = stamp
        if stamp is None:
            self._entries, self.problem = (), f"{self.path} is gone: nobody is let in"
            return
        try:
            self._entries, self.problem = _read(self.path), None
        except UsageError as error:
            self.problem = f"{error}; the tokens from before are still valid"

    def readable_by_others(self) -> bool:
        """Return whether everybody on the host may read the file."""
        try:
            return bool(self.path.stat().st_mode & 0o004)
        except OSError:
            return False


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[_Entry, ...]:
    try:
        with open(path, "rb", opener=_regular) as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise UsageError(_WHAT, where=str(path), why=f"larger than {_MAX_BYTES} bytes", hint=_HINT)
        lines = content.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not UTF-8 text"
        raise UsageError(_WHAT, where=str(path), why=why, hint=_HINT) from error
    entries = tuple(_entries(path, lines))
    if not entries:
        raise UsageError(_WHAT, where=str(path), why="it names nobody", hint=_HINT)
    return entries


def _regular(path: str, flags: int) -> int:
    # Without waiting: a FIFO that nobody writes to would hold up every request.
    opened = os.open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise OSError(errno.EINVAL, "not a regular file")
    return opened


def _entries(path: Path, lines: list[str]) -> Iterable[_Entry]:
    roles: dict[str, Role] = {}
    digests: dict[bytes, int] = {}
    for number, text in enumerate(lines, 1):
        line = text.strip()
        if not line or line.startswith("#"):
            continue
        where = f"{os.fspath(path)}:{number}"
        name, _, rest = line.partition(":")
        word, _, token = rest.partition(":")
        # Nothing of the line is repeated in a message: it may be the token that is in the wrong place.
        if line.count(":") < 2:
            raise UsageError(_WHAT, where=where, why="not a name, a role and a token", hint=_HINT)
        if not _NAME.fullmatch(name) or name in OWN_NAMES:
            raise UsageError(_WHAT, where=where, why="no name that may be used", hint=_HINT)
        if word not in set(Role):
            raise UsageError(_WHAT, where=where, why="no such role", hint=f"roles are {', '.join(Role)}")
        if not _TOKEN.fullmatch(token):
            why = f"the token of {name} is not 16 to 512 printable characters without spaces"
            raise UsageError(_WHAT, where=where, why=why, hint=_HINT)
        if roles.setdefault(name, Role(word)) is not Role(word):
            raise UsageError(_WHAT, where=where, why=f"{name} has two roles", hint="give each name one role")
        digest = hashlib.sha256(token.encode()).digest()
        if digest in digests:
            raise UsageError(
                _WHAT, where=where, why=f"the same token as in line {digests[digest]}", hint="make another token"
            )
        digests[digest] = number
        yield _Entry(Person(name, Role(word)), digest)
