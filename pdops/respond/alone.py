"""One process answers the alerts of a cluster."""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pdops.errors import JournalError, RefusedError


@contextmanager
def alone(journal: Path, cluster: str) -> Iterator[None]:
    """Hold the only place there is for answering the alerts of a cluster with a journal.

    Raises:
        RefusedError: another process has it.
    """
    name = f"respond-{hashlib.sha256(cluster.encode()).hexdigest()[:12]}.lock"
    try:
        journal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = journal.with_name(name).open("a")
    except OSError as error:
        raise JournalError(
            "the journal cannot be used", where=str(journal), why=error.strerror or str(error), hint="give --journal"
        ) from error
    with handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            hint = "stop it, or give this one another --journal"
            raise RefusedError("alerts are answered by another process", where=cluster, hint=hint) from None
        yield
