"""telemetry/log-line: what a line tells, how often it came, and how little a consequence weighs."""

from __future__ import annotations

import pytest

from pdops.catalog.log_lines import log_lines
from pdops.diagnose.engine import diagnose
from pdops.diagnose.finding import DECISIVE, MODERATE, STRONG, WEAK
from pdops.model.report import Layer, Symptom, Verdict
from tests.diagnose.build import ask, causes, golden, line, one, sound, view

ID = "telemetry/log-line"


def test_a_line_names_cause_layer_worker_and_what_to_check() -> None:
    found = one(ask(ID, view(series=sound(), logs=[line("decode-0", "ERROR Page size mismatch: decode has 64")])))
    assert (found.cause, found.layer) == ("config-asymmetry", Layer.CONFIG)
    assert [str(s) for s in found.scopes] == ["decode-0"]
    (seen,) = found.for_
    assert (seen.evidence.basis, seen.ratio) == ("log", DECISIVE)
    assert "page size" in found.next[0]


def test_equal_lines_are_counted_once() -> None:
    logs = [line("decode-0", f"local protection error, request {i}", -100 + i) for i in range(5)]
    found = one(ask(ID, view(series=sound(), logs=logs)), cause="rdma-link-config")
    assert [w.evidence.observed for w in found.for_] == ["5 times: local protection error, request 0"]


def test_other_causes_of_a_line_weigh_less() -> None:
    found = ask(ID, view(series=sound(), logs=[line("decode-0", "nixlError: NIXL_ERR_BACKEND")]))
    weights = {f.cause: f.for_[0].ratio for f in found}
    assert weights == {"transport-error": STRONG, "transport-config": MODERATE}


def test_a_consequence_is_weak_and_believed_by_nobody() -> None:
    seen = view(series=sound(), logs=[line("decode-0", "work request flushed error")])
    assert [w.ratio for w in one(ask(ID, seen)).for_] == [WEAK]
    report = diagnose(seen)
    assert report.verdict is Verdict.HEALTHY


@pytest.mark.parametrize(("t_s", "fires"), [(-301.0, False), (-300.0, True), (0.0, True)])
def test_only_lines_of_the_window_count(t_s: float, fires: bool) -> None:
    found = ask(ID, view(series=sound(), logs=[line("decode-0", "CUDA out of memory", t_s)]))
    assert causes(found) == (["gpu-oom"] if fires else [])


def test_of_several_kinds_the_heaviest_counts() -> None:
    text = "Failed to register memory 0x7f00: Cannot allocate memory [12]"
    found = one(ask(ID, view(series=sound(), logs=[line("prefill-0", text)])))
    assert [w.ratio for w in found.for_] == [DECISIVE]
    assert "memlock" in found.next[0]


def test_texts_must_come_in_order_and_case_does_not_matter() -> None:
    turned = "KVPoll.Bootstrapping ended; nothing timed out after it"
    assert ask(ID, view(series=sound(), logs=[line("prefill-0", turned)])) == ()
    shouted = "REQUEST TIMED OUT AFTER 300.0S IN KVPOLL.BOOTSTRAPPING"
    assert "bootstrap-timeout" in causes(ask(ID, view(series=sound(), logs=[line("prefill-0", shouted)])))


def test_corrupt_objects_are_wrong_answers() -> None:
    found = one(ask(ID, view(series=sound(), logs=[line("decode-0", "get failed: CHECKSUM_MISMATCH (-801)")])))
    assert found.symptoms == (Symptom.WRONG_ANSWERS,)


def test_without_lines_or_with_strange_ones_it_says_nothing() -> None:
    assert ask(ID, view(series=sound())) == ()
    assert ask(ID, view(series=sound(), logs=[line("decode-0", "INFO request finished"), line("decode-0", "")])) == ()


def test_many_workers_do_not_fill_the_page() -> None:
    workers = ("prefill-0", *(f"decode-{i}" for i in range(20)))
    logs = [line(w, "Failed to modify QP to RTR, check mtu") for w in workers]
    found = one(ask(ID, view(workers=workers, series=sound(1, 20), logs=logs)))
    assert len(found.scopes) == 21
    assert len(found.for_) == 6


@pytest.mark.parametrize("spec", log_lines(), ids=lambda spec: spec.id)
def test_every_kind_is_found_by_its_own_text(spec: object) -> None:
    known = next(s for s in log_lines() if s is spec)
    seen = view(series=sound(), logs=[line("decode-0", " ... ".join(known.contains))])
    assert (known.cause in causes(ask(ID, seen))) is (known.cause is not None)


def test_a_notice_is_no_evidence() -> None:
    assert ask(ID, view(series=sound(), logs=[line("decode-0", "Setting UCX_RCACHE_MAX_UNRELEASED to '1024'")])) == ()


def test_report() -> None:
    logs = [
        line("prefill-0", "[Handshake] Failed to modify QP to RTR, check mtu, gid, peer lid, peer qp num", -200),
        line("prefill-0", "work request flushed error", -199),
    ]
    report = golden(ID, view(series=sound(), logs=logs))
    assert report.verdict is Verdict.FAULT
    assert report.top is not None
    assert (report.top.cause, report.top.layer) == ("rdma-link-config", Layer.NETWORK)
