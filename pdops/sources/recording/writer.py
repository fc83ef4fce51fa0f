"""Write a recording so that a crash costs at most the last ten seconds."""

from __future__ import annotations

import fcntl
import os
from types import TracebackType
from typing import NoReturn

from pdops import __version__
from pdops.errors import RecordingError
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.sources.recording.format import MEMBER_S, FrameEncoder, dump
from pdops.sources.recording.header import header_of
from pdops.sources.recording.members import pack

_FULL = 8 << 20
"""A member is closed early when it holds this many bytes of text."""


class RecordingWriter:
    """Appends frames to a new file. Use it as a context manager.

    Args:
        path: the file to make; an existing one is refused unless `overwrite`, and one that is being recorded always.
        cluster: the inventory; secrets in it are not written.
        interval_s: nominal distance of frames, in seconds.

    Raises:
        RecordingError: the file cannot be made or written.
    """

    def __init__(
        self, path: str | os.PathLike[str], cluster: Cluster, *, interval_s: float = 1.0, overwrite: bool = False
    ) -> None:
        self.path = os.fspath(path)
        self.frames = 0
        self.size_bytes = 0
        self._cluster = cluster
        self._interval_s = interval_s
        self._facts: dict[str, dict[str, str]] = {}
        self._header = b""
        self._clear()
        try:
            # Not truncated yet: another recorder may be writing it.
            how = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | (0 if overwrite else os.O_EXCL)
            self._file = open(os.open(self.path, how, 0o666), "r+b", buffering=0)  # noqa: SIM115  held until close
        except FileExistsError:
            raise RecordingError(
                "recording cannot be written", where=self.path, why="the file exists", hint="choose another name"
            ) from None
        except OSError as problem:
            self._fail(problem)
        self._take()

    def _take(self) -> None:
        """Lock the file for as long as it is open, then empty it."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise RecordingError(
                "recording cannot be written",
                where=self.path,
                why="another recorder is writing it",
                hint="choose another name, or stop the other one first",
            ) from None
        except OSError:
            # A file system without locks keeps no two recorders apart, but can be recorded to.
            pass
        try:
            if os.fstat(self._file.fileno()).st_size:
                self._file.truncate(0)
        except OSError as problem:
            self._file.close()
            self._fail(problem)

    def write(self, frame: Frame) -> None:
        """Take in one frame; it is on disk within ten seconds of frame time.

        Raises:
            RecordingError: the disk refuses.
            ValueError: a scrape has not one value per series.
        """
        if self._start_s is None:
            self._begin(frame.at_s)
        assert self._start_s is not None
        try:
            self._encoder.encode(frame, self._put)
        except (TypeError, ValueError):
            # Part of the frame may be in the encoder's state already; the next frame begins anew.
            self.flush()
            raise
        self.frames += 1
        for worker, facts in frame.facts.items():
            self._facts.setdefault(worker, {}).update(facts)
        waited = abs(frame.at_s - self._start_s) + self._interval_s
        if waited >= MEMBER_S or self._size > _FULL:
            self.flush()

    def flush(self) -> None:
        """Put everything on disk now."""
        if self._start_s is None:
            return
        member = pack(b"".join(self._lines), self._start_s)
        self._clear()
        try:
            left = memoryview(member)
            while left:
                left = left[self._file.write(left) :]
        except OSError as problem:
            self._fail(problem)
        self.size_bytes += len(member)

    def close(self) -> None:
        """Finish the file; a second call does nothing. A recording without frames holds its header."""
        if self._file.closed:
            return
        try:
            if not self._header:
                self._begin(None)
            self.flush()
        finally:
            self._file.close()

    def __enter__(self) -> RecordingWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _clear(self) -> None:
        self._start_s: float | None = None
        self._encoder = FrameEncoder()
        self._lines: list[bytes] = []
        self._size = 0

    def _put(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)

    def _begin(self, start_s: float | None) -> None:
        if not self._header:
            header = header_of(self._cluster, start_s=start_s, interval_s=self._interval_s, version=__version__)
            self._header = dump(header.model_dump(mode="json", by_alias=True, exclude_none=True))
        self._start_s = start_s or 0.0
        self._put(self._header)
        if self._facts:
            self._put(dump({"kind": "facts", "facts": self._facts}))

    def _fail(self, problem: OSError) -> NoReturn:
        raise RecordingError(
            "recording cannot be written",
            where=self.path,
            why=(problem.strerror or str(problem)).lower(),
            hint="check the path, its permissions and the space left",
        ) from problem
