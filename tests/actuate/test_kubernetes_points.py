"""What the backend relies on, point by point: it holds, and a backend that ignores the point is seen to break."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pdops.actuate import kubernetes_api, kubernetes_read, kubernetes_watch
from pdops.actuate.backend import Effect, Fence
from pdops.actuate.kubernetes import KubernetesBackend
from pdops.actuate.kubernetes_api import Api, ApiError, Object, Resource, Verb
from pdops.actuate.kubernetes_lease import Leader
from pdops.actuate.kubernetes_may import Rights
from pdops.actuate.kubernetes_model import Workload
from pdops.errors import ActionError, BusyError, FencedError
from tests.actuate.kubernetes_kit import RULES, Kit, kits, out

FENCE = Fence("run", 1)


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Kit]:
    for made in kits(tmp_path, RULES):
        made.pools()
        yield made


# -- a conflict of resource versions (409)


class WithoutVersion(Api):
    """Writes over whatever is there."""

    def call(
        self, verb: Verb, resource: Resource, name: str = "", *, body: Object | None = None, query: Any = None
    ) -> Object:
        if verb == "update" and body is not None:
            body = {**body, "metadata": {k: v for k, v in body["metadata"].items() if k != "resourceVersion"}}
        return super().call(verb, resource, name, body=body, query=query)


class SendsAgain(Api):
    """Answers a conflict by sending the same again with the newest version."""

    def call(
        self, verb: Verb, resource: Resource, name: str = "", *, body: Object | None = None, query: Any = None
    ) -> Object:
        try:
            return super().call(verb, resource, name, body=body, query=query)
        except ApiError as error:
            if error.status != 409 or body is None:
                raise
            meta = {**body["metadata"], "resourceVersion": self.get(resource, name)["metadata"]["resourceVersion"]}
            return super().call(verb, resource, name, body={**body, "metadata": meta}, query=query)


def another_writer(kit: Kit, api: type[Api]) -> int:
    """Set a size while somebody else sets another, and return the size after."""
    kit.meanwhile(
        "update",
        "statefulsets/scale",
        lambda: kit.double.change("statefulsets", "prefill", lambda o: o["spec"].update(replicas=5)),
    )
    with contextlib.suppress(BusyError):
        out(kit.backend(api=kit.api(api)), 3)
    return kit.double.replicas("prefill")


def test_a_conflict_is_compared_again_and_what_another_set_stays(kit: Kit) -> None:
    assert another_writer(kit, Api) == 5


@pytest.mark.parametrize("wrong", [WithoutVersion, SendsAgain])
def test_without_versions_or_with_blind_repetition_the_other_is_overwritten(kit: Kit, wrong: type[Api]) -> None:
    assert another_writer(kit, wrong) == 3


def test_a_conflict_about_something_else_does_not_stop_it(kit: Kit) -> None:
    kit.meanwhile(
        "update",
        "statefulsets/scale",
        lambda: kit.double.change("statefulsets", "prefill", lambda o: o["status"].update(n=1)),
    )
    assert out(kit.backend(), 3).changed


def test_endless_conflicts_end(kit: Kit) -> None:
    def again() -> None:
        kit.double.change("statefulsets", "prefill", lambda o: o["status"].update(n=kit.double.version))
        kit.meanwhile("update", "statefulsets/scale", again)

    again()
    with pytest.raises(BusyError, match="all the time"):
        out(kit.backend(), 3)


# -- the scale subresource


def test_a_size_is_set_at_the_scale_subresource_alone(kit: Kit) -> None:
    out(kit.backend(), 3)
    written = {c[2] for c in kit.double.calls if c[0] in ("update", "patch", "create", "delete")}
    assert written == {"statefulsets/scale", "leases"}


def test_by_the_whole_object_it_is_forbidden(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Workload, "scale", property(lambda self: self.resource))
    monkeypatch.setattr(Rights, "missing", lambda *_: None)
    with pytest.raises(ActionError, match="may not update statefulsets"):
        out(kit.backend(), 3)


# -- the lease


class NeverBusy(Leader):
    """Takes a lease whoever holds it."""

    def _free(self, lease: Object, now: float) -> bool:
        return True


class ByWallClock(Leader):
    """Compares the time in the lease with its own clock, as if both machines had the same."""

    def _free(self, lease: Object, now: float) -> bool:
        renewed = datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp()
        return self._api.clock.now() > renewed + lease["spec"]["leaseDurationSeconds"]


class Heedless(Leader):
    """Does not look whether it still holds the lease."""

    def keep(self) -> None:
        """Do nothing."""


def held_by(kit: Kit, holder: str, clock_off_s: float = 0.0, transitions: int = 7) -> None:
    """Let somebody hold the lease, whose clock is off."""
    at = datetime.fromtimestamp(kit.clock.now() + clock_off_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": holder, "leaseDurationSeconds": 30, "renewTime": at, "leaseTransitions": transitions}
    kit.double.put("leases", {"metadata": {"name": "pdops-operator"}, "spec": spec})


def renewing(kit: Kit, backend: KubernetesBackend, clock_off_s: float) -> None:
    """Let the other holder renew while this backend waits."""
    advance = backend._api.sleep

    def sleep(seconds: float) -> None:
        advance(seconds)
        held_by(kit, "other", clock_off_s)

    backend._api.sleep = sleep


def led_by(backend: KubernetesBackend, kind: type[Leader]) -> KubernetesBackend:
    old = backend._leader
    backend._leader = backend._changes._leader = backend._writer._leader = kind(old._api, old._name, old._holder)
    return backend


@pytest.mark.parametrize("clock_off_s", [-3600.0, 0.0, 3600.0])
def test_who_holds_the_lease_and_renews_it_keeps_others_out(kit: Kit, clock_off_s: float) -> None:
    backend = kit.backend()
    held_by(kit, "other", clock_off_s)
    renewing(kit, backend, clock_off_s)
    with pytest.raises(BusyError, match="held by other"):
        out(backend, 3)
    assert kit.double.replicas("prefill") == 2


@pytest.mark.parametrize("clock_off_s", [-3600.0, 0.0, 3600.0])
def test_a_holder_that_is_silent_for_its_time_is_replaced_under_the_next_number(kit: Kit, clock_off_s: float) -> None:
    backend, began = kit.backend(), kit.clock.monotonic()
    held_by(kit, "dead", clock_off_s)
    assert out(backend, 3).changed
    assert 30.0 <= kit.clock.monotonic() - began < 60.0
    assert kit.double.get("leases", "pdops-operator")["spec"]["leaseTransitions"] == 8


def test_without_acquisition_two_act_at_once(kit: Kit) -> None:
    backend = led_by(kit.backend(), NeverBusy)
    held_by(kit, "other")
    renewing(kit, backend, 0.0)
    assert out(backend, 3).changed


def test_by_wall_clocks_a_living_holder_is_robbed_and_a_dead_one_stays(kit: Kit) -> None:
    backend = led_by(kit.backend(), ByWallClock)
    held_by(kit, "other", -3600.0)
    renewing(kit, backend, -3600.0)
    assert out(backend, 3).changed
    backend = led_by(kit.backend(), ByWallClock)
    held_by(kit, "dead", 3600.0)
    with pytest.raises(BusyError):
        out(backend, 4, number=2)


def overtaken(kit: Kit, kind: type[Leader]) -> int:
    """Lose the lease during a long drain, and return the size after."""
    backend = led_by(kit.backend(), kind)
    kit.router.meanwhile = lambda: held_by(kit, "other")
    with contextlib.suppress(FencedError):
        backend.apply("pool.scale-in", {"role": "prefill", "worker": "prefill-1", "replicas": 1}, FENCE)
    return kit.double.replicas("prefill")


def test_who_has_lost_the_lease_meanwhile_does_nothing_more(kit: Kit) -> None:
    assert overtaken(kit, Leader) == 2


def test_who_does_not_look_acts_after_somebody_else_took_over(kit: Kit) -> None:
    assert overtaken(kit, Heedless) == 1


def test_of_two_who_make_the_lease_at_once_one_waits(kit: Kit) -> None:
    kit.meanwhile("create", "leases", lambda: held_by(kit, "faster"))
    backend = kit.backend()
    renewing(kit, backend, 0.0)
    with pytest.raises(BusyError, match="another pdops"):
        out(backend, 3)


def test_of_two_who_take_it_over_at_once_one_waits(kit: Kit) -> None:
    held_by(kit, "")
    kit.meanwhile("update", "leases", lambda: held_by(kit, "faster"))
    backend = kit.backend()
    renewing(kit, backend, 0.0)
    with pytest.raises(BusyError, match="another pdops"):
        out(backend, 3)


def test_a_run_of_a_later_fence_in_the_lease_turns_an_earlier_one_away(kit: Kit) -> None:
    out(kit.backend(), 3, number=9)
    lease = kit.double.get("leases", "pdops-operator")
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["metadata"]["annotations"]["pdops.dev/fence"] == "9"
    with pytest.raises(FencedError):
        out(kit.backend(), 4, number=8)


# -- a watch whose version is too old (410)


def forgotten(kit: Kit) -> Effect:
    """Restart a worker whose end the API server has forgotten by the time it is asked for."""

    def end_and_forget() -> None:
        kit.double.end_pod("decode-0")
        kit.double.forget_events()

    kit.double.pods_linger = True
    kit.meanwhile("watch", "pods", end_and_forget)
    return kit.backend().apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE)


def test_after_gone_a_new_list_tells(kit: Kit) -> None:
    assert forgotten(kit).changed


def test_without_a_new_list_the_end_is_never_seen(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_watch, "GONE", -1)
    with pytest.raises(ActionError, match="410"):
        forgotten(kit)


def test_gone_all_the_time_ends(kit: Kit) -> None:
    def forget() -> None:
        kit.double.put("configmaps", {"metadata": {"name": "x"}})
        kit.double.forget_events()
        kit.meanwhile("watch", "pods", forget)

    kit.double.pods_linger = True
    forget()
    with pytest.raises(ActionError, match="has not ended"):
        kit.backend().apply("worker.restart", {"worker": "decode-0", "starts": 2}, FENCE)


# -- a right that is missing (403)


@pytest.mark.parametrize(
    ("resource", "verb", "action", "says"),
    [
        ("statefulsets/scale", "update", "pool.scale-out", "may not update statefulsets/scale of apps prefill"),
        ("pods", "delete", "worker.restart", "may not delete pods"),
        ("pods", "watch", "pool.scale-in", "may not watch pods"),
        ("horizontalpodautoscalers", "list", "pool.scale-in", "may not list horizontalpodautoscalers of autoscaling"),
        ("leases", "create", "worker.cordon", "may not create leases"),
    ],
)
def test_a_missing_right_is_a_missing_capability(kit: Kit, resource: str, verb: str, action: str, says: str) -> None:
    kit.double.rules = without(verb, resource)
    refusal = kit.backend().capabilities().refusal(action)
    assert refusal is not None
    assert says in refusal


def test_who_does_not_ask_offers_what_then_fails(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Rights, "missing", lambda *_: None)
    kit.double.rules = without("update", "statefulsets/scale")
    backend = kit.backend()
    assert backend.capabilities().refusal("pool.scale-out") is None
    with pytest.raises(ActionError, match="may not update statefulsets/scale of apps prefill") as caught:
        out(backend, 3)
    assert "Role" in caught.value.hint


def without(verb: str, resource: str) -> list[Object]:
    return [{**r, "verbs": [v for v in r["verbs"] if not (v == verb and resource in r["resources"])]} for r in RULES]


# -- too many requests (429)


def looked_at_while_busy(kit: Kit) -> tuple[int, float]:
    """Read one object of a busy server; return how many requests that took and how long."""
    api = kit.api()
    kit.double.busy(5.0, "5")
    sent, began = len(kit.double.sent), kit.clock.monotonic()
    api.get(Resource("apps/v1", "statefulsets"), "prefill")
    return len(kit.double.sent) - sent, kit.clock.monotonic() - began


def test_a_busy_server_is_left_alone_as_long_as_it_says(kit: Kit) -> None:
    assert looked_at_while_busy(kit) == (2, pytest.approx(5.0))


def test_without_retry_after_it_is_hammered(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "_seconds", lambda _: 0.1)
    assert looked_at_while_busy(kit)[0] > 40


@pytest.mark.parametrize("retry_after", ["3600", "soon", "-1", "9" * 400])
def test_a_server_that_stays_busy_is_given_up_in_bounds_and_nothing_is_done(kit: Kit, retry_after: str) -> None:
    backend = kit.backend()
    backend.capabilities()
    kit.double.busy(7200.0, retry_after)
    began = kit.clock.monotonic()
    with pytest.raises(BusyError, match="no more requests"):
        out(backend, 3)
    assert kit.clock.monotonic() - began <= 20.0
    assert "no more requests" in backend.observe().get("pool/prefill/replicas").why
    assert kit.double.replicas("prefill") == 2


def test_without_the_bound_an_hour_is_waited(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_api, "PATIENCE_S", 1e9)
    kit.double.busy(3600.0, "3600")
    began = kit.clock.monotonic()
    kit.api().get(Resource("apps/v1", "statefulsets"), "prefill")
    assert kit.clock.monotonic() - began == pytest.approx(3600.0)


# -- an autoscaler that owns the replicas


MAY_SET_BOUNDS = [
    *RULES,
    {"apiGroups": ["autoscaling"], "resources": ["horizontalpodautoscalers"], "verbs": ["update"]},
]


def test_an_autoscaler_is_named_as_owner_and_nothing_is_set_behind_its_back(kit: Kit) -> None:
    kit.autoscaler("prefill", 2, 4, wish=2)
    backend = kit.backend()
    seen = backend.observe().get("pool/prefill/owner")
    assert seen.value == "HorizontalPodAutoscaler/prefill"
    assert "autoscalers: bounds" in seen.why
    assert backend.observe().get("pool/decode/owner").value == ""
    with pytest.raises(ActionError, match="sets the size"):
        out(backend, 3)
    with pytest.raises(ActionError, match="sets the size"):
        backend.apply("pool.scale-in", {"role": "prefill", "worker": "prefill-1", "replicas": 1}, FENCE)
    assert not [c for c in kit.double.calls if c[0] == "update" and c[2] != "leases"]


def test_who_does_not_see_the_autoscaler_sets_what_it_puts_back(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kubernetes_read, "owner_of", lambda *_, **__: None)
    kit.autoscaler("prefill", 2, 4, wish=2)
    assert out(kit.backend(), 3).changed
    assert kit.double.replicas("prefill") == 2


def test_where_it_is_allowed_the_autoscaler_is_told_by_its_bounds(kit: Kit) -> None:
    kit.double.rules = MAY_SET_BOUNDS
    kit.autoscaler("prefill", 1, 4, wish=2)
    backend = kit.backend(bounds=True)
    seen = backend.observe().get("pool/prefill/owner")
    assert (seen.value, seen.source) == ("", "HorizontalPodAutoscaler/prefill, by its bounds")
    assert "minReplicas" in out(backend, 3).detail
    assert kit.double.replicas("prefill") == 3
    # What was raised can be taken back; then the load decides.
    kit.router.cordoned["prefill-2"] = False
    assert backend.apply("pool.scale-in", {"role": "prefill", "worker": "prefill-2", "replicas": 2}, FENCE).changed
    assert kit.double.replicas("prefill") == 2
    kit.double.change("horizontalpodautoscalers", "prefill", lambda o: o["spec"].update(minReplicas=1))
    with pytest.raises(ActionError, match="decides when a worker goes"):
        backend.apply("pool.scale-in", {"role": "prefill", "worker": "prefill-1", "replicas": 1}, FENCE)


def test_an_autoscaler_is_not_asked_beyond_its_maximum_nor_without_the_right(kit: Kit) -> None:
    kit.autoscaler("prefill", 2, 2, wish=2)
    assert "may not update horizontalpodautoscalers" in str(
        kit.backend(bounds=True).capabilities().refusal("pool.scale-out")
    )
    kit.double.rules = MAY_SET_BOUNDS
    with pytest.raises(ActionError, match="may not go so far"):
        out(kit.backend(bounds=True), 3)


def test_bounds_that_somebody_changes_at_once_are_not_overwritten(kit: Kit) -> None:
    kit.double.rules = MAY_SET_BOUNDS
    kit.autoscaler("prefill", 1, 4, wish=2)
    change = lambda: kit.double.change("horizontalpodautoscalers", "prefill", lambda o: o["spec"].update(maxReplicas=9))  # noqa: E731
    kit.meanwhile("update", "horizontalpodautoscalers", change)
    with pytest.raises(BusyError, match="changed the autoscaler"):
        out(kit.backend(bounds=True), 3)
    assert kit.double.get("horizontalpodautoscalers", "prefill")["spec"] | {"scaleTargetRef": 0} == {
        "scaleTargetRef": 0, "minReplicas": 1, "maxReplicas": 9,
    }  # fmt: skip


@pytest.mark.parametrize("of", ["horizontalpodautoscalers", "statefulsets"])
def test_what_an_operator_made_is_left_to_it(kit: Kit, of: str) -> None:
    kit.autoscaler("prefill", 2, 4, wish=2)
    made_by = [{"kind": "ScaledObject", "name": "pre", "controller": True}]
    kit.double.change(of, "prefill", lambda o: o["metadata"].update(ownerReferences=made_by))
    kit.double.rules = MAY_SET_BOUNDS
    backend = kit.backend(bounds=True)
    assert backend.observe().get("pool/prefill/owner").value == "ScaledObject/pre"
    with pytest.raises(ActionError, match="ScaledObject/pre sets the size"):
        out(backend, 3)
