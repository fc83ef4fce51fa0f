"""Who carries a run out: one process at a time, known to the kernel, numbered in the journal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
from collections.abc import Iterator

from pdops.errors import JournalError, RefusedError
from pdops.runbook.journal import Journal


@contextlib.contextmanager
def claimed(journal: Journal, run_id: str, actor: str) -> Iterator[int]:
    """Take a run over and yield its new fence.

    The lock on a file ends with the process that holds it, however it ends; the fence keeps out one that holds none.

    Raises:
        RefusedError: another process carries it out.
        JournalError: who does cannot be told, as the lock cannot be made.
    """
    folder = journal.path.with_name("claims")
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = (folder / run_id).open("a+")
    except OSError as error:
        hint = "check permissions and the space left; nothing is changed without it"
        raise JournalError(
            "a run cannot be claimed", where=str(folder), why=error.strerror or str(error), hint=hint
        ) from error
    with lock as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            handle.seek(0)
            raise RefusedError(
                "the run is being carried out",
                where=run_id,
                why=f"by {handle.read(80).strip() or 'another process'}",
                hint="wait for it, or `pdops runbook abort` asks it to stop at the next safe point",
            ) from None
        handle.truncate(0)
        owner = f"pid {os.getpid()} on {socket.gethostname()}"
        handle.write(owner)
        handle.flush()
        with journal.transaction() as tx:
            fence = tx.next_fence()
            tx.append("claimed", run_id, actor=actor, body={"fence": fence, "owner": owner})
        yield fence
