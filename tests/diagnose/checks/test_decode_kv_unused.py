"""decode/kv-unused: KV that arrives and is computed again since prompts grew."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, Points, ask, but, causes, golden, groups, one, sound, view

ID = "decode/kv-unused"


def unused(length: Points = (16_000, 32_000), local: Points = (2_000, 110_000), more: Given | None = None) -> Given:
    given = {
        "prefill-0": {"prompt_length.mean": length},
        "decode-0": {"local_prefill_tokens": local, "external_kv_tokens": (240_000, 0)},
    }
    return but(but(sound(), given), more or {})


def test_prompts_grew_and_decode_computes_what_it_was_sent() -> None:
    found = one(ask(ID, view(series=unused())))
    assert groups(found) == {"computed", "arrives", "length"}


@pytest.mark.parametrize(("now", "fires"), [(24_000, False), (24_001, True)])
def test_half_as_long_again(now: float, fires: bool) -> None:
    assert bool(causes(ask(ID, view(series=unused((16_000, now)))))) is fires


def test_decode_that_always_computed_is_another_story() -> None:
    given = {"decode-0": {"local_prefill_tokens": (110_000, 110_000), "external_kv_tokens": (0, 0)}}
    assert causes(ask(ID, view(series=unused(more=given)))) == []


@pytest.mark.parametrize(("signal", "points"), [("kv_transfer_bytes", (240e9, 0)), ("kv_transfer_failures", (0, 3))])
def test_kv_that_does_not_arrive_fills_no_buffer(signal: str, points: Points) -> None:
    assert causes(ask(ID, view(series=unused(more={"decode-0": {signal: points}})))) == []


def test_where_bytes_are_not_told_the_rest_stands() -> None:
    found = one(ask(ID, view(series=unused(more={"decode-0": {"kv_transfer_bytes": None}}))))
    assert groups(found) == {"computed", "length"}


def test_report() -> None:
    report = golden(ID, view(series=unused()))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert report.top.cause == "staging-buffer-exhausted"
