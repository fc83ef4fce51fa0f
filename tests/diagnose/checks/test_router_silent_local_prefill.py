"""router/silent-local-prefill: decode computes prompts that prefill should have computed."""

from __future__ import annotations

import pytest

from pdops.diagnose.finding import DECISIVE, STRONG, Status
from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, groups, one, sound, view

ID = "router/silent-local-prefill"


def tokens(local: float | None, external: float | None) -> Given:
    given = {
        "local_prefill_tokens": None if local is None else (0.0, local),
        "external_kv_tokens": None if external is None else (0.0, external),
    }
    return but(sound(), {"decode-0": given})


@pytest.mark.parametrize(("local", "fires"), [(500, False), (501, True)])
def test_five_percent_of_the_prompt_tokens(local: float, fires: bool) -> None:
    found = ask(ID, view(series=tokens(local, 10_000 - local)))
    assert causes(found) == (["silent-local-prefill"] if fires else [])
    assert causes(found, Status.CLEAR) == ([] if fires else ["silent-local-prefill"])


@pytest.mark.parametrize(("local", "ratio"), [(5_000, STRONG), (5_001, DECISIVE)])
def test_most_of_the_tokens_is_decisive(local: float, ratio: float) -> None:
    found = one(ask(ID, view(series=tokens(local, 10_000 - local))))
    assert max(w.ratio for w in found.for_ if w.group == "share") == ratio


@pytest.mark.parametrize(("total", "known"), [(99, False), (100, True)])
def test_too_few_tokens_say_nothing(total: float, known: bool) -> None:
    assert bool(ask(ID, view(series=tokens(total, 0)))) is known


@pytest.mark.parametrize(("local", "external"), [(None, 10_000.0), (10_000.0, None)])
def test_without_both_counters_nothing_is_said(local: float | None, external: float | None) -> None:
    assert ask(ID, view(series=tokens(local, external))) == ()


def test_no_byte_moved_speaks_for_it_and_preemption_against() -> None:
    quiet = {"decode-0": {"kv_transfer_bytes": (0, 0)}}
    assert "bytes" in groups(one(ask(ID, view(series=but(tokens(9_000, 0), quiet)))))
    preempting = {"decode-0": {"preemptions": (0, 40)}}
    found = one(ask(ID, view(series=but(tokens(1_000, 9_000), preempting))))
    assert [w.evidence.signal for w in found.against] == ["preemptions"]


def test_pool_totals_are_enough() -> None:
    given = {"pool:decode": {"local_prefill_tokens": (0, 9_000), "external_kv_tokens": (0, 1_000)}}
    found = one(ask(ID, view(series=given)))
    assert [str(s) for s in found.scopes] == ["pool decode"]


def test_report() -> None:
    bypassed = {
        "decode-0": {"kv_transfer_bytes": (240e9, 0), "itl_seconds.mean": (0.02, 0.08)},
        "client": {"itl_seconds.p95": (0.02, 0.12)},
    }
    report = golden(ID, view(series=but(tokens(120_000, 0), bypassed)))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "silent-local-prefill"
    assert "scale-out-decode" in [d.action for d in report.top.do_not]
    assert "decode-undersized" in [r.cause for r in report.ruled_out]
