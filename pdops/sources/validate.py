"""Say what is wrong in a file a person wrote: file, line, what was expected, and what to do."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, TypeVar, get_args, get_type_hints
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from pdops.errors import PdopsError
from pdops.sources.yamlfile import Document, as_text

_ModelT = TypeVar("_ModelT", bound=BaseModel)
_SHOWN = 60
_FORMAT = "`pdops schema` prints the format"


class Strict(BaseModel):
    """Base of what people write: unknown keys are errors, instances do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def refuse(why: str, hint: str) -> PydanticCustomError:
    """Return an error for a validator to raise, with its hint."""
    return PydanticCustomError("pdops", "{why}", {"why": why, "hint": hint})


def did_you_mean(word: str, known: Iterable[str], *, label: str = "known") -> str:
    """Return a hint naming the nearest known word, or the known ones when none is near."""
    known = [str(entry) for entry in known]
    near = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.6)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"{label}: {', '.join(known)}"


def web_address(url: str) -> str:
    """Check that a text is an http or https URL with a host and without credentials, and return it without end slash.

    Raises:
        PydanticCustomError: it is not.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as problem:
        raise refuse(f"not a URL: {str(problem).lower()}", "write it as http://host:port") from problem
    if "@" in parts.netloc:
        why = "credentials in a URL are not accepted"
        raise refuse(why, "use bearer_token_file or basic_auth with password_file")
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise refuse(f"not an http or https URL: {shown(url)}", "write it as http://host:port")
    if not parts.hostname or port == 0 or any(c.isspace() or not c.isprintable() for c in url):
        raise refuse(f"not a usable URL: {shown(url)}", "write it as http://host:port")
    return url.rstrip("/")


Url = Annotated[str, AfterValidator(web_address)]
Positive = Annotated[float, Field(gt=0)]
Ratio = Annotated[float, Field(gt=0, le=1)]


def _text(value: object) -> object:
    return as_text(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _printable(value: str) -> str:
    if not value.strip():
        raise refuse("expected text, got none", "write a name, or leave the key out")
    if not value.isprintable():
        raise refuse(f"control characters are not accepted: {shown(value)}", "remove them")
    return value


Text = Annotated[str, BeforeValidator(_text), AfterValidator(_printable)]
"""Text of one line; a number is taken as it was written."""


def build(model: type[_ModelT], document: Document, *, error: type[PdopsError], what: str) -> _ModelT:
    """Validate a document.

    Raises:
        PdopsError: of class `error`, about the first problem in the file, with its line.
    """
    if not isinstance(document.data, dict):
        why = f"expected keys and values, got {_kind(document.data)}"
        raise error(what, where=document.where(), why=why, hint=_FORMAT)
    try:
        return model.model_validate(document.data)
    except ValidationError as problem:
        details = problem.errors(include_url=False)
        # A mistyped key also makes the right one missing; the typo is told first.
        typos = {d["loc"][:-1] for d in details if d["type"] == "extra_forbidden"}
        first = min(
            details,
            key=lambda d: (
                d["type"] == "missing" and d["loc"][:-1] in typos,
                document.walk(d["loc"])[0].line,
                d["type"] == "missing",
            ),
        )
        why, hint = explain(model, document, first)
        if len(details) > 1:
            why += f" (and {len(details) - 1} more)"
        raise error(what, where=document.where(*first["loc"]), why=why, hint=hint) from None


def explain(model: type[BaseModel], document: Document, detail: ErrorDetails) -> tuple[str, str]:
    """Return (why, hint) of one validation error, in words of the file."""
    loc, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    _, taken = document.walk(loc)
    place = path_text(taken)
    got = shown(detail["input"])
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        key = str(loc[-1])
        inside = path_text(taken[:-1])
        return f"unknown key {key!r}" + (f" in {inside}" if inside else ""), did_you_mean(key, _keys(model, loc[:-1]))
    if kind == "missing":
        what = f"entry {loc[-1] + 1}" if isinstance(loc[-1], int) else f"key {loc[-1]!r}"
        return f"{what} is missing" + (f" in {place}" if place else ""), "add it"
    lead = f"{place}: " if place else ""
    if kind == "pdops":
        return lead + str(context["why"]), str(context["hint"])
    if kind in ("enum", "literal_error"):
        words = str(context["expected"]).replace("'", "").replace(" or ", ", ").split(", ")
        expected = f"one of {', '.join(words)}" if len(words) > 1 else words[0]
        return f"{lead}expected {expected}; got {got}", did_you_mean(str(detail["input"]), words, label="choose from")
    if kind == "string_type" and not isinstance(detail["input"], dict | list | None):
        return f"{lead}expected text, got {got}", "put it in quotes"
    message = detail["msg"].removeprefix("Input should be ")
    expected = _EXPECTED.get(kind, message[:1].lower() + message[1:])
    return f"{lead}expected {expected}, got {got}", _FORMAT


_EXPECTED = {
    "string_type": "text",
    "too_short": "at least one entry",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "keys and values",
    "mapping_type": "keys and values",
    "model_type": "keys and values",
    "model_attributes_type": "keys and values",
}


def path_text(loc: Sequence[int | str]) -> str:
    """Return a path as people write it: `workers[2].role`."""
    text = ""
    for step in loc:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def shown(value: object) -> str:
    """Return a value for a message: one line, cut, control characters escaped."""
    if isinstance(value, dict | list | tuple):
        return _kind(value) if value else "none"
    text = value if isinstance(value, str) else "nothing" if value is None else as_text(value)
    text = text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
    return repr(text) if isinstance(value, str) else text


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "keys and values"
    return "a list" if isinstance(value, list | tuple) else "nothing" if value is None else "a single value"


def _keys(model: type[BaseModel], loc: Sequence[int | str]) -> list[str]:
    """Return the keys known at a place of a model."""
    here: list[Any] = [model]
    for step in loc:
        below: list[Any] = []
        for kind in here:
            below += _models(_fields(kind).get(str(step)))
        here = below or here
    return [name for kind in here for name in _fields(kind)]


def _fields(kind: Any) -> dict[str, Any]:
    """Return the annotations of a model or dataclass by the names people write."""
    if dataclasses.is_dataclass(kind):
        return dict(get_type_hints(kind))
    return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}


def _models(annotation: Any) -> list[Any]:
    if isinstance(annotation, type) and (issubclass(annotation, BaseModel) or dataclasses.is_dataclass(annotation)):
        return [annotation]
    return [found for arg in get_args(annotation) for found in _models(arg)]
