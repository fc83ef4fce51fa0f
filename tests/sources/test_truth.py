"""The truth beside a recording."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdops.errors import CaseError
from pdops.model.report import Layer, Scope, Verdict
from pdops.sources.truth import load_truth, parse_truth

GOOD = """\
schema: pdops/truth/v1
source: recorded
versions: {vllm: 0.32.0, nixl: 1.5.1}
command: python -m rig.scenarios decode-killed-replaced
actions:
  - {t_s: 95.2, what: kill -9, target: decode-0}
windows:
  - {from_s: 0, to_s: 95.2, verdict: healthy}
  - {from_s: 95.2, to_s: 105, transition: true}
  - {from_s: 105, to_s: 140, verdict: fault, layers_ok: [decode], causes: [decode-down], scopes: [{worker: decode-0}]}
  - {from_s: 140, to_s: 240, transition: true}
"""


def test_the_truth_arrives(tmp_path: Path) -> None:
    file = tmp_path / "x.truth.yaml"
    file.write_text(GOOD)
    truth = load_truth(file, duration_s=240.9)
    assert (truth.source, truth.versions["nixl"], truth.end_s) == ("recorded", "1.5.1", 240)
    assert (truth.actions[0].t_s, truth.actions[0].target) == (95.2, "decode-0")
    fault = truth.at(105)
    assert fault is not None
    assert (fault.verdict, fault.layers_ok, fault.causes) == (Verdict.FAULT, (Layer.DECODE,), ("decode-down",))
    assert fault.scope_set() == {Scope("worker", "decode-0")}
    assert truth.at(240) is truth.windows[-1]
    assert truth.at(241) is None
    assert truth.at(-1) is None


@given(st.floats(0, 240))
def test_every_moment_is_in_one_window(t_s: float) -> None:
    truth = parse_truth(GOOD)
    window = truth.at(t_s)
    assert window is not None
    assert window.from_s <= t_s <= window.to_s


@pytest.mark.parametrize(
    ("old", "new", "line", "why", "hint"),
    [
        ("from_s: 0,", "from_s: 1,", 8, "no window covers 0 s to 1 s", "add a window, or a transition: true"),
        (
            "{from_s: 105,",
            "{from_s: 106,",
            10,
            "no window covers 105 s to 106 s",
            "add a window, or a transition: true",
        ),
        (
            "{from_s: 105,",
            "{from_s: 100,",
            10,
            "100 s to 105 s is in more than one window",
            "sort the windows and let each begin where the last ends",
        ),
        (
            "to_s: 240, ",
            "to_s: 200, ",
            7,
            "no window covers 200 s to 240.9 s, the end of the recording",
            "add a window, or a transition: true",
        ),
        (
            "to_s: 105",
            "to_s: 95.2",
            9,
            "windows[1]: the window from 95.2 s to 95.2 s is empty",
            "to_s comes after from_s",
        ),
        (
            "to_s: 105, transition: true",
            "to_s: 105, transition: true, verdict: fault",
            9,
            "windows[1]: a transition carries no verdict, layers, causes or scopes",
            "remove them or transition",
        ),
        (
            "to_s: 105, transition: true",
            "to_s: 105",
            9,
            "windows[1]: neither a verdict nor a transition",
            "add a verdict, or transition: true",
        ),
        ("causes: [decode-down], ", "", 10, "windows[2]: fault without causes", "name the causes that are right"),
        (
            "verdict: healthy",
            "verdict: healthy, causes: [decode-down]",
            8,
            "windows[0]: healthy with causes or layers",
            "remove them",
        ),
        (
            "[decode-down]",
            "[decode-dwn]",
            10,
            "windows[2].causes: unknown cause 'decode-dwn'",
            "did you mean 'decode-down'?",
        ),
        (
            "{worker: decode-0}",
            "{worker: decode-0, pool: decode}",
            10,
            "windows[2].scopes: a scope has one key",
            "write one entry each, such as {worker: decode-0}",
        ),
        (
            "{worker: decode-0}",
            "{host: decode-0}",
            10,
            "windows[2].scopes[0].host: expected one of worker, pool, pair, node, zone, global; got 'host'",
            "choose from: worker, pool, pair, node, zone, global",
        ),
        (
            "source: recorded",
            "source: made-up",
            2,
            "source: expected one of recorded, simulated; got 'made-up'",
            "choose from: recorded, simulated",
        ),
        (
            "t_s: 95.2, what",
            "t: 95.2, what",
            6,
            "unknown key 't' in actions[0] (and 1 more)",
            "known: t_s, what, target",
        ),
        ("windows:", "window:", 7, "unknown key 'window' (and 1 more)", "did you mean 'windows'?"),
    ],
)
def test_a_bad_truth_says_where_what_and_what_to_do(old: str, new: str, line: int, why: str, hint: str) -> None:
    assert old in GOOD
    with pytest.raises(CaseError) as caught:
        parse_truth(GOOD.replace(old, new, 1), duration_s=240.9)
    assert str(caught.value) == f"truth cannot be used: truth.yaml:{line}: {why}"
    assert caught.value.hint == hint
