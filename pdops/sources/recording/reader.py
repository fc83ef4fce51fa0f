"""Read a recording: whole, cut off or damaged."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any, BinaryIO

from pydantic import ValidationError

from pdops.errors import RecordingError
from pdops.model.cluster import Cluster
from pdops.model.frame import Frame
from pdops.model.view import RECORDING, Note
from pdops.sources.recording.clock import onward
from pdops.sources.recording.format import MAJOR, SCHEMA_PATTERN, FrameDecoder, Record, facts_of
from pdops.sources.recording.header import RecordingHeader
from pdops.sources.recording.members import MAGIC, Hop, hops, read_lines
from pdops.sources.validate import shown

_WHAT = "recording cannot be read"
_KNOWN = frozenset({"header", "facts", "series", "page", "frame"})
_DAMAGED = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


class Recording:
    """A recording that is open for reading. `warnings` grows while frames are read; each is said once."""

    def __init__(self, path: str, header: RecordingHeader, raw_cluster: object) -> None:
        self.path = path
        self.raw_cluster = raw_cluster
        self.header = header
        self.cluster: Cluster = header.cluster.cluster()
        self.interval_s = header.interval_s
        self._warnings: dict[str, None] = {}
        self._end_s: float | None = None

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was wrong with the file, as far as it was read."""
        return tuple(self._warnings)

    @property
    def notes(self) -> tuple[Note, ...]:
        """The warnings so far, one a note, for those who see the data and not the file."""
        fix = "record again, or judge it by what is left"
        # A copy: another reader of the same file may find more meanwhile.
        return tuple(
            Note(worker=f"recording {n}", code=RECORDING, why=text, fix=fix) for n, text in enumerate(self.warnings, 1)
        )

    @property
    def start_s(self) -> float:
        """Unix seconds of the first frame; 0 when the recording holds none."""
        return self.header.start_s or 0.0

    @property
    def end_s(self) -> float:
        """Unix seconds of the last frame that can be read, as far as is known; `start_s` when there is none."""
        if self._end_s is None:
            self._end_s = self.start_s if self.header.start_s is None else self._find_end()
        return self._end_s

    @property
    def duration_s(self) -> float:
        """Seconds from the first frame to the last one that can be read."""
        return self.end_s - self.start_s

    def iter_frames(self) -> Iterator[Frame]:
        """Yield frames in order of time.

        Raises:
            RecordingError: the file is gone or expands beyond reason.
        """
        if self.header.start_s is None:
            return
        with _open(self.path) as file:
            for frame in _FrameReader(self).read(file, 0):
                # A small step back within a member, by which all that follows is moved, shows only to who reads it all.
                if self._end_s is not None:
                    self._end_s = max(self._end_s, frame.at_s)
                yield frame

    def _find_end(self) -> float:
        with _open(self.path) as file:
            found = hops(file)
            if _falls(found):
                return max((frame.at_s for frame in self.iter_frames()), default=self.start_s)
            for offset in reversed([hop.offset for hop in found] or [0]):
                end = max((frame.at_s for frame in _FrameReader(self).read(file, offset)), default=None)
                if end is not None:
                    return max(end, self.start_s)
        return self.start_s

    def _warn(self, text: str) -> None:
        self._warnings.setdefault(text)


def _falls(members: list[Hop]) -> bool:
    """Whether a member begins before the one that it follows: the recorder's clock was set back."""
    return any(after.start_s < before.start_s for before, after in pairwise(members))


class _FrameReader:
    """Decodes records in order; knows which configuration its caller has seen."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._decoder = FrameDecoder()
        self._told: dict[str, dict[str, str]] = {}
        self._owed: dict[str, dict[str, str]] = {}
        self._lost = False

    def read(self, file: BinaryIO, offset: int) -> Iterator[Frame]:
        for frame in onward(self._read(file, offset), self._recording.interval_s, self._recording._warn):
            yield self._tell(frame)

    def _read(self, file: BinaryIO, offset: int) -> Iterator[Frame]:
        for line in read_lines(file, offset, self._recording._warn):
            record = _record(line)
            kind = None if record is None else record.get("kind")
            if record is None or not isinstance(kind, str):
                self._damage()
            elif kind not in _KNOWN:
                self._recording._warn(f"records of kind {shown(kind)} are not known and were left out")
            elif kind == "header":
                self._decoder.begin_member()
                self._lost = False
                if record.get("cluster") != self._recording.raw_cluster:
                    self._recording._warn("the inventory changes within the file; the first one is used")
            elif not self._lost:
                try:
                    frame = self._take(kind, record)
                except _DAMAGED:
                    self._damage()
                    continue
                if frame is not None:
                    yield frame

    def _take(self, kind: str, record: Record) -> Frame | None:
        if kind == "frame":
            return self._decoder.frame(record)
        if kind == "series":
            self._decoder.add_series(record)
        elif kind == "page":
            self._decoder.add_page(record)
        elif kind == "facts":
            self._owe(facts_of(record))
        return None

    def _owe(self, facts: Any) -> None:
        """Remember configuration that no yielded frame has carried."""
        for worker, options in facts.items():
            told = self._told.get(worker, {})
            news = {key: value for key, value in options.items() if told.get(key) != value}
            if news:
                self._owed.setdefault(worker, {}).update(news)

    def _tell(self, frame: Frame) -> Frame:
        if self._owed:
            facts = self._owed
            self._owed = {}
            for worker, options in frame.facts.items():
                facts[worker] = {**facts.get(worker, {}), **options}
            frame = replace(frame, facts=facts)
        for worker, options in frame.facts.items():
            self._told.setdefault(worker, {}).update(options)
        return frame

    def _damage(self) -> None:
        """Values are told against those before, so after a damaged line the rest of the member is not believed."""
        self._lost = True
        self._recording._warn("records that cannot be read were left out, up to the next part of the file")


def open_recording(path: str | os.PathLike[str]) -> Recording:
    """Open a recording and read its header.

    Raises:
        RecordingError: the file is missing, empty, no recording, made by a newer release, or cut off before its header,
            or its header gives a worker id twice.
    """
    name = os.fspath(path)
    with _open(name) as file:
        start = file.read(2)
        if not start:
            raise RecordingError(_WHAT, where=name, why="the file is empty", hint="record again with `pdops record`")
        if start != MAGIC:
            raise RecordingError(
                _WHAT, where=name, why="it is not gzip", hint="give a *.pdrec file made by `pdops record`"
            )
        line = next(read_lines(file, 0, lambda _: None), None)
    if line is None:
        why = "it is cut off or damaged before its header ends"
        raise RecordingError(_WHAT, where=name, why=why, hint="record again with `pdops record`")
    return _recording(name, _record(line))


def _recording(name: str, record: Record | None) -> Recording:
    if record is None or record.get("kind") != "header":
        why = "it does not begin with a header"
        raise RecordingError(_WHAT, where=name, why=why, hint="give a *.pdrec file made by `pdops record`")
    schema = str(record.get("schema"))
    found = SCHEMA_PATTERN.fullmatch(schema)
    if found is None:
        why = f"its schema is {shown(schema)}, expected pdops/rec/v{MAJOR}"
        raise RecordingError(_WHAT, where=name, why=why, hint="give a *.pdrec file made by `pdops record`")
    if int(found[1]) != MAJOR:
        why = f"its schema is {schema}, this release reads pdops/rec/v{MAJOR}"
        raise RecordingError(
            _WHAT, where=name, why=why, hint="read it with the release of pdops that made it, or a newer one"
        )
    try:
        header = RecordingHeader.model_validate(record)
    except ValidationError as problem:
        first = problem.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        why = f"its header is damaged at {place}: {first['msg'].lower()}"
        raise RecordingError(_WHAT, where=name, why=why, hint="record again with `pdops record`") from None
    twice = [worker for worker, n in Counter(w.id for w in header.cluster.workers).items() if n > 1]
    if twice:
        why = f"its header gives worker id {shown(twice[0])} twice, so their values cannot be told apart"
        hint = "give every worker its own id in the inventory and record again with `pdops record`"
        raise RecordingError(_WHAT, where=name, why=why, hint=hint)
    return Recording(name, header, record["cluster"])


def _record(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


def _open(name: str) -> BinaryIO:
    try:
        return open(name, "rb")
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise RecordingError(_WHAT, where=name, why=why, hint="check the path and its permissions") from problem
