"""How far each listener has come in a journal, on disk beside it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pdops.errors import JournalError


@dataclass(frozen=True, slots=True)
class Place:
    """The last event that was told, and its hash, which a journal that was replaced does not have."""

    seq: int
    hash: str


class Places:
    """Places by key; those without a key are kept in memory.

    Args:
        journal: the journal's file; places are in a folder beside it.
    """

    def __init__(self, journal: Path) -> None:
        self._folder = journal.with_name(journal.name + ".told")
        self._here: dict[int, Place] = {}

    def get(self, key: str | None, listener: object) -> Place | None:
        """Return a place, None when none is kept or what is kept cannot be read."""
        if key is None:
            return self._here.get(id(listener))
        try:
            told = json.loads((self._folder / f"{key}.json").read_text(encoding="utf-8"))
            return Place(int(told["seq"]), str(told["hash"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str | None, listener: object, place: Place) -> None:
        """Keep a place; a reader sees the old one or the new one.

        Raises:
            JournalError: it cannot be written.
        """
        if key is None:
            self._here[id(listener)] = place
            return
        with self._told():
            fresh = self._folder / f"{key}.{os.getpid()}.new"
            fresh.write_text(json.dumps({"seq": place.seq, "hash": place.hash}), encoding="utf-8")
            fresh.replace(self._folder / f"{key}.json")

    @contextlib.contextmanager
    def alone(self, key: str | None) -> Iterator[bool]:
        """Give True to one process at a time, so that two that follow one journal do not tell everything twice.

        Raises:
            JournalError: the folder cannot be written.
        """
        if key is None:
            yield True
            return
        with self._told():
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / f"{key}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield False
                return
            yield True
        finally:
            os.close(lock)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise JournalError(
                "what was told cannot be written down", where=str(self._folder), why=error.strerror or str(error),
                hint="check permissions and space",
            ) from error  # fmt: skip
