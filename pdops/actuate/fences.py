"""The highest fence that was here, in a file, and one change at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from pdops.errors import ActionError, BusyError


class FenceFile:
    """Keeps lower fences and other processes of this host away from what it stands for.

    Args:
        path: the file; made with its folder, for its owner only.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextlib.contextmanager
    def alone(self, fence: int) -> Iterator[bool]:
        """Keep other processes away for the block; gives False when a higher fence has been here.

        Raises:
            BusyError: another process is at it.
            ActionError: the file cannot be read or written.
        """
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise self._failed(error) from error
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise BusyError(
                    "another command is changing the cluster", where=str(self._path), hint="try again when it is done"
                ) from error
            try:
                highest = int(os.pread(file, 32, 0).decode("ascii").strip() or 0)
                if fence > highest:
                    os.pwrite(file, f"{fence:<31}\n".encode("ascii"), 0)
                    os.fsync(file)
            except (OSError, ValueError) as error:
                raise self._failed(error) from error
            yield fence >= highest
        finally:
            os.close(file)

    def _failed(self, error: Exception) -> ActionError:
        return ActionError(
            "the fence cannot be read or written", where=str(self._path), why=str(error), hint="check it, or remove it"
        )
