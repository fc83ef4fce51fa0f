"""The engine: weighing, explaining away, numbering faults, abstaining, and never calling the unknown healthy."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdops.diagnose.candidate import ABSTAIN, LEAK, PRIOR, confidence, leak
from pdops.diagnose.checks import CHECKS
from pdops.diagnose.context import Context
from pdops.diagnose.encode import to_json
from pdops.diagnose.engine import diagnose
from pdops.diagnose.faults import MAX_FAULTS
from pdops.diagnose.finding import (
    ANYTHING,
    DECISIVE,
    MODERATE,
    STRONG,
    WEAK,
    Check,
    CheckMeta,
    Finding,
    Status,
    Tier,
    Weighed,
    clear,
    not_known,
)
from pdops.diagnose.ground import YOUNG_CAP
from pdops.diagnose.ttft import stages
from pdops.diagnose.vitals import VITAL
from pdops.diagnose.weigh import MARGIN, MAX_HYPOTHESES, MISSING_CAP, UNEXPLAINING_CAP
from pdops.model.cluster import Role
from pdops.model.frame import Event, EventKind
from pdops.model.report import Basis, Evidence, Layer, Missing, Report, Scope, Symptom, Verdict
from pdops.model.series import Series
from pdops.model.view import Health, Presence, View
from tests.diagnose.build import Given, Points, but, canary, line, restart, sound, view, worker

T = TypeVar("T")
WORKERS = ("prefill-0", "prefill-1", "decode-0", "decode-1")


def shuffled(rng: random.Random, items: Sequence[T]) -> tuple[T, ...]:
    return tuple(rng.sample(list(items), len(items)))


def seen(ratio: float, group: str = "g", text: str = "x") -> Weighed:
    return Weighed(Evidence(signal="s", scope=None, observed=text, expected=None, basis="physics"), ratio, group)


def fault(
    cause: str,
    *weights: float,
    on: str | None = None,
    against: Sequence[Weighed] = (),
    layer: Layer | None = None,
    cap: float = 0.97,
    missing: tuple[Missing, ...] = (),
    verdict: Verdict = Verdict.FAULT,
) -> Finding:
    scopes = () if on is None else (Scope("pair" if ">" in on else "worker", on),)
    for_ = tuple(seen(w, f"g{i}", f"{cause} {i}") for i, w in enumerate(weights))
    return Finding(
        status=Status.FIRED,
        cause=cause,
        scopes=scopes,
        for_=for_,
        against=tuple(against),
        layer=layer,
        cap=cap,
        missing=missing,
        verdict=verdict,
        next=(f"look at {cause}",),
    )


def check(
    name: str, *findings: Finding, tier: Tier = Tier.PAIR, explains: tuple[str, ...] = (), id: str | None = None
) -> Check:
    def run(_: Context) -> Iterator[Finding]:
        yield from findings

    meta = CheckMeta(id=id or f"pair/{name}", title=name, causes=(), needs=(), tier=tier, explains=explains)
    return Check(meta, run)


def judge(*checks: Check, changes: Given | None = None) -> Report:
    return diagnose(view(workers=WORKERS, series=but(sound(2, 2), changes or {})), checks)


def listed(report: Report) -> list[str]:
    return [h.cause for h in report.hypotheses]


# weighing


def test_without_evidence_the_prior_stands() -> None:
    assert confidence((), ()) == pytest.approx(PRIOR)


@pytest.mark.parametrize(("ratio", "value"), [(DECISIVE, 0.917), (STRONG, 0.690), (MODERATE, 0.400), (WEAK, 0.217)])
def test_one_observation_of_each_weight(ratio: float, value: float) -> None:
    assert confidence([seen(ratio)], ()) == pytest.approx(value, abs=5e-4)


def test_a_group_has_one_vote_its_greatest() -> None:
    alone = confidence([seen(STRONG)], ())
    assert confidence([seen(STRONG), seen(STRONG, text="y"), seen(WEAK)], ()) == alone
    assert confidence([seen(STRONG), seen(STRONG, "other")], ()) > alone


def test_evidence_against_undoes_evidence_for() -> None:
    assert confidence([seen(STRONG)], [seen(STRONG, "h")]) == pytest.approx(PRIOR)
    assert confidence((), [seen(STRONG)]) < PRIOR


@given(
    st.lists(st.tuples(st.sampled_from([WEAK, MODERATE, STRONG, DECISIVE]), st.sampled_from("abc")), max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_order_of_evidence_does_not_matter(items: list[tuple[float, str]], rng: random.Random) -> None:
    evidence = [seen(*item) for item in items]
    assert confidence(evidence, ()) == confidence(shuffled(rng, evidence), ())
    assert 0.0 < confidence(evidence, ()) < 1.0


def test_caps() -> None:
    assert judge(check("a", fault("gpu-oom", DECISIVE, DECISIVE))).hypotheses[0].confidence == 0.97
    assert judge(check("a", fault("gpu-oom", DECISIVE, DECISIVE, cap=0.6))).hypotheses[0].confidence == 0.6
    asked = fault("gpu-oom", DECISIVE, DECISIVE, missing=(Missing(signal="s", why="w"),))
    assert judge(check("a", asked)).hypotheses[0].confidence == MISSING_CAP


def test_two_checks_about_one_cause_are_one_hypothesis() -> None:
    first = check("a", fault("gpu-oom", STRONG, on="decode-0"))
    second = check("b", replace(fault("gpu-oom", MODERATE, on="decode-1"), for_=(seen(MODERATE, "other"),)))
    (one,) = judge(first, second).hypotheses
    assert one.check == "pair/a"
    assert [str(s) for s in one.scopes] == ["pool decode"]
    assert one.confidence == pytest.approx(confidence([seen(STRONG), seen(MODERATE, "o")], ()), abs=1e-3)


def test_the_same_evidence_from_two_checks_is_listed_once() -> None:
    (one,) = judge(check("a", fault("gpu-oom", STRONG)), check("b", fault("gpu-oom", STRONG))).hypotheses
    assert len(one.for_) == 1


def test_the_layer_is_the_finding_s_else_the_cause_s() -> None:
    assert judge(check("a", fault("gpu-oom", DECISIVE))).hypotheses[0].layer is Layer.ENGINE
    moved = fault("gpu-oom", DECISIVE, layer=Layer.DECODE)
    assert judge(check("a", moved)).hypotheses[0].layer is Layer.DECODE


def test_at_most_five_by_confidence() -> None:
    causes = [
        "gpu-oom",
        "engine-crash",
        "cold-start",
        "kvstore-down",
        "breaker-open",
        "router-imbalance",
        "gpu-throttle",
    ]
    report = judge(*(check(c, fault(c, WEAK + i / 10)) for i, c in enumerate(causes)), changes=SLOW)
    assert listed(report) == causes[: -MAX_HYPOTHESES - 1 : -1]


def test_what_nothing_listed_explains_is_left_to_the_unknown() -> None:
    assert leak([]) == 1.0
    assert leak([1.0]) == 0.0
    assert leak([0.5]) == pytest.approx(LEAK * 0.5 / (1 - (1 - LEAK) * 0.5))


@given(st.lists(st.floats(0.0, 1.0), max_size=5), st.floats(0.0, 1.0))
def test_one_cause_more_never_leaves_more_to_the_unknown(strengths: list[float], more: float) -> None:
    assert 0.0 <= leak([*strengths, more]) <= leak(strengths) + 1e-12 <= 1.0 + 1e-12


# what may count


def based(basis: Basis, ratio: float = DECISIVE) -> Finding:
    evidence = Evidence(signal="s", scope=None, observed="x", expected=None, basis=basis)
    return replace(fault("gpu-oom"), for_=(Weighed(evidence, ratio, "g"),))


def young(finding: Finding, workers: Sequence[str] = WORKERS, start_s: float = -299.0) -> float:
    seen = view(workers=workers, series=sound(2, len(workers) - 2), start_s=start_s)
    return diagnose(seen, [check("a", finding)]).hypotheses[0].confidence


@pytest.mark.parametrize("basis", ["peer", "history"])
def test_with_neither_peers_nor_history_comparisons_do_not_count(basis: Basis) -> None:
    assert young(based(basis)) == pytest.approx(PRIOR)
    assert young(based(basis), start_s=-300.0) == pytest.approx(0.917, abs=1e-3)
    many = ("prefill-0", "prefill-1", *(f"decode-{i}" for i in range(5)))
    assert young(based(basis), workers=many) == pytest.approx(0.917, abs=1e-3)
    assert young(based(basis), workers=many[:-1]) == pytest.approx(PRIOR)


@pytest.mark.parametrize("basis", ["physics", "config", "log", "probe"])
def test_with_neither_peers_nor_history_the_rest_counts_up_to_a_limit(basis: Basis) -> None:
    assert young(based(basis)) == YOUNG_CAP
    assert young(based(basis, STRONG - 8.0)) == pytest.approx(confidence([seen(STRONG - 8.0)], ()), abs=1e-3)


def test_that_nothing_could_be_compared_is_said() -> None:
    short = diagnose(
        view(workers=WORKERS, series=sound(2, 2), start_s=-299.0), [check("a", fault("gpu-oom", DECISIVE))]
    )
    assert "comparison" in [m.signal for m in short.missing]
    assert "comparison" not in [m.signal for m in judge(check("a", fault("gpu-oom", DECISIVE))).missing]


def test_the_limit_of_a_young_view_does_not_make_a_tie() -> None:
    one = view(workers=WORKERS, series=sound(2, 2), start_s=-290.0)
    assert diagnose(one, [check("a", fault("gpu-oom", DECISIVE)), check("b", fault("breaker-open", 16.0))]).verdict is (
        Verdict.FAULT
    )


def test_a_latency_cause_that_explains_too_little_is_not_accused_and_it_is_said() -> None:
    moved: Given = {"client": {"ttft_seconds.p95": (0.4, 5.0)}, "prefill-0": {"queue_seconds.mean": (0.05, 3.0)}}
    guilty, other = check("a", fault("prefill-undersized", DECISIVE)), check("b", fault("cross-zone", DECISIVE))
    report = judge(guilty, other, changes=moved)
    by_cause = {h.cause: h for h in report.hypotheses}
    assert by_cause["prefill-undersized"].confidence == pytest.approx(0.917, abs=1e-3)
    assert by_cause["prefill-undersized"].against == ()
    assert by_cause["cross-zone"].confidence == UNEXPLAINING_CAP
    (said,) = by_cause["cross-zone"].against
    assert (said.signal, said.basis) == ("ttft_seconds", "physics")


def test_a_hypothesis_always_has_a_place() -> None:
    assert judge(check("a", fault("gpu-oom", DECISIVE))).hypotheses[0].scopes == (Scope("global", "test"),)


# explaining away


def test_what_follows_from_a_believed_cause_is_ruled_out() -> None:
    origin = check("a", fault("gpu-oom", DECISIVE, on="decode-0"), explains=("decode-undersized",))
    report = judge(origin, check("b", fault("decode-undersized", DECISIVE, DECISIVE)))
    assert listed(report) == ["gpu-oom"]
    (out,) = report.ruled_out
    assert (out.cause, out.because) == ("decode-undersized", "follows from gpu-oom (decode-0)")


def test_a_cause_nobody_believes_explains_nothing() -> None:
    origin = check("a", fault("gpu-oom", MODERATE), explains=("decode-undersized",))
    assert "decode-undersized" in listed(judge(origin, check("b", fault("decode-undersized", DECISIVE))))


def test_anything_means_later_tiers_only() -> None:
    origin = check("a", fault("gpu-oom", DECISIVE), tier=Tier.PAIR, explains=(ANYTHING,))
    later = check("b", fault("decode-undersized", DECISIVE), tier=Tier.STAGE)
    same = check("c", fault("breaker-open", DECISIVE), tier=Tier.PAIR)
    assert listed(judge(origin, later, same)) == ["breaker-open", "gpu-oom"]


@pytest.mark.parametrize(
    ("effect", "follows"),
    [("decode-0", True), ("decode-1", False), ("prefill-1", True), ("prefill-0>decode-0", True), (None, True)],
)
def test_only_disjoint_workers_of_one_role_are_surely_apart(effect: str | None, follows: bool) -> None:
    origin = check("a", fault("gpu-oom", DECISIVE, on="decode-0"), explains=("transport-slow",))
    report = judge(origin, check("b", fault("transport-slow", DECISIVE, on=effect)))
    assert (listed(report) == ["gpu-oom"]) is follows


def test_of_two_that_explain_each_other_the_earlier_tier_stays() -> None:
    early = check("a", fault("gpu-oom", STRONG), tier=Tier.PRESENCE, explains=("cold-start",))
    late = check("b", fault("cold-start", DECISIVE), tier=Tier.STAGE, explains=("gpu-oom",))
    assert listed(judge(early, late)) == ["gpu-oom"]
    assert listed(judge(late, early)) == ["gpu-oom"]


def test_of_a_ring_that_explain_each_other_the_first_in_the_order_of_thought_stays() -> None:
    first = check("a", fault("gpu-oom", STRONG), tier=Tier.CORRECTNESS, explains=("cold-start",))
    second = check("b", fault("cold-start", DECISIVE), tier=Tier.STAGE, explains=("kv-leak-decode",))
    third = check("c", fault("kv-leak-decode", DECISIVE), tier=Tier.PAIR, explains=("gpu-oom",))
    report = judge(third, second, first)
    assert listed(report) == ["gpu-oom"]
    assert {"cold-start", "kv-leak-decode"} <= {r.cause for r in report.ruled_out}


def test_what_explains_a_ring_from_outside_stands_alone() -> None:
    first = check("a", fault("gpu-oom", STRONG), tier=Tier.CORRECTNESS, explains=("cold-start",))
    second = check("b", fault("cold-start", DECISIVE), tier=Tier.STAGE, explains=("kv-leak-decode",))
    third = check("c", fault("kv-leak-decode", DECISIVE), tier=Tier.PAIR, explains=("gpu-oom",))
    origin = check("d", fault("network-partition", DECISIVE), tier=Tier.PAIR, explains=("kv-leak-decode",))
    assert listed(judge(first, second, third, origin)) == ["network-partition"]


def test_clear_findings_are_ruled_out_unless_another_check_fired() -> None:
    report = judge(check("a", clear("gpu-oom", "60 GB free")), check("b", clear("breaker-open", "all closed")))
    assert [(r.cause, r.because) for r in report.ruled_out] == [
        ("gpu-oom", "60 GB free"),
        ("breaker-open", "all closed"),
    ]
    report = judge(check("a", clear("gpu-oom", "60 GB free")), check("b", fault("gpu-oom", DECISIVE)))
    assert report.ruled_out == ()


# numbering faults


def numbers(report: Report) -> list[tuple[str, int]]:
    return [(h.cause, h.fault) for h in report.hypotheses]


def test_alternatives_have_one_number() -> None:
    report = judge(check("a", fault("gpu-oom", DECISIVE)), check("b", fault("engine-crash", STRONG)))
    assert numbers(report) == [("gpu-oom", 1), ("engine-crash", 1)]


def test_two_decisive_ones_are_two_faults() -> None:
    report = judge(check("a", fault("gpu-oom", DECISIVE)), check("b", fault("breaker-open", DECISIVE, cap=0.9)))
    assert numbers(report) == [("gpu-oom", 1), ("breaker-open", 2)]


def test_disjoint_workers_of_one_role_are_two_faults() -> None:
    report = judge(
        check("a", fault("gpu-oom", DECISIVE, on="decode-0")), check("b", fault("engine-crash", STRONG, on="decode-1"))
    )
    assert numbers(report) == [("gpu-oom", 1), ("engine-crash", 2)]


def test_at_most_three_faults() -> None:
    found = [
        check(c, fault(c, DECISIVE, DECISIVE, cap=0.97 - i / 100))
        for i, c in enumerate(["gpu-oom", "breaker-open", "kvstore-down", "cold-start"])
    ]
    assert [n for _, n in numbers(judge(*found))] == [1, 2, 3, 3]
    assert MAX_FAULTS == 3


def test_what_rests_on_the_same_decisive_evidence_is_an_alternative() -> None:
    shared = (seen(DECISIVE, "g0", "the same line"),)
    first = check("a", replace(fault("gpu-oom"), for_=(*shared, seen(WEAK, "more"))))
    second = check("b", replace(fault("breaker-open"), for_=shared))
    assert numbers(judge(first, second)) == [("gpu-oom", 1), ("breaker-open", 1)]


# abstaining

SLOW: Given = {"client": {"ttft_seconds.p95": (0.4, 5.0)}}


def test_below_one_half_nobody_is_accused() -> None:
    report = judge(check("a", fault("gpu-oom", MODERATE)), changes=SLOW)
    assert report.hypotheses[0].confidence < ABSTAIN
    assert report.verdict is Verdict.UNKNOWN
    assert listed(report) == ["gpu-oom"]


def test_just_above_one_half_is_enough() -> None:
    assert judge(check("a", fault("gpu-oom", 9.1))).verdict is Verdict.FAULT
    assert judge(check("a", fault("gpu-oom", 8.9)), changes=SLOW).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(("behind", "verdict"), [(MARGIN - 0.01, Verdict.UNKNOWN), (MARGIN + 0.01, Verdict.FAULT)])
def test_a_close_alternative_in_another_layer_is_a_tie(behind: float, verdict: Verdict) -> None:
    first = check("a", fault("gpu-oom", DECISIVE, DECISIVE, cap=0.9))
    second = check("b", fault("breaker-open", STRONG, STRONG, cap=0.9 - behind))
    assert judge(first, second).verdict is verdict


def test_a_close_alternative_in_the_same_layer_is_none() -> None:
    report = judge(check("a", fault("gpu-oom", STRONG, STRONG)), check("b", fault("engine-crash", STRONG, STRONG)))
    assert report.verdict is Verdict.FAULT


def test_a_second_fault_does_not_make_the_first_doubtful() -> None:
    report = judge(check("a", fault("gpu-oom", DECISIVE)), check("b", fault("breaker-open", DECISIVE)))
    assert report.verdict is Verdict.FAULT


def test_a_finding_about_the_data_stands_behind_a_fault() -> None:
    gap = check("a", fault("telemetry-gap", DECISIVE, DECISIVE, verdict=Verdict.UNKNOWN), tier=Tier.DATA)
    assert judge(gap).verdict is Verdict.UNKNOWN
    report = judge(gap, check("b", fault("gpu-oom", DECISIVE)))
    assert (report.verdict, listed(report)) == (Verdict.FAULT, ["gpu-oom", "telemetry-gap"])


@pytest.mark.parametrize(("untold", "most"), [(None, 0.97), ("queue_depth", 0.7)])
def test_while_a_worker_does_not_give_what_it_is_judged_by_nobody_is_very_sure(untold: str | None, most: float) -> None:
    told = {w: {"ttft_seconds.mean": 0.1, "generated_tokens": (9_000, 4_500)} for w in WORKERS}
    given = but(sound(2, 2), told)
    if untold is not None:
        given = but(given, {"prefill-0": {untold: None}})
    live = replace(view(workers=WORKERS, series=given), relative=False)
    report = diagnose(live, [check("a", fault("kv-lease-expiry", DECISIVE, STRONG))])
    assert report.hypotheses[0].confidence == pytest.approx(most)


def test_overload_is_a_verdict_of_its_own() -> None:
    load = check("a", fault("decode-undersized", DECISIVE, verdict=Verdict.OVERLOAD))
    assert judge(load, changes={"client": {"itl_seconds.p95": (0.02, 0.2)}}).verdict is Verdict.OVERLOAD
    assert judge(load).verdict is not Verdict.OVERLOAD


# the unknown is not healthy


def test_a_sound_cluster_is_healthy_and_lists_no_hypothesis() -> None:
    report = diagnose(view(workers=WORKERS, series=sound(2, 2)))
    assert (report.verdict, report.symptoms, report.hypotheses) == (Verdict.HEALTHY, (), ())
    assert report.ruled_out


@pytest.mark.parametrize(("role", "signal"), [(role, s) for role, signals in VITAL.items() for s in signals])
def test_without_a_vital_signal_nothing_is_healthy(role: Role, signal: str) -> None:
    absent: Given = {f"{role}-{i}": {signal: None} for i in range(2)}
    report = judge(*CHECKS, changes=absent)
    assert report.verdict is Verdict.UNKNOWN
    assert signal in [m.signal for m in report.missing]


@pytest.mark.parametrize(("role", "signal"), [(role, s) for role, signals in VITAL.items() for s in signals])
def test_one_scraped_worker_without_a_vital_signal_is_named(role: Role, signal: str) -> None:
    series = but(sound(2, 2), {f"{role}-1": {signal: None}})
    health = {name: Health(Presence.UP, 1.0) for name in WORKERS}
    report = diagnose(view(workers=WORKERS, series=series, health=health))
    assert report.verdict is Verdict.UNKNOWN
    assert (signal, f"{role}-1") in [(m.signal, str(m.scope)) for m in report.missing]


SCRAPED = {name: Health(Presence.UP, 1.0) for name in WORKERS}
_TTFT: dict[str, Points] = {"ttft_seconds": (600.0, 300.0)}
COUNTED = but(
    sound(2, 2),
    {f"prefill-{i}": _TTFT for i in range(2)}
    | {f"decode-{i}": _TTFT | {"generated_tokens": (60_000, 30_000)} for i in range(2)},
)


@pytest.mark.parametrize(
    ("worker", "lacking", "instead"),
    [
        ("prefill-0", "prompt_tokens", "request_success"),
        ("decode-0", "generated_tokens", "request_success"),
    ],
)
def test_another_count_of_the_same_work_stands_in_for_one_that_is_not_given(
    worker: str, lacking: str, instead: str
) -> None:
    def judged(*counts: tuple[str, Points]) -> Report:
        series = but(COUNTED, {worker: {lacking: None, **dict(counts)}})
        return diagnose(view(workers=WORKERS, series=series, health=SCRAPED))

    assert judged((instead, (600.0, 300.0))).verdict is Verdict.HEALTHY
    hangs = judged((instead, (600.0, 0.0)), ("running_requests", 4.0))
    assert hangs.verdict is not Verdict.HEALTHY
    assert instead in [m.signal for m in hangs.missing]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_role_without_data_is_unknown(role: str) -> None:
    series = {k: v for k, v in sound(2, 2).items() if not k.startswith(role)}
    assert diagnose(view(workers=WORKERS, series=series)).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize("name", WORKERS)
@pytest.mark.parametrize("presence", [Presence.STALE, Presence.NEVER, Presence.DOWN])
def test_one_worker_cut_off_is_never_healthy_and_is_named(name: str, presence: Presence) -> None:
    series = {
        scope: {s: cut(points) for s, points in signals.items()} if scope == name else signals
        for scope, signals in sound(2, 2).items()
    }
    health = {w: Health(Presence.UP, 1.0) for w in WORKERS} | {name: Health(presence, 120.0, "nothing heard")}
    report = diagnose(view(workers=WORKERS, series=series, health=health))
    assert report.verdict in (Verdict.UNKNOWN, Verdict.FAULT)
    assert name in {str(s) for h in report.hypotheses for s in h.scopes}


def cut(points: object) -> Series | None:
    made = next(iter(view(series={"decode-0": {"queue_depth": points}}).series.values()))  # type: ignore[dict-item]
    (one,) = made
    assert isinstance(one, Series)
    kept = one.t < -120
    return Series(one.kind, one.t[kept], one.v[kept])


def test_a_window_that_is_not_full_is_unknown() -> None:
    full = diagnose(view(workers=WORKERS, series=sound(2, 2), start_s=-300.0))
    short = diagnose(view(workers=WORKERS, series=sound(2, 2), start_s=-299.0))
    assert (full.verdict, short.verdict) == (Verdict.HEALTHY, Verdict.UNKNOWN)
    assert "history" in [m.signal for m in short.missing]


def test_an_empty_view_is_unknown() -> None:
    report = diagnose(view(workers=(), series={}))
    assert report.verdict is Verdict.UNKNOWN
    assert {m.signal for m in report.missing} >= {"prefill pool", "decode pool"}


def test_a_symptom_nobody_explains_is_unknown() -> None:
    report = judge(changes=SLOW)
    assert (report.verdict, report.symptoms) == (Verdict.UNKNOWN, (Symptom.TTFT,))


@pytest.mark.parametrize("absent", [None, "queue_depth"])
def test_a_given_worker_without_data_is_named_beside_one_that_has_them(absent: str | None) -> None:
    series = sound(2, 2)
    series["prefill-1"] = {} if absent is None else series["prefill-1"] | {absent: None}
    report = diagnose(view(workers=WORKERS, series=series))
    assert report.verdict is Verdict.UNKNOWN
    assert "prefill-1" in [str(m.scope) for m in report.missing]


def test_a_pair_that_answers_right_again_has_no_wrong_answers() -> None:
    probes = [canary("prefill-0>decode-0", ok=False, t_s=-200), canary("prefill-0>decode-0", ok=True, t_s=-20)]
    report = diagnose(view(workers=WORKERS, series=sound(2, 2), probes=probes))
    assert (report.verdict, report.symptoms) == (Verdict.HEALTHY, ())


@pytest.mark.parametrize(
    ("answers", "said", "verdict"),
    [
        ((True,), "canary right", Verdict.HEALTHY),
        ((None,), "canary not judged", Verdict.HEALTHY),
        ((False, True), "canary right", Verdict.HEALTHY),
        ((False, None), "canary failed", Verdict.UNKNOWN),
    ],
)
def test_a_canary_that_could_not_be_judged_is_not_called_right_and_undoes_no_wrong_one(
    answers: tuple[bool | None, ...], said: str, verdict: Verdict
) -> None:
    probes = [canary("prefill-0>decode-0", ok, t_s=-200.0 + 20 * n) for n, ok in enumerate(answers)]
    report = diagnose(view(workers=WORKERS, series=sound(2, 2), probes=probes))
    assert said in next(h.answer for h in report.hops if h.question == "are answers right?")
    assert report.verdict is verdict


def test_how_long_requests_wait_for_kv_is_unknown_where_nobody_counts_transfers_that_end() -> None:
    waits: Given = {"decode-0": {"decode_prealloc_queue_depth": 4.0}}
    ends: Given = {"decode-0": {"decode_prealloc_queue_depth": 4.0, "kv_transfer_seconds.rate": 2.0}}
    told = [stages(Context(view(series=but(sound(), more))))["kv_fetch_wait"] for more in (waits, ends)]
    assert [(r.value, r.bound) for r in told] == [(None, None), (2.0, None)]


def test_pools_that_count_no_failures_do_not_thin_out_those_of_others() -> None:
    workers = ("prefill-0", "decode-0", worker("decode-1", pool="large"))
    given = but(sound(1, 2), {"client": {"request_failure": None, "request_success": None}})
    few: Given = {"decode-0": {"request_failure": (0, 5), "request_success": (100, 95)}}
    many: Given = {"decode-1": {"request_success": (9000, 9000)}}
    share = Context(view(workers=workers, series=but(but(given, few), many))).error_share()
    assert share.value == pytest.approx(0.05)


def test_pool_totals_alone_can_be_healthy() -> None:
    series = {"client": sound()["client"], "pool:prefill": sound()["prefill-0"], "pool:decode": sound()["decode-0"]}
    assert diagnose(view(workers=WORKERS, series=series)).verdict is Verdict.HEALTHY


def test_what_a_check_could_not_judge_is_told_and_does_not_accuse() -> None:
    report = judge(check("a", not_known("gpu-oom", "gpu_mem_used_bytes", "no exporter", "add one")))
    assert report.verdict is Verdict.HEALTHY
    assert [(m.signal, m.fix) for m in report.missing] == [("gpu_mem_used_bytes", "add one")]


# the same View, the same bytes


def trouble() -> View:
    changes: Given = {
        "client": {"ttft_seconds.p95": (0.4, 6.0), "itl_seconds.p95": (0.02, 0.2), "request_failure": (0, 90)},
        "prefill-0": {"queue_depth": (0.2, 12), "kv_cache_usage": (0.3, 0.95), "kv_transfer_expired": (0, 9)},
        "decode-0": {"kv_transfer_failures": (0, 7), "preemptions": (0, 3), "kv_cache_usage": (0.4, 0.97)},
        "decode-1": {"kv_transfer_bandwidth.mean": (5e9, 0.4e9), "queue_depth_deferred": (0, 4)},
    }
    logs = [line("decode-0", "NIXL_ERR_BACKEND"), line("prefill-0", "Releasing expired KV blocks for request a")]
    facts = {name: {"block_size": "64" if name == "decode-1" else "32", "version": "0.32.0"} for name in WORKERS}
    events = [restart("decode-0", -240), Event(t_s=-500, kind=EventKind.ROLLOUT, pool="decode")]
    probes = [canary("prefill-0>decode-1", ok=False), canary("prefill-1>decode-1", ok=True)]
    series = but(sound(2, 2), changes)
    return view(workers=WORKERS, series=series, logs=logs, facts=facts, events=events, probes=probes)


def test_the_same_view_gives_the_same_bytes() -> None:
    assert to_json(diagnose(trouble())) == to_json(diagnose(trouble()))


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_the_order_things_came_in_does_not_matter(rng: random.Random) -> None:
    one = trouble()
    other = replace(
        one,
        series=dict(shuffled(rng, list(one.series.items()))),
        facts=dict(shuffled(rng, list(one.facts.items()))),
        events=shuffled(rng, one.events),
        logs=shuffled(rng, one.logs),
        probes=shuffled(rng, one.probes),
    )
    assert to_json(diagnose(other)) == to_json(diagnose(one))


@settings(max_examples=25)
@given(st.permutations(CHECKS))
def test_the_order_of_checks_does_not_matter(checks: Sequence[Check]) -> None:
    one, other = diagnose(trouble()), diagnose(trouble(), checks)
    assert replace(other, ruled_out=(), missing=()) == replace(one, ruled_out=(), missing=())
    assert set(other.ruled_out) == set(one.ruled_out)
    assert set(other.missing) == set(one.missing)


def test_checks_do_not_change_the_view() -> None:
    one = trouble()
    before = {
        key: [(s.t.tobytes(), s.v.tobytes()) for s in made if isinstance(s, Series)] for key, made in one.series.items()
    }
    diagnose(one)
    after = {
        key: [(s.t.tobytes(), s.v.tobytes()) for s in made if isinstance(s, Series)] for key, made in one.series.items()
    }
    assert before == after


def test_requests_that_move_no_token_are_not_healthy() -> None:
    series = sound(1, 1)
    series["decode-0"] = series["decode-0"] | {
        "running_requests": 5.0,
        "generated_tokens": [(t, 900.0) for t in range(-300, 1, 15)],
    }
    report = diagnose(view(workers=("prefill-0", "decode-0"), series=series))
    assert report.verdict is Verdict.UNKNOWN
    assert ("generated_tokens", "decode-0") in [(m.signal, str(m.scope)) for m in report.missing]


@pytest.mark.parametrize(("origin", "follows"), [("decode-down", True), ("gpu-oom", False)])
def test_load_that_left_some_workers_is_found_at_the_others(origin: str, follows: bool) -> None:
    away = check("a", fault(origin, DECISIVE, on="decode-0"), explains=("router-imbalance",))
    report = judge(away, check("b", fault("router-imbalance", DECISIVE, on="decode-1")))
    assert (listed(report) == [origin]) is follows
