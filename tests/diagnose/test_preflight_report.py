"""What `pdops preflight` publishes, for scripts and for people."""

from __future__ import annotations

import json

import jsonschema
import pytest

from pdops.diagnose.finding import CheckMeta, Finding, Tier
from pdops.diagnose.preflight import Outcome, Result, Seen, agrees, must, not_applicable, unread, warn
from pdops.diagnose.preflight_report import PreflightReport, Reason, report, schema, to_dict, to_json
from pdops.diagnose.preflight_run import run_preflight
from pdops.diagnose.preflight_text import render
from tests.diagnose.build import view

AT = "2026-11-29T12:00:00Z"
CAUSE = "config-asymmetry"
SIDES = [Seen("prefill-0", "block_size", "16"), Seen("decode-0", "block_size", "32")]
BAD = must(CAUSE, SIDES, "the same on both", "set --block-size 16 on decode-0")


def _meta(name: str) -> CheckMeta:
    return CheckMeta(
        id=f"pair/{name}",
        title=f"{name} agrees",
        causes=(CAUSE,),
        needs=(),
        tier=Tier.PAIR,
        no_alert="configuration",
        preflight=True,
    )


def _report(*results: tuple[str, tuple[Finding, ...]], reasons: tuple[Reason, ...] = ()) -> PreflightReport:
    made: list[Result] = [(_meta(name), findings) for name, findings in results]
    return report(made, cluster="prod", at=AT, unread=reasons)


def _one(*findings: Finding, reasons: tuple[Reason, ...] = ()) -> PreflightReport:
    return _report(("x", findings), reasons=reasons)


@pytest.mark.parametrize(
    ("findings", "status", "ok"),
    [
        ((BAD,), Outcome.FAIL, False),
        ((BAD, agrees(CAUSE, "the rest agrees")), Outcome.FAIL, False),
        ((warn(CAUSE, SIDES, "x"), agrees(CAUSE, "y")), Outcome.WARN, True),
        ((warn(CAUSE, SIDES, "x"), unread(CAUSE, "prefill-0", "dtype", "not read")), Outcome.UNKNOWN, True),
        ((agrees(CAUSE, "block_size is 16"),), Outcome.OK, True),
        ((not_applicable(CAUSE, "no pair"), agrees(CAUSE, "y")), Outcome.OK, True),
        ((not_applicable(CAUSE, "no pair"),), Outcome.NOT_APPLICABLE, True),
    ],
)
def test_a_check_comes_to_its_gravest_finding(findings: tuple[Finding, ...], status: Outcome, ok: bool) -> None:
    made = _one(*findings)
    assert made.checks[0].status is status
    assert made.ok is ok


def test_values_stand_side_by_side_with_what_was_expected_and_the_fix() -> None:
    (check,) = to_dict(_one(BAD))["checks"]
    assert check["values"] == [
        {"scope": {"worker": "prefill-0"}, "option": "block_size", "value": "16", "unit": ""},
        {"scope": {"worker": "decode-0"}, "option": "block_size", "value": "32", "unit": ""},
    ]
    assert (check["expected"], check["next"]) == ("the same on both", ["set --block-size 16 on decode-0"])
    assert (check["cause"], check["layer"]) == (CAUSE, "config")


@pytest.mark.parametrize(
    ("fact", "key"),
    [
        ("dtype", "dtype"),
        ("dtype", "command line"),
        ("UCX_TLS", "environment.*"),
        ("host.gpus", "host.*"),
        ("reach.http", "reach.*"),
    ],
)
def test_the_reason_why_a_fact_could_not_be_read_stands_beside_it(fact: str, key: str) -> None:
    made = _one(
        unread(CAUSE, "prefill-0", fact, "it was not read"),
        reasons=(Reason("prefill-0", key, "permission denied"), Reason("decode-0", key, "another")),
    )
    assert made.checks[0].missing[0].why == "it was not read (permission denied)"


def test_a_reason_of_one_end_of_a_pair_names_it() -> None:
    made = _one(
        unread(CAUSE, "prefill-0>decode-0", "host.name", "no"), reasons=(Reason("decode-0", "host.*", "remote"),)
    )
    assert made.checks[0].missing[0].why == "no (decode-0: remote)"


def test_the_published_json_follows_its_schema_and_counts_each_check_once() -> None:
    made = _report(
        ("a", (BAD,)),
        ("b", (unread(CAUSE, None, "dtype", "no"),)),
        ("c", (agrees(CAUSE, "y"),)),
        ("d", (not_applicable(CAUSE, "z"),)),
        ("e", (warn(CAUSE, [Seen("prefill-0>decode-0", "mtu", 1500.0, "bytes")], "9000"),)),
        reasons=(Reason("prefill-0", "dtype", "why"),),
    )
    document = json.loads(to_json(made))
    jsonschema.validate(document, schema(), format_checker=jsonschema.FormatChecker())
    assert document["counts"] == {"ok": 1, "fail": 1, "warn": 1, "unknown": 1, "not_applicable": 1}
    assert document["ok"] is False
    assert to_json(made) == to_json(made)


def test_the_report_of_the_real_checks_follows_the_schema() -> None:
    for facts in ({}, {"prefill-0": {"block_size": "16"}, "decode-0": {"block_size": "32"}}):
        made = report(run_preflight(view(facts=facts)), cluster="prod", at=AT)
        jsonschema.validate(to_dict(made), schema())
        assert sum(to_dict(made)["counts"].values()) == len(made.checks)
        assert render(made).endswith("\n")


def test_text_puts_what_must_be_fixed_first_and_aligns_values() -> None:
    made = _report(
        ("fine", (agrees(CAUSE, "y"),)),
        ("vague", (unread(CAUSE, ["prefill-0", "decode-0"], "dtype", "not read", "read it"),)),
        ("bad", (BAD,)),
        ("else", (not_applicable(CAUSE, "z"),)),
    )
    assert render(made) == (
        "[X] FIX FIRST  prod\n"
        "    1 fail, 1 unknown, 1 ok, 1 not-applicable\n"
        "\n"
        "[X] pair/bad  bad agrees\n"
        "                prefill-0  decode-0\n"
        "    block_size  16         32\n"
        "    expected: the same on both\n"
        "    fix: set --block-size 16 on decode-0\n"
        "\n"
        "[?] pair/vague  dtype of prefill-0, decode-0\n"
        "\n"
        "ok  pair/fine  y\n"
        "\n"
        " -  not applicable: pair/else\n"
    )


def test_a_wide_table_is_stacked() -> None:
    seen = [Seen(f"prefill-{n}", "UCX_TLS", f"{'rc,' * n}tcp") for n in range(9)]
    lines = render(_one(must(CAUSE, seen, "one")), width=80).splitlines()
    assert "    UCX_TLS  prefill-0  tcp" in lines
    assert all(len(line) <= 80 for line in lines)


def test_nothing_from_outside_reaches_the_terminal_as_a_command() -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202e16\n[X] forged"
    made = _one(
        must(CAUSE, [Seen("prefill-0", evil, evil)], evil, evil),
        unread(CAUSE, "decode-0", evil, evil, evil),
        agrees(CAUSE, evil),
    )
    text = render(made, style=lambda text, _look: f"\x1b[1m{text}\x1b[0m")
    bare = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert not any((ord(c) < 32 and c != "\n") or c == "\u202e" for c in bare)
    assert not any(line.startswith("[X] forged") for line in bare.splitlines())


def test_a_report_without_checks_is_not_ready() -> None:
    assert render(_report()).startswith("[?] NOT ALL KNOWN")


def test_unknowns_are_short_and_their_reasons_are_told_once() -> None:
    lost = unread(CAUSE, [f"prefill-{n}" for n in range(9)], "dtype", "not read", "read it")
    made = _one(lost, reasons=tuple(Reason(f"prefill-{n}", "command line", "permission denied") for n in range(2)))
    text = render(made)
    assert "[?] pair/x  dtype of prefill-0, prefill-1, prefill-2, prefill-3 and 5 more\n" in text
    assert "not read, and why\n    prefill-0, prefill-1: command line: permission denied\n" in text
    full = render(made, full=True)
    assert "dtype (prefill-0, prefill-1): not read (permission denied) -> read it" in full
    assert "prefill-8" in full


def test_long_lists_are_cut_and_told() -> None:
    lost = [unread(CAUSE, "prefill-0", f"fact_{n}", "no") for n in range(9)]
    assert "and 5 more (--full lists them)" in render(_one(BAD, *lost))
    assert "fact_8" in render(_one(BAD, *lost), full=True)
