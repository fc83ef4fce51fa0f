"""The Kubernetes backend against a double of an API server that enforces the Role we render."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pdops.actuate.backend import Fence
from pdops.actuate.kubernetes_model import DELETION_COST, ROUTED, Workload
from pdops.errors import ActionError, BusyError, FencedError, UsageError
from tests.actuate.kubernetes_kit import RULES, Kit, kits, out

FENCE = Fence("run", 1)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    for made in kits(tmp_path, RULES):
        made.pools()
        yield made


def test_what_is_there_is_told_with_its_source(kit: Kit) -> None:
    state = kit.backend().observe()
    value = {s: v.value for s, v in state.values.items()}
    assert state.workers() == ("decode-0", "decode-1", "prefill-0", "prefill-1")
    assert value["pool/prefill/replicas"] == 2
    assert value["pool/prefill/owner"] == ""
    assert value["pool/prefill/rollout"] is False
    assert value["pool/prefill/free"] == 2
    assert value["worker/prefill-0/serving"] is True
    assert value["worker/prefill-0/process"] == "running"
    assert value["worker/prefill-0/starts"] == 1
    assert value["worker/prefill-0/version"] == "v0.32.0"
    assert value["worker/prefill-0/routed"] is True
    assert value["worker/prefill-0/cordoned"] is False
    assert value["worker/prefill-0/inflight"] == 0
    assert state.get("pool/prefill/replicas").source == "StatefulSet/prefill"


def test_what_cannot_be_read_is_unknown_and_says_which_right_is_missing(tmp_path: Path) -> None:
    with Kit(tmp_path, rules=[]) as kit:
        kit.pools()
        state = kit.backend().observe()
        for part in ("replicas", "rollout", "owner", "free"):
            seen = state.get(f"pool/prefill/{part}")
            assert seen.value is None, part
            assert "may not get statefulsets of apps prefill" in seen.why
        assert state.workers() == ()


def test_a_rollout_is_seen_in_each_of_its_signs(kit: Kit) -> None:
    def seen() -> object:
        return kit.backend().observe().get("pool/prefill/rollout").value

    kit.double.change("statefulsets", "prefill", lambda o: o["status"].update(updateRevision="r2"))
    assert seen() is True
    kit.double.change("statefulsets", "prefill", lambda o: o["status"].update(currentRevision="r2"))
    assert seen() is False


def test_room_is_what_people_allow_and_what_a_quota_leaves_and_none_while_a_pod_finds_no_node(kit: Kit) -> None:
    def free(**operated: object) -> object:
        return kit.backend(**operated).observe().get("pool/prefill/free").value

    assert free(max_replicas={}) is None
    quota = {"hard": {"requests.nvidia.com/gpu": "5"}, "used": {"requests.nvidia.com/gpu": "4"}}
    kit.double.put("resourcequotas", {"metadata": {"name": "q"}, "status": quota})
    assert free(max_replicas={}) == 1
    assert free() == 1
    no_node = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    kit.double.change("pods", "prefill-1", lambda p: p["status"].update(conditions=[no_node], phase="Pending"))
    assert free() == 0
    assert kit.backend().observe().get("worker/prefill-1/serving").value is False


def test_long_lists_are_read_to_their_end(kit: Kit) -> None:
    kit.double.page_limit = 1
    assert len(kit.backend().observe().workers()) == 4


def test_scale_out_adds_one_and_a_second_time_changes_nothing(kit: Kit) -> None:
    backend = kit.backend()
    assert out(backend, 3).changed
    assert kit.double.replicas("prefill") == 3
    assert not out(backend, 3).changed
    assert "worker/prefill-2/serving" in backend.observe().values


def test_scale_out_is_refused_when_the_pool_has_another_size(kit: Kit) -> None:
    with pytest.raises(BusyError, match="another size"):
        out(kit.backend(), 5)
    assert kit.double.replicas("prefill") == 2


def test_scale_in_drains_waits_for_the_kv_lease_and_takes_the_last(kit: Kit) -> None:
    backend, began = kit.backend(kv_lease_s=30.0), kit.clock.monotonic()
    kit.router.held["prefill-1"] = 3
    advance = backend._api.sleep

    def later(seconds: float) -> None:
        kit.router.held["prefill-1"] = max(0, (kit.router.held["prefill-1"] or 0) - 1)
        advance(seconds)

    backend._api.sleep = later
    params = {"role": "prefill", "worker": "prefill-1", "replicas": 1}
    assert backend.apply("pool.scale-in", params, FENCE).changed
    assert kit.double.names("pods") == ["decode-0", "decode-1", "prefill-0"]
    assert kit.router.done == [("worker.cordon", "prefill-1"), ("router.remove", "prefill-1")]
    assert kit.clock.monotonic() - began >= 45.0
    assert not backend.apply("pool.scale-in", params, FENCE).changed


def test_scale_in_ends_nobody_who_is_not_empty_or_of_whom_nobody_tells(kit: Kit) -> None:
    for held in (1, None):
        kit.router.held["decode-1"] = held
        with pytest.raises(ActionError, match="not empty"):
            kit.backend().apply("pool.scale-in", {"role": "decode", "worker": "decode-1", "replicas": 1}, FENCE)
    assert kit.double.replicas("decode") == 2


def test_scale_in_of_another_than_the_last_is_refused_before_anything_is_done(kit: Kit) -> None:
    with pytest.raises(ActionError, match="gives up prefill-1 first"):
        kit.backend().apply("pool.scale-in", {"role": "prefill", "worker": "prefill-0", "replicas": 1}, FENCE)
    assert kit.router.done == []


def test_scale_in_compares_again_after_the_drain(kit: Kit) -> None:
    backend = kit.backend()
    kit.router.meanwhile = lambda: kit.double.change("statefulsets", "decode", lambda o: o["spec"].update(replicas=4))
    with pytest.raises(BusyError, match="another size"):
        backend.apply("pool.scale-in", {"role": "decode", "worker": "decode-1", "replicas": 1}, FENCE)
    assert kit.double.replicas("decode") == 4


def test_of_a_deployment_the_drained_pod_goes_by_its_deletion_cost(tmp_path: Path) -> None:
    with Kit(tmp_path) as kit:
        kit.double.workload("decode", 3, kind="Deployment", name="dec")
        names = kit.double.names("pods")
        kit.router.cordoned = dict.fromkeys(names, False)
        backend = kit.backend(pools={"decode": Workload(kind="Deployment", name="dec")})
        chosen = names[-1]
        backend.apply("pool.scale-in", {"role": "decode", "worker": chosen, "replicas": 2}, FENCE)
        assert kit.double.names("pods") == [n for n in names if n != chosen]
        assert ("patch", "", "pods", chosen) in kit.double.calls
        assert DELETION_COST
        missing = backend.capabilities().missing
        assert "not called decode-N" in missing["pool.scale-out"]
        assert "called otherwise" in missing["worker.restart"]


def test_a_restart_replaces_the_pod_and_counts_on_in_another_process(kit: Kit) -> None:
    before = kit.double.get("pods", "decode-0")["metadata"]["uid"]
    params = {"worker": "decode-0", "starts": 2}
    assert kit.backend().apply("worker.restart", params, FENCE).changed
    assert kit.double.get("pods", "decode-0")["metadata"]["uid"] != before
    other = kit.backend("another process")
    assert other.observe().get("worker/decode-0/starts").value == 2
    assert other.observe().get("worker/decode-1/starts").value == 1
    assert not other.apply("worker.restart", params, FENCE).changed
    assert other.apply("worker.restart", {"worker": "decode-0", "starts": 3}, FENCE).changed
    assert other.observe().get("worker/decode-0/starts").value == 3


def test_a_restart_waits_for_a_pod_that_takes_its_time_to_end(kit: Kit) -> None:
    kit.double.pods_linger = True
    kit.meanwhile("watch", "pods", lambda: kit.double.end_pod("decode-0"))
    assert kit.backend().apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE).changed
    # It lies between two watches: an idle one must not end the wait.
    with pytest.raises(ActionError, match="has not ended"):
        kit.backend().apply("worker.restart", {"worker": "decode-1", "starts": 2}, FENCE)
    # 180 s of waiting, and a lease of 30 s.
    assert len([c for c in kit.double.calls if c[:3] == ("update", "coordination.k8s.io", "leases")]) > 10


def test_a_worker_whose_pod_is_away_is_absent_until_it_is_back(kit: Kit) -> None:
    backend = kit.backend()
    backend.apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE)
    with kit.double.lock:
        kit.double._remove("pods", "decode-0")
    seen = backend.observe()
    assert seen.get("worker/decode-0/process").value == "absent"
    assert seen.get("worker/decode-0/serving").value is False
    assert seen.get("worker/decode-0/role").value == "decode"
    assert seen.get("worker/decode-0/starts").value is None
    kit.double.put("configmaps", {"metadata": {"name": "x"}})
    assert backend.observe().get("worker/decode-0/starts").value == 2


def test_a_pod_that_somebody_replaced_meanwhile_is_not_deleted(kit: Kit) -> None:
    """The uid is a precondition: the name alone would end the successor."""
    kit.meanwhile("delete", "pods", lambda: kit.double.end_pod("decode-0"))
    with pytest.raises(BusyError, match="somebody else restarted it"):
        kit.backend().apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE)


def test_a_change_of_status_alone_does_not_keep_a_pod_from_being_restarted(kit: Kit) -> None:
    kit.meanwhile(
        "delete", "pods", lambda: kit.double.change("pods", "decode-0", lambda p: p["status"].update(note="x"))
    )
    assert kit.backend().apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE).changed


def test_a_disruption_budget_that_allows_none_keeps_a_ready_worker(kit: Kit) -> None:
    spec = {"selector": {"matchLabels": {"role": "decode"}}}
    kit.double.put(
        "poddisruptionbudgets", {"metadata": {"name": "d"}, "spec": spec, "status": {"disruptionsAllowed": 0}}
    )
    backend = kit.backend()
    assert backend.observe().get("pool/decode/disruptions").value == 0
    with pytest.raises(ActionError, match="allows none to go"):
        backend.apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE)
    # One that is not ready serves nobody.
    kit.double.change("pods", "decode-0", lambda p: p["status"]["conditions"][0].update(status="False"))
    assert backend.apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE).changed


def test_a_worker_is_cordoned_by_the_label_that_its_service_asks_for(tmp_path: Path) -> None:
    with Kit(tmp_path) as kit:
        kit.pools(labels={ROUTED: "true"})
        backend = kit.backend(router=False)
        assert "no Service chooses" in backend.capabilities().missing["worker.cordon"]
        assert "worker/decode-0/cordoned" not in backend.observe().values
        for role in ("prefill", "decode"):
            chosen = {"role": role, ROUTED: "true"}
            kit.double.put("services", {"metadata": {"name": role}, "spec": {"selector": chosen}})
        assert backend.observe().get("worker/decode-0/cordoned").value is False
        assert backend.apply("worker.cordon", {"worker": "decode-0"}, FENCE).changed
        assert kit.double.get("pods", "decode-0")["metadata"]["labels"][ROUTED] == "false"
        assert backend.observe().get("worker/decode-0/cordoned").value is True
        assert not backend.apply("worker.cordon", {"worker": "decode-0"}, FENCE).changed
        assert backend.apply("worker.uncordon", {"worker": "decode-0"}, FENCE).changed
        assert "nobody tells" in backend.capabilities().missing["pool.scale-in"]


def test_an_older_fence_is_turned_away_and_nothing_is_done(kit: Kit) -> None:
    out(kit.backend(), 3, number=5)
    with pytest.raises(FencedError, match="another run"):
        out(kit.backend("other"), 4, number=4)
    assert kit.double.replicas("prefill") == 3


def test_unknown_workers_and_pools_are_said(kit: Kit) -> None:
    backend = kit.backend()
    with pytest.raises(ActionError, match="no such pod"):
        backend.apply("worker.drain", {"worker": "decode-9"}, FENCE)
    with pytest.raises(ActionError, match="no such pool"):
        backend.apply("pool.scale-out", {"role": "store", "worker": "store-1", "replicas": 2}, FENCE)
    assert not backend.observe().get("worker/decode-9/serving").known


def test_a_server_that_is_gone_is_unknown_for_looks_and_an_error_for_actions(tmp_path: Path) -> None:
    with Kit(tmp_path) as kit:
        backend = kit.backend()
    seen = backend.observe().get("pool/prefill/replicas")
    assert not seen.known
    assert "does not answer" in seen.why
    assert "not known" in backend.capabilities().missing["pool.scale-out"]
    with pytest.raises(ActionError, match="not offered"):
        out(backend, 3)


def test_a_kubeconfig_that_is_not_there_is_a_usage_error(kit: Kit, tmp_path: Path) -> None:
    from pdops.actuate.kubernetes_connect import connect

    with pytest.raises(UsageError) as caught:
        connect(
            kubeconfig=str(tmp_path / "none"), context=None, namespace=None, clock=kit.clock, sleep=kit.clock.advance
        )
    assert caught.value.hint


def test_who_is_not_routed_goes_without_a_count_and_prefill_still_waits_for_its_lease(kit: Kit) -> None:
    """As when a newcomer fails its canary and is taken back before the router knew it."""
    backend, began = kit.backend(), kit.clock.monotonic()
    out(backend, 3)
    assert backend.apply("pool.scale-in", {"role": "prefill", "worker": "prefill-2", "replicas": 2}, FENCE).changed
    assert kit.double.replicas("prefill") == 2
    assert kit.clock.monotonic() - began >= 45.0


def test_the_last_worker_can_go_and_come(kit: Kit) -> None:
    backend = kit.backend()
    for left in (1, 0):
        backend.apply("pool.scale-in", {"role": "decode", "worker": f"decode-{left}", "replicas": left}, FENCE)
    assert backend.observe().get("pool/decode/replicas").value == 0
    out(backend, 1, role="decode")
    assert backend.observe().workers("decode") == ("decode-0",)


@pytest.mark.parametrize(
    "odd",
    [
        lambda o: o["spec"].pop("replicas"),
        lambda o: o["spec"].update(replicas="two"),
        lambda o: o["spec"].update(selector=None),
        lambda o: o["status"].update(observedGeneration="x"),
    ],
)
def test_an_object_that_makes_no_sense_is_unknown(kit: Kit, odd: Callable[[Any], object]) -> None:
    obj = kit.double.get("statefulsets", "prefill")
    odd(obj)
    with kit.double.lock:
        kit.double._store("statefulsets", obj, "MODIFIED")
    seen = kit.backend().observe()
    unknown = [s for s, v in seen.values.items() if s.startswith("pool/prefill") and not v.known]
    assert unknown
    assert all(seen.get(s).why for s in unknown)
    assert seen.get("pool/decode/replicas").value == 2


def test_an_answer_that_is_no_object_is_no_answer(kit: Kit) -> None:
    """A login page of a proxy must not read as a pool with defaults."""
    kit.double.answer = lambda *_: {"page": "please log in"}  # type: ignore[method-assign]
    seen = kit.backend().observe().get("pool/prefill/replicas")
    assert not seen.known
    assert "makes no sense" in seen.why


def test_the_store_is_stopped_started_and_restarted_and_its_starts_are_counted(tmp_path: Path) -> None:
    with Kit(tmp_path) as kit:
        kit.double.workload("kvstore", 1, kind="Deployment", name="store")
        backend = kit.backend(store=Workload(kind="Deployment", name="store"), store_id="store-0")

        def seen() -> dict[str, object]:
            return {
                s.rpartition("/")[2]: v.value for s, v in backend.observe().values.items() if s.startswith("store/")
            }

        assert seen() == {"process": "running", "serving": True, "starts": 1}
        for _ in range(2):
            backend.apply("store.restart", {"store": "store-0", "starts": 2}, FENCE)
        assert seen() == {"process": "running", "serving": True, "starts": 2}
        assert backend.apply("store.stop", {"store": "store-0"}, FENCE).changed
        assert not backend.apply("store.stop", {"store": "store-0"}, FENCE).changed
        assert seen() == {"process": "stopped", "serving": False, "starts": None}
        assert backend.apply("store.start", {"store": "store-0"}, FENCE).changed
        assert seen() == {"process": "running", "serving": True, "starts": 3}
        with pytest.raises(ActionError, match="no such store"):
            backend.apply("store.stop", {"store": "other"}, FENCE)


def test_without_a_store_its_actions_are_missing(kit: Kit) -> None:
    assert "no workload of a KV store" in kit.backend().capabilities().missing["store.restart"]


def test_where_the_router_cannot_cordon_nobody_is_taken_out(kit: Kit) -> None:
    kit.router.without = frozenset({"worker.cordon", "router.add"})
    with pytest.raises(ActionError, match="cannot be kept away"):
        kit.backend().apply("pool.scale-in", {"role": "decode", "worker": "decode-1", "replicas": 1}, FENCE)
    assert kit.double.replicas("decode") == 2


def test_a_worker_whose_pods_cannot_be_read_any_more_is_not_taken_for_gone(kit: Kit) -> None:
    """The right to list pods goes while the worker ends; the router must keep what may still be there."""

    def no_more_lists() -> None:
        kit.double.rules = [
            {**r, "verbs": [v for v in r["verbs"] if v != "list" or r["resources"] != ["pods"]]} for r in RULES
        ]

    kit.double.pods_linger = True
    kit.meanwhile("watch", "pods", no_more_lists, lambda: kit.double.end_pod("decode-1"))
    with pytest.raises(ActionError, match="pods cannot be read"):
        kit.backend().apply("pool.scale-in", {"role": "decode", "worker": "decode-1", "replicas": 1}, FENCE)
    assert ("router.remove", "decode-1") not in kit.router.done
