"""The switch that stops all automation: a file, a variable of the environment, and the journal. Any of them is enough."""

from __future__ import annotations

import os
from pathlib import Path

from pdops.errors import JournalError
from pdops.runbook.journal import Journal
from pdops.sources.redact import clean

VARIABLE = "PDOPS_FREEZE"
_FILE = "FREEZE"


class KillSwitch:
    """Read before every effect.

    The file is beside the journal and works when the journal does not; whoever restores a configuration does not undo it.

    Args:
        journal: where freezing is also written down.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    @property
    def file(self) -> Path:
        """The file whose being there freezes everything."""
        return self._journal.path.with_name(_FILE)

    def why(self, cluster: str) -> str | None:
        """Return why nothing may be changed in a cluster, or None."""
        if os.environ.get(VARIABLE):
            return f"frozen by {VARIABLE} in the environment"
        return self._journal.frozen(cluster) or frozen_by_file(self._journal.path)

    def on(self, actor: str, why: str, cluster: str = "*") -> None:
        """Freeze a cluster, or all of them.

        Raises:
            JournalError: the file or the journal could not be written; with the file written first it is frozen all the same.
        """
        if cluster == "*":
            freeze_by_file(self._journal.path, actor, why)
        with self._journal.transaction() as tx:
            tx.append("froze", actor=actor, body={"scope": cluster, "why": why})

    def off(self, actor: str, cluster: str = "*") -> None:
        """Let runs go on; those that were held stay held until they are resumed.

        Raises:
            JournalError: it could not be written, or the file that freezes cannot be removed.
        """
        with self._journal.transaction() as tx:
            tx.append("thawed", actor=actor, body={"scope": cluster})
        if cluster == "*":
            try:
                self.file.unlink(missing_ok=True)
            except OSError as error:
                raise JournalError(
                    "the file that freezes stays",
                    where=str(self.file),
                    why=error.strerror or str(error),
                    hint="remove it",
                ) from error


def freeze_by_file(journal: Path, actor: str, why: str) -> Path:
    """Freeze everything that uses a journal, which need not be readable, and return the file that does it.

    Raises:
        JournalError: the file cannot be written.
    """
    file = journal.with_name(_FILE)
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(f"{clean(actor)}: {clean(why)}\n", encoding="utf-8")
    except OSError as error:
        hint = f"set {VARIABLE}=1 where pdops runs"
        raise JournalError("cannot freeze", where=str(file), why=error.strerror or str(error), hint=hint) from error
    return file


def frozen_by_file(journal: Path) -> str | None:
    """Return why the file beside a journal freezes everything, or None without one.

    A link that leads nowhere freezes too, and so does one of which nobody can tell whether it is there.
    """
    file = journal.with_name(_FILE)
    try:
        file.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return f"whether the file {file} is there cannot be told: {error.strerror or error}"
    return f"frozen by the file {file}"
