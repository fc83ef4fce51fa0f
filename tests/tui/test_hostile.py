"""Names and lines from outside can be anything: no screen breaks, and nothing of them reaches the terminal but text."""

from __future__ import annotations

import dataclasses
import unicodedata

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from pdops.model.cluster import Role
from pdops.model.frame import Event, EventKind, LogLine, Probe, ProbeKind
from pdops.model.report import Evidence, Hypothesis, Layer, Missing, RuledOut, Scope, Verdict
from pdops.model.view import View
from pdops_tui import places as at
from pdops_tui.draw.line import Line, width_of
from pdops_tui.models.screen import build
from pdops_tui.places import Place, crumbs
from pdops_tui.screens import KINDS, sheet
from pdops_tui.screens.scene import Scene
from pdops_tui.session import MATRIX_VALUES, MatrixWish, Session
from pdops_tui.snapshot import Snapshot
from tests.tui import build as b
from tests.tui.states import paired

NASTY = st.one_of(
    st.sampled_from(
        [
            "\x1b[2J\x1b[31m", "[bold red]x[/]", "節点節点節点", "a\u0301\u0302", "\u202eevil", "\u200b\u200d", "👩‍👩‍👧‍👦", "\x9b31m",
            "a\tb\nc\rd", "{x}%s$(y)", "ﷺ", "\ud800", "x" * 300, "", " ", "\x07\x08\x7f", "]8;;http://h\x1b\\", "🇩🇪", "\ufeff",
        ]
    ),
    st.text(max_size=40),
)  # fmt: skip


def hostile(nasty: str) -> tuple[View, Snapshot]:
    """Return a cluster with the text in every name, and all that can be said with it."""
    sound = b.cluster(2, 2, store=True)
    # The number stays last, since the double of an engine reads it.
    ids = {w.id: f"{w.role.value}{nasty}-{w.id.rpartition('-')[2]}" for w in sound.workers}
    workers = tuple(
        dataclasses.replace(w, id=ids[w.id], pool=w.pool + nasty, node=nasty, zone=nasty, version=nasty, url=f"http://{nasty}/")
        for w in sound.workers
    )  # fmt: skip
    who = dataclasses.replace(sound, name=nasty, model=nasty, workers=workers)
    first = next(w.id for w in workers if w.role is Role.DECODE)
    at_s = b.START_S + 3
    events = (Event(t_s=at_s, kind=EventKind.RESTART, worker=first, detail=nasty, revision=nasty),)
    view = dataclasses.replace(
        b.view(who, seconds=6, life=paired(b.healthy), events=events),
        logs=(LogLine(t_s=at_s, worker=first, line=nasty),),
        probes=(Probe(t_s=at_s, kind=ProbeKind.CANARY, ok=False, worker=first, detail=nasty),),
        facts={first: {"block_size": nasty, nasty: nasty}},
    )
    seen = Evidence(signal="kv_cache_usage", scope=Scope("worker", first), observed=nasty, expected=0.9, basis="peer")
    said = Hypothesis(
        fault=1, cause=nasty, check=nasty, layer=Layer.DECODE, confidence=0.5, scopes=(Scope("worker", first),), for_=(seen,),
        missing=(Missing(signal=nasty, why=nasty, fix=nasty),), next=(nasty,), runbooks=(nasty,),
    )  # fmt: skip
    report = b.report(view, Verdict.FAULT, hypotheses=(said,), ruled_out=(RuledOut(cause=nasty, because=nasty),))
    return view, b.snapshot(view, report)


def sound(line: Line, width: int) -> None:
    """Check that a line fits and holds nothing that a terminal would obey or that moves what follows."""
    assert width_of(line) <= width
    for text, _ in line:
        for char in text:
            assert unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Zl", "Zp", "Mn", "Me"), repr(char)
            assert unicodedata.bidirectional(char) not in ("R", "AL", "RLO", "LRO", "RLE", "LRE")


@settings(max_examples=25, deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.too_slow])
@given(nasty=NASTY, width=st.integers(20, 210), value=st.sampled_from(MATRIX_VALUES))
def test_no_screen_lets_anything_through(nasty: str, width: int, value: str) -> None:
    view, snapshot = hostile(nasty)
    session = Session(matrix=MatrixWish(value=value))  # type: ignore[arg-type]
    data = build(snapshot, session)
    decode = next(w for w in view.cluster.workers if w.role is Role.DECODE)
    prefill = next(w for w in view.cluster.workers if w.role is Role.PREFILL)
    about = {
        at.POOL: decode.pool, at.WORKER: decode.id, at.PAIR: f"{prefill.id}>{decode.id}",
        at.RUNBOOK: "kv-transfer-relief", at.CONFIRM: nasty,
    }  # fmt: skip
    for kind in KINDS:
        place = Place(kind, about.get(kind, ""))
        made = sheet(Scene(place=place, width=width, height=30, data=data, session=session))
        for line in made.lines:
            sound(line, width)
        for target in made.targets:
            assert 0 <= target.line < len(made.lines)
            assert 0 <= target.start < width
        sound(((crumbs([place, Place(kind, nasty)]), ""),), 400)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("about", ["", "nobody", "a>b", ">", "\x1b[2J"])
def test_a_place_about_nobody_says_so(kind: str, about: str) -> None:
    data = build(b.snapshot(b.view(seconds=3), None))
    made = sheet(Scene(place=Place(kind, about), width=80, height=24, data=data))
    assert made.lines
    for line in made.lines:
        sound(line, 80)
