"""What really happened in a recording, schema `pdops/truth/v1`: the file beside it that says what a diagnosis should say."""

from __future__ import annotations

import os
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from pdops.catalog.load import catalog
from pdops.errors import CaseError
from pdops.model.report import Layer, Scope, ScopeKind, Verdict
from pdops.sources.validate import Strict, Text, build, did_you_mean, refuse, shown
from pdops.sources.yamlfile import Document, parse_yaml, read_yaml

_WHAT = "truth cannot be used"
_SAME_S = 1e-6

Seconds = Annotated[float, Field(ge=0)]


class TruthAction(Strict):
    """Something that was done at `t_s` seconds from the start of the recording."""

    t_s: Seconds
    what: Text
    target: Text | None = None


class TruthWindow(Strict):
    """What is true from `from_s` until before `to_s`, in seconds from the start of the recording.

    A `transition` is a span in which more than one verdict is right; it carries none.
    """

    from_s: Seconds
    to_s: Seconds
    transition: bool = False
    verdict: Verdict | None = None
    layers_ok: tuple[Layer, ...] = ()
    causes: tuple[Text, ...] = ()
    scopes: tuple[dict[ScopeKind, Text], ...] = ()

    @field_validator("causes")
    @classmethod
    def _known_causes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for cause in value:
            if cause not in catalog().causes:
                raise refuse(f"unknown cause {shown(cause)}", did_you_mean(cause, catalog().causes, label="causes"))
        return value

    @field_validator("scopes")
    @classmethod
    def _one_key_each(cls, value: tuple[dict[ScopeKind, str], ...]) -> tuple[dict[ScopeKind, str], ...]:
        for scope in value:
            if len(scope) != 1:
                raise refuse("a scope has one key", "write one entry each, such as {worker: decode-0}")
        return value

    @model_validator(mode="after")
    def _sound(self) -> TruthWindow:
        if self.to_s <= self.from_s:
            raise refuse(f"the window from {self.from_s:g} s to {self.to_s:g} s is empty", "to_s comes after from_s")
        if self.transition and (self.verdict or self.layers_ok or self.causes or self.scopes):
            raise refuse("a transition carries no verdict, layers, causes or scopes", "remove them or transition")
        if not self.transition and self.verdict is None:
            raise refuse("neither a verdict nor a transition", "add a verdict, or transition: true")
        if self.verdict in (Verdict.FAULT, Verdict.OVERLOAD) and not self.causes:
            raise refuse(f"{self.verdict} without causes", "name the causes that are right")
        if self.verdict is Verdict.HEALTHY and (self.causes or self.layers_ok):
            raise refuse("healthy with causes or layers", "remove them")
        return self

    def scope_set(self) -> frozenset[Scope]:
        """Return the scopes as nouns."""
        return frozenset(Scope(kind, name) for scope in self.scopes for kind, name in scope.items())


class Truth(Strict):
    """The truth about one recording. Windows follow each other without gap or overlap, from 0."""

    schema_: Annotated[Literal["pdops/truth/v1"], Field(alias="schema")]
    source: Literal["recorded", "simulated"]
    versions: dict[str, Text] = Field(default_factory=dict)
    command: Text
    actions: tuple[TruthAction, ...] = ()
    windows: Annotated[tuple[TruthWindow, ...], Field(min_length=1)]

    @property
    def end_s(self) -> float:
        """Seconds from the start to the end of the last window."""
        return self.windows[-1].to_s

    def at(self, t_s: float) -> TruthWindow | None:
        """Return the window of a moment, in seconds from the start; None outside the recording."""
        if t_s == self.end_s:
            return self.windows[-1]
        return next((w for w in self.windows if w.from_s <= t_s < w.to_s), None)


def load_truth(path: str | os.PathLike[str], *, duration_s: float | None = None) -> Truth:
    """Read the truth beside a recording.

    Args:
        path: the file, by convention `NAME.truth.yaml` beside `NAME.pdrec`.
        duration_s: length of the recording; every whole second of it must be covered.

    Raises:
        CaseError: the file cannot be read or is not valid; says file and line, what was expected, and a hint.
    """
    return _truth(read_yaml(os.fspath(path), error=CaseError, what=_WHAT), duration_s)


def parse_truth(text: str, path: str = "truth.yaml", *, duration_s: float | None = None) -> Truth:
    """Read the truth from text; `path` is used for messages. See `load_truth`."""
    return _truth(parse_yaml(text, path=path, error=CaseError, what=_WHAT), duration_s)


def _truth(document: Document, duration_s: float | None) -> Truth:
    truth = build(Truth, document, error=CaseError, what=_WHAT)
    end = 0.0
    for index, window in enumerate(truth.windows):
        where = document.where("windows", index)
        if window.from_s > end + _SAME_S:
            why = f"no window covers {end:g} s to {window.from_s:g} s"
            raise CaseError(_WHAT, where=where, why=why, hint="add a window, or a transition: true")
        if window.from_s < end - _SAME_S:
            why = f"{window.from_s:g} s to {min(end, window.to_s):g} s is in more than one window"
            raise CaseError(_WHAT, where=where, why=why, hint="sort the windows and let each begin where the last ends")
        end = window.to_s
    if duration_s is not None and end < int(duration_s):
        why = f"no window covers {end:g} s to {duration_s:g} s, the end of the recording"
        raise CaseError(_WHAT, where=document.where("windows"), why=why, hint="add a window, or a transition: true")
    return truth
