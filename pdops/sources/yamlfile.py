"""Read the YAML that people write: bounded in size and depth, no anchors or tags, and with the line of everything.

Scalars follow the YAML 1.2 core schema: `no` and `on` are text, `45e9` is a number, nothing is a date or base 60.
Keys are always text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import yaml

from pdops.errors import PdopsError

MAX_BYTES = 4 << 20
"""The largest file read, in bytes."""
MAX_DEPTH = 32

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INT = re.compile(r"[-+]?[0-9]{1,300}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


class WrittenFloat(float):
    """A number whose text says more than its value: `12.10` is a version as well as 12.1."""

    text: str


class WrittenInt(int):
    """A whole number written otherwise than it prints, such as `007`."""

    text: str


def as_text(value: object) -> str:
    """Return a scalar as it was written, as far as that is still known."""
    return value.text if isinstance(value, WrittenFloat | WrittenInt) else str(value)


@dataclass(frozen=True, slots=True)
class Mark:
    """Where a node begins (1-based line), and its children."""

    line: int
    keys: dict[str, Mark] | None = None
    items: list[Mark] | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """One parsed file: plain data and the line of every node."""

    path: str
    data: Any
    mark: Mark

    def walk(self, loc: Sequence[int | str]) -> tuple[Mark, tuple[int | str, ...]]:
        """Follow a path of keys and indexes as far as it exists, leaving out steps the file does not have.

        Returns:
            The mark that was reached and the steps that led to it.
        """
        mark, taken = self.mark, []
        for step in loc:
            child: Mark | None = None
            if mark.keys is not None and str(step) in mark.keys:
                child = mark.keys[str(step)]
            elif mark.items is not None and isinstance(step, int) and 0 <= step < len(mark.items):
                child = mark.items[step]
            if child is not None:
                mark = child
                taken.append(step)
        return mark, tuple(taken)

    def where(self, *loc: int | str) -> str:
        """Return `file:line` of a path, or of what is nearest to it."""
        return f"{self.path}:{self.walk(loc)[0].line}"


def read_yaml(path: str, *, error: type[PdopsError], what: str) -> Document:
    """Read one YAML file.

    Args:
        path: the file.
        error: class of the error to raise.
        what: first part of the message, such as "inventory cannot be read".

    Raises:
        PdopsError: of class `error`; missing, larger than 4 MiB, not UTF-8, not YAML, a key given twice, an alias,
            a tag, nested too deep, or more than one document.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as problem:
        hint = "check the path" if isinstance(problem, FileNotFoundError) else "check the path and its permissions"
        raise error(what, where=path, why=_reason(problem), hint=hint) from problem
    except ValueError as problem:
        raise error(what, where=repr(path), why=str(problem), hint="check the path") from problem
    if len(raw) > MAX_BYTES:
        raise error(what, where=path, why="it is larger than 4 MiB", hint="split it, or record to a *.pdrec file")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw[: problem.start].count(b"\n") + 1
        why = "it is not UTF-8 text"
        raise error(what, where=f"{path}:{line}", why=why, hint="save it as UTF-8") from problem
    return parse_yaml(text, path=path, error=error, what=what)


def parse_yaml(text: str, *, path: str, error: type[PdopsError], what: str) -> Document:
    """Parse YAML text; see `read_yaml`."""
    return _Composer(text, path, error, what).document()


class _Composer:
    """Builds data and marks from parser events."""

    def __init__(self, text: str, path: str, error: type[PdopsError], what: str) -> None:
        self._path, self._error, self._what = path, error, what
        self._events: Iterator[yaml.Event] = iter(yaml.parse(text, Loader=_Loader))

    def document(self) -> Document:
        try:
            return self._document()
        except yaml.MarkedYAMLError as problem:
            mark = problem.problem_mark or problem.context_mark
            line = mark.line + 1 if mark is not None else 1
            why = "not YAML: " + (problem.problem or str(problem))
            if "cannot start any token" in why:
                self._refuse(line, why, "indent with spaces, not tabs; put text that begins with @, ` or % in quotes")
            self._refuse(line, why, "check quotes, colons and indentation near this line")
        except yaml.YAMLError as problem:
            character = getattr(problem, "character", None)
            why = f"character {character!r} is not allowed" if character is not None else str(problem).splitlines()[0]
            self._refuse(1, f"not YAML: {why}", "remove control characters")

    def _document(self) -> Document:
        event = next(self._events)
        while isinstance(event, yaml.StreamStartEvent | yaml.DocumentStartEvent):
            event = next(self._events)
        if isinstance(event, yaml.StreamEndEvent):
            self._refuse(1, "the file is empty", "`pdops schema` prints the format")
        data, mark = self._node(event, 0)
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                self._refuse(_line(event), "a second document begins here", "keep one document in a file")
        return Document(self._path, data, mark)

    def _node(self, event: yaml.Event, depth: int) -> tuple[Any, Mark]:
        line = _line(event)
        if isinstance(event, yaml.AliasEvent):
            self._refuse(line, f"alias *{event.anchor} is not accepted", "write the value out")
        if getattr(event, "tag", None) is not None:
            self._refuse(line, f"tag {event.tag!r} is not accepted", "write plain values")  # type: ignore[attr-defined]
        if depth > MAX_DEPTH:
            self._refuse(line, f"nested deeper than {MAX_DEPTH} levels", "flatten it")
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(line, depth)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(line, depth)
        assert isinstance(event, yaml.ScalarEvent)
        return (resolve(event.value) if event.implicit[0] else event.value), Mark(line)

    def _sequence(self, line: int, depth: int) -> tuple[list[Any], Mark]:
        items: list[Any] = []
        marks: list[Mark] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item, mark = self._node(event, depth + 1)
            items.append(item)
            marks.append(mark)
        return items, Mark(line, items=marks)

    def _mapping(self, line: int, depth: int) -> tuple[dict[str, Any], Mark]:
        data: dict[str, Any] = {}
        marks: dict[str, Mark] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            at = _line(event)
            if not isinstance(event, yaml.ScalarEvent):
                self._node(event, depth + 1)
                self._refuse(at, "a key is not plain text", "put text with brackets or braces in quotes")
            key = event.value
            if event.implicit[0] and key == "<<":
                self._refuse(at, "merge key '<<' is not accepted", "write the keys out")
            if key in data:
                first = marks[key].line
                self._refuse(at, f"key {key!r} is given twice, first on line {first}", "keep one of them")
            data[key], mark = self._node(next(self._events), depth + 1)
            marks[key] = Mark(at, mark.keys, mark.items)
        return data, Mark(line, keys=marks)

    def _refuse(self, line: int, why: str, hint: str) -> NoReturn:
        raise self._error(self._what, where=f"{self._path}:{line}", why=why, hint=hint)


def resolve(text: str) -> Any:
    """Return the value of a plain scalar by the core schema; integers longer than 300 digits stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text):
        whole = int(text)
        if str(whole) == text:
            return whole
        written = WrittenInt(whole)
        written.text = text
        return written
    if _FLOAT.fullmatch(text):
        value = WrittenFloat(text)
        value.text = text
        return value
    special = _SPECIAL.fullmatch(text)
    return text if special is None else float(text.lower().replace(".", ""))


def _line(event: yaml.Event) -> int:
    return int(event.start_mark.line) + 1 if event.start_mark is not None else 1


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()
