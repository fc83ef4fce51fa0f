"""A latency cause must explain half of the latency; several may share it; what is not known accuses and clears nobody."""

from __future__ import annotations

import pytest

from pdops.catalog.load import catalog
from pdops.diagnose.context import Context
from pdops.diagnose.counterfactual import Account
from pdops.diagnose.mechanism import MECHANISMS
from pdops.diagnose.ttft import STAGES
from pdops.model.cluster import Role
from pdops.model.report import Scope
from pdops.model.series import HistogramSeries
from pdops.model.view import View
from tests.diagnose.build import Given, Points, but, histogram, sound, view


def cluster(
    queue: Points = 0.05,
    compute: Points = 0.2,
    transfer: Points = 0.02,
    wait: Points = 0.06,
    client: Points = (0.4, 4.4),
    itl: Points = 0.02,
    handoff: Points = (0.1, 0.1),
    decode: int = 1,
) -> View:
    """Return a cluster whose stages have these means before and now; clients see `client` on the mean."""
    series: Given = {
        "client": {
            "ttft_seconds.p95": client,
            "ttft_seconds.mean": client,
            "itl_seconds.p95": itl,
            "request_failure": (0, 0),
            "request_success": (1200, 600),
        },
        "prefill-0": {"queue_seconds.mean": queue, "prefill_seconds.mean": compute},
        "pair:prefill-0>decode-0": {"handoff_seconds.mean": handoff},
    }
    for index in range(decode):
        series[f"decode-{index}"] = {"kv_transfer_seconds.mean": transfer, "queue_seconds.mean": wait}  # type: ignore[index]
    workers = ("prefill-0", *(f"decode-{i}" for i in range(decode)))
    return view(workers=workers, series=but(sound(1, decode), series))


def share(seen: View, cause: str, *others: str, on: tuple[Scope, ...] = ()) -> float | None:
    return Account(Context(seen)).share((cause, on), [(o, ()) for o in others])


def test_what_lengthens_the_stage_that_grew_explains_it_and_nothing_else_does() -> None:
    seen = cluster(queue=(0.05, 4.05))
    assert share(seen, "prefill-undersized") == pytest.approx(1.0)
    assert share(seen, "transport-slow") == pytest.approx(0.0, abs=1e-6)
    assert share(seen, "decode-undersized") == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("grown", "expected"), [(1.0, 0.25), (2.0, 0.5), (3.0, 0.75)])
def test_a_part_explains_its_part(grown: float, expected: float) -> None:
    seen = cluster(queue=(0.05, 0.05 + grown), transfer=(0.02, 4.02 - grown), wait=(0.06, 4.06 - grown))
    assert share(seen, "prefill-undersized") == pytest.approx(expected)


def test_beside_a_greater_fault_the_rest_is_what_must_be_explained() -> None:
    seen = cluster(queue=(0.05, 1.65), transfer=(0.02, 2.42), wait=(0.06, 2.46))
    assert share(seen, "prefill-undersized") == pytest.approx(0.4)
    assert share(seen, "prefill-undersized", "transport-slow") == pytest.approx(1.0)
    assert share(seen, "prefill-undersized", "traffic-burst") == pytest.approx(0.4)


def test_a_quantile_is_compared_with_what_an_exponential_tail_makes_of_a_mean() -> None:
    changes: Given = {"client": {"ttft_seconds.mean": None, "ttft_seconds.p95": (0.4, 6.4)}}
    seen = cluster(queue=(0.05, 2.05))
    quantile = view(workers=("prefill-0", "decode-0"), series=but(raw(seen), changes))
    assert share(quantile, "prefill-undersized") == pytest.approx(1.0, abs=0.01)
    half = cluster(queue=(0.05, 1.05))
    assert share(view(series=but(raw(half), changes)), "prefill-undersized") == pytest.approx(0.5, abs=0.01)


def raw(seen: View) -> dict[str, dict[str, Points]]:
    out: dict[str, dict[str, Points]] = {}
    for (scope, signal), (one, *_) in seen.series.items():
        out.setdefault(scope, {})[signal] = one
    return out


def test_an_unknown_stage_gets_what_no_other_has() -> None:
    seen = cluster(handoff=None)
    assert share(seen, "transport-slow") == pytest.approx(1.0)
    assert share(seen, "prefill-undersized") == 0.0
    known = cluster(handoff=None, queue=(0.05, 3.05))
    assert share(known, "transport-slow") == pytest.approx(0.25)


def test_one_of_several_workers_explains_its_own_part() -> None:
    slow: Given = {"decode-0": {"kv_transfer_seconds.mean": (0.02, 40.0), "queue_seconds.mean": (0.06, 40.0)}}
    seen = view(
        workers=("prefill-0", *(f"decode-{i}" for i in range(6))),
        series=but(raw(cluster(decode=6, client=(0.4, 7.0))), slow),
    )
    guilty = share(seen, "transport-slow", on=(Scope("worker", "decode-0"),))
    innocent = share(seen, "transport-slow", on=(Scope("worker", "decode-3"),))
    assert guilty is not None
    assert guilty > 0.9
    assert innocent is not None
    assert innocent < 0.1


def test_bad_for_long_is_measured_against_the_promise() -> None:
    seen = cluster(queue=(4.0, 4.05), client=(4.4, 4.4))
    assert share(seen, "prefill-undersized") == pytest.approx(1.0)
    assert share(seen, "transport-slow") == pytest.approx(0.05, abs=0.05)


def test_token_gaps_are_no_matter_of_transfers() -> None:
    seen = cluster(client=0.4, itl=(0.02, 0.2))
    assert share(seen, "transport-slow") == 0.0
    assert share(seen, "decode-undersized") == 1.0
    both = cluster(queue=(0.05, 4.05), itl=(0.02, 0.2))
    assert share(both, "decode-undersized") == 1.0


def test_nothing_is_said_without_a_latency_symptom_or_beside_errors() -> None:
    assert share(cluster(client=0.4), "prefill-undersized") is None
    failing = but(raw(cluster()), {"client": {"request_failure": (0, 100)}})
    assert share(view(series=failing), "transport-slow") is None
    assert share(cluster(), "engine-crash") is None


def test_beside_errors_it_is_said_where_the_stages_hold_what_clients_waited() -> None:
    """What those waited who gave up is in no stage; where most of the excess is, it is told whom it does not belong to."""
    failing = {"client": {"request_failure": (0, 100)}}
    for queue, told in ((4.05, 0.0), (0.05, None)):
        seen = view(series=but(raw(cluster(queue=(0.05, queue))), failing))
        found = share(seen, "transport-slow")
        assert found == (pytest.approx(told, abs=1e-6) if told is not None else None)


@pytest.mark.parametrize(("pool", "expected"), [("prefill", 1.0), ("decode", 0.0)])
def test_uneven_load_lengthens_the_stages_of_the_pool_that_it_is_in(pool: str, expected: float) -> None:
    seen = cluster(queue=(0.05, 4.05))
    found = share(seen, "router-imbalance", on=(Scope("pool", pool),))
    assert found == pytest.approx(expected, abs=1e-6)
    assert share(seen, "router-imbalance") == pytest.approx(1.0)


def test_mechanisms_name_causes_and_stages_that_exist() -> None:
    assert set(MECHANISMS) <= set(catalog().causes)
    assert set().union(*(m.stages for m in MECHANISMS.values())) <= set(STAGES)
    assert all(m.stages for m in MECHANISMS.values())


@pytest.mark.parametrize(("moved", "expected"), [(True, 1.0), (False, 0.2)])
def test_who_takes_over_from_a_slow_worker_waits_because_of_it(moved: bool, expected: float) -> None:
    def queue(n: float, now_s: float) -> HistogramSeries:
        return histogram([0.1, 100.0], {0.05: 200.0}, {now_s: n})

    series = {
        "client": {"ttft_seconds.p95": (0.4, 4.4), "ttft_seconds.mean": (0.4, 4.4)},
        "prefill-0": {"queue_seconds.mean": None, "queue_seconds": queue(50.0 if moved else 100.0, 4.05)},
        "prefill-1": {"queue_seconds.mean": None, "queue_seconds": queue(200.0, 8.05 if not moved else 4.05)},
    }
    seen = view(workers=("prefill-0", "prefill-1", "decode-0"), series=but(sound(2, 1), series))
    found = Account(Context(seen))._part(
        "queue_seconds", Role.PREFILL, ("prefill-slow-worker", (Scope("worker", "prefill-0"),))
    )
    assert found == pytest.approx(expected, abs=0.01)
