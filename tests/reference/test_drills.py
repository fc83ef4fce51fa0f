"""Every drill on a deployment that pretends: what it breaks it puts back, however it ends, and its truth has no gap."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdops.catalog.load import catalog
from pdops.clock import VirtualClock
from pdops.errors import DeploymentError, UsageError
from pdops.model.report import Verdict
from pdops.reference import pages
from pdops.reference.drills import direct, leases, load_shapes, play, tcpcopy
from pdops.reference.drills.plan import AFTER_S, BEFORE_S, QUIET_S, Drill, Need, Split, Step, obstacles
from pdops.reference.drills.registry import DRILLS, FAMILIES, find
from pdops.reference.drills.startup_mismatch import write_plugin
from pdops.sources.truth import load_truth
from tests.reference.drill_double import START_S, Cast, D, Double, Links, P, hands, spec

HERE = Path(__file__).resolve().parents[2]
ACTING = [drill for drill in DRILLS.values() if drill.act is not None]


@pytest.fixture
def deployment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Double:
    (tmp_path / "token").write_text("secret\n")
    double = Double(tmp_path, spec(store=True))
    double.network = Links(double.did)

    def post(url: str, content: Any, *_more: object) -> Any:
        if url.endswith("/admin/drills"):
            double.switch = content["mode"]
        elif url.endswith("/admin/workers"):
            double.registered.add(content["id"])
        elif "kv_transfer_params" not in content:
            return {"choices": [{"text": "right"}]}
        elif content["kv_transfer_params"].get("do_remote_decode"):
            return {"choices": [{"text": "r"}], "kv_transfer_params": {"remote_engine_id": P}}
        else:
            return {"choices": [{"text": "wrong"}]}
        return {}

    def removed(url: str, _token: Path) -> None:
        double.registered.discard(url.rpartition("/")[2])

    def rate(_net: object, _src: str, _dst: str, *, most_bytes: int, seconds: float) -> float:
        return most_bytes * 8 / (seconds / 2) if most_bytes < 1 << 22 else 9e9

    monkeypatch.setattr(pages, "post", post)
    monkeypatch.setattr(pages, "get", lambda *_: str(sorted(double.registered)))
    monkeypatch.setattr(direct, "removed", removed)
    monkeypatch.setattr(tcpcopy, "bits_per_s", rate)
    return double


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START_S)


def run(drill: Drill, deployment: Double, clock: VirtualClock, part: Path, cast: Cast | None = None) -> Any:
    return play.play(drill, deployment, cast or Cast(clock), part, hands(clock, []))


def replaced(drill: Drill, **changes: Any) -> Drill:
    import dataclasses

    return dataclasses.replace(drill, **changes)


def test_the_registry_is_whole_and_named_after_its_files() -> None:
    assert len(DRILLS) >= 16
    assert sum(len(f.DRILLS) for f in FAMILIES) == len(DRILLS)
    for family in FAMILIES:
        assert {d.family for d in family.DRILLS} == {family.__name__.rpartition(".")[2]}


@pytest.mark.parametrize("drill", DRILLS.values(), ids=lambda d: d.name)
def test_what_a_drill_expects_can_be_said(drill: Drill) -> None:
    assert set(drill.expect.causes) <= set(catalog().causes)
    assert bool(drill.expect.causes) == (drill.act is not None) == (drill.expect.verdict is not Verdict.HEALTHY)
    assert (drill.act is None) == ("healthy" in drill.name)
    # Short enough to be watched, long enough that a diagnosis has a window of health before and after.
    assert BEFORE_S > 60
    assert BEFORE_S + QUIET_S + AFTER_S < drill.least_s < 330


def test_the_split_beside_the_recordings_is_the_split_of_the_drills() -> None:
    split = yaml.safe_load((HERE / "fixtures" / "recordings" / "SPLIT.yaml").read_text())
    for side in Split:
        assert set(split[side.value]) == {d.name for d in DRILLS.values() if d.split is side}
    assert abs(len(split["develop"]) - len(split["judge"])) <= 1


@pytest.mark.parametrize("drill", DRILLS.values(), ids=lambda d: d.name)
def test_a_drill_puts_everything_back_and_its_truth_covers_every_second(
    drill: Drill, deployment: Double, clock: VirtualClock, tmp_path: Path
) -> None:
    part, where = tmp_path / "part.pdrec", play.outputs(drill, tmp_path / "out")
    cast = Cast(clock)
    stage, length_s = run(drill, deployment, clock, part, cast)
    assert deployment.whole()
    assert (cast.running, cast.recording) == (0, False)
    played = play.keep(drill, stage, length_s, part, where)
    truth = load_truth(played.truth, duration_s=length_s)
    assert truth.windows[0].verdict is Verdict.HEALTHY
    assert truth.windows[-1].verdict is Verdict.HEALTHY
    assert truth.windows[0].to_s >= BEFORE_S
    told = [w for w in truth.windows if w.verdict not in (None, Verdict.HEALTHY)]
    assert len(told) == (0 if drill.act is None else 1)
    for window in told:
        assert window.verdict is drill.expect.verdict
        assert {s.id for s in window.scope_set()}.isdisjoint({"", "{prefill}"})
        # From the last thing that was done to the fault window there is time to notice.
        done = [a.t_s for a in truth.actions if a.t_s <= window.from_s]
        assert not drill.settle_s or window.from_s - done[-1] >= drill.settle_s - 0.1
    assert truth.command == f"pdops drill run {drill.name}"


@pytest.mark.parametrize("drill", ACTING, ids=lambda d: d.name)
@pytest.mark.parametrize(
    "error", [RuntimeError("no"), DeploymentError("no"), KeyboardInterrupt()], ids=lambda e: type(e).__name__
)
def test_a_drill_that_fails_right_after_its_act_puts_everything_back(
    drill: Drill, error: BaseException, deployment: Double, clock: VirtualClock, tmp_path: Path
) -> None:
    assert drill.act is not None
    act: Step = drill.act

    def fail(stage: Any) -> None:
        act(stage)
        raise error

    cast = Cast(clock)
    with pytest.raises(type(error)):
        run(replaced(drill, act=fail), deployment, clock, tmp_path / "x.pdrec", cast)
    assert deployment.whole()
    assert (cast.running, cast.recording) == (0, False)


@pytest.mark.parametrize("drill", ACTING, ids=lambda d: d.name)
def test_a_drill_whose_act_fails_at_any_step_puts_everything_back(
    drill: Drill, deployment: Double, clock: VirtualClock, tmp_path: Path
) -> None:
    run(drill, deployment, clock, tmp_path / "x.pdrec")
    steps = list(dict.fromkeys(c for c in deployment.calls if not c.startswith("wait_ready")))
    assert steps or drill.needs
    for step in steps:
        deployment.calls.clear()
        deployment.fails = step
        with pytest.raises((RuntimeError, DeploymentError)):
            run(drill, deployment, clock, tmp_path / "x.pdrec")
        assert deployment.whole(), step


@pytest.fixture
def listening() -> Iterator[None]:
    """Ctrl-C as in a terminal: a job in the background is started with it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("after_s", [1.0, BEFORE_S + 5, BEFORE_S + 40])
def test_an_interrupt_at_any_time_puts_everything_back(
    after_s: float, number: int, deployment: Double, clock: VirtualClock, tmp_path: Path
) -> None:
    def interrupt(at_s: float) -> None:
        if at_s >= after_s:
            cast.at = lambda _s: None
            signal.raise_signal(number)

    cast = Cast(clock, at=interrupt)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        run(find("prefill-frozen"), deployment, clock, tmp_path / "x.pdrec", cast)
    assert deployment.whole()
    assert signal.getsignal(number) is before
    assert ("freeze " + P in deployment.calls) == (after_s > BEFORE_S)


@pytest.mark.usefixtures("listening")
def test_an_interrupt_while_it_puts_back_is_heard_afterwards(
    deployment: Double, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thaw: Callable[[str], None] = deployment.thaw

    def slow_thaw(worker: str) -> None:
        signal.raise_signal(signal.SIGINT)
        thaw(worker)

    monkeypatch.setattr(deployment, "thaw", slow_thaw)
    lines: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        play.play(find("prefill-frozen"), deployment, Cast(clock), tmp_path / "x.pdrec", hands(clock, lines))
    assert deployment.whole()
    assert any("please wait" in line for line in lines)


def test_one_thing_that_cannot_be_put_back_does_not_keep_the_others(
    deployment: Double, clock: VirtualClock, tmp_path: Path
) -> None:
    def act(stage: Any) -> None:
        stage.undo("thaw", D, lambda: deployment.thaw(D))
        stage.undo("thaw", P, lambda: deployment.thaw("nobody"))
        deployment.freeze(D)

    deployment.fails = "thaw nobody"
    with pytest.raises(DeploymentError, match=r"thaw prefill-0: thaw nobody fails") as caught:
        run(replaced(find("decode-frozen"), act=act), deployment, clock, tmp_path / "x.pdrec")
    assert "pdops down" in caught.value.hint
    assert not deployment.frozen


def test_a_fault_that_does_not_show_is_said_and_put_back(
    deployment: Double, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "metrics", lambda _worker: "")
    with pytest.raises(DeploymentError, match="did not take effect"):
        run(find("prefill-abandoned"), deployment, clock, tmp_path / "x.pdrec")
    assert deployment.whole()


def test_a_link_that_is_not_as_slow_as_asked_stops_the_drill(
    deployment: Double, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcpcopy, "bits_per_s", lambda *_a, **_k: 9e9)
    with pytest.raises(DeploymentError, match="not as slow as it should be"):
        run(find("link-slow"), deployment, clock, tmp_path / "x.pdrec")
    assert deployment.whole()


def test_the_proven_rate_of_a_link_is_in_the_truth(deployment: Double, clock: VirtualClock, tmp_path: Path) -> None:
    stage, _ = run(find("link-slow"), deployment, clock, tmp_path / "x.pdrec")
    assert next(a["what"] for a in stage.actions).startswith("limit the KV link to 2.05 Mbit/s (a plain TCP copy: 2.05")


def test_long_prompts_come_as_often_as_short_ones_and_more_than_prefill_was_measured_to_compute(
    deployment: Double, clock: VirtualClock, tmp_path: Path
) -> None:
    cast = Cast(clock)
    stage, _ = run(find("long-prompt-shift"), deployment, clock, tmp_path / "x.pdrec", cast)
    measured = stage.measured["prompt_tokens_per_s"]
    _probe, _warm_up, short, long, again = cast.loads
    assert (
        short["rate"] == long["rate"] == again["rate"] == pytest.approx(load_shapes.SURPLUS * measured / long["prompt"])
    )
    assert (short["prompt"], long["prompt"], again["prompt"]) == (64, load_shapes.LONG, 64)
    told = next(a["what"] for a in stage.actions)
    assert f"{measured:,.0f} prompt tokens/s" in told
    assert f"{short['rate']:.3g} requests/s" in told


def test_prefill_that_computes_nothing_is_no_ground_for_a_rate(
    deployment: Double, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployment, "metrics", lambda _worker: "vllm:prompt_tokens_total 5\n")
    with pytest.raises(DeploymentError, match="computed no prompt"):
        run(find("long-prompt-shift"), deployment, clock, tmp_path / "x.pdrec")
    assert deployment.whole()


def test_every_stale_pull_and_its_text_is_in_the_truth(deployment: Double, clock: VirtualClock, tmp_path: Path) -> None:
    stage, _ = run(find("stale-pull"), deployment, clock, tmp_path / "x.pdrec")
    pulls = [a["what"] for a in stage.actions if a["what"].startswith("pull after")]
    assert pulls == ["pull after the lease: status 200, wrong text from character 0 on"] * leases._STALE


def test_stale_pulls_that_all_give_the_right_text_are_no_drill(
    deployment: Double, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(direct, "pulled", lambda *_: "right")
    with pytest.raises(DeploymentError, match="did not take effect"):
        run(find("stale-pull"), deployment, clock, tmp_path / "x.pdrec")


def test_a_drill_without_what_it_needs_says_what_is_missing(tmp_path: Path) -> None:
    plain = Double(tmp_path, spec())
    able, unable = (lambda: (True, "")), (lambda: (False, "CAP_NET_ADMIN is missing"))
    assert obstacles(find("link-slow"), plain, namespaces=able) == ("needs a deployment with --network namespaces",)
    assert obstacles(find("link-slow"), None, namespaces=unable) == (
        "needs network namespaces: CAP_NET_ADMIN is missing",
    )
    assert obstacles(find("link-slow"), None, namespaces=able) == ()
    assert "needs a deployment with --kv-store mooncake" in obstacles(find("kv-store-stopped"), plain, namespaces=able)
    other = Double(tmp_path, spec(router="vllm-router"))
    assert obstacles(find("prefill-frozen"), other) == ("needs a deployment with --router pdops",)
    assert obstacles(find("prefill-abandoned"), plain, router_drills=False) == (
        "needs a router started with --allow-drills",
    )
    assert find("kv-store-stopped").up_command() == "pdops up --network namespaces --kv-store mooncake"


def test_a_deployment_that_is_not_whole_is_not_drilled(deployment: Double) -> None:
    deployment.dead.add(D)
    with pytest.raises(DeploymentError, match="decode-0: its process has ended"):
        play.check(find("prefill-frozen"), deployment)


def test_existing_files_and_folders_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "prefill-frozen.truth.yaml").write_text("")
    with pytest.raises(UsageError, match="exists already"):
        play.outputs(find("prefill-frozen"), tmp_path)
    assert play.outputs(find("prefill-frozen"), tmp_path, force=True)[0].name == "prefill-frozen.pdrec"
    with pytest.raises(UsageError, match="cannot make the output folder"):
        play.outputs(find("prefill-frozen"), tmp_path / "prefill-frozen.truth.yaml" / "x")


def test_a_recording_too_large_to_keep_is_not_kept(deployment: Double, clock: VirtualClock, tmp_path: Path) -> None:
    drill, part = find("healthy-load"), tmp_path / "x.pdrec"
    stage, length_s = run(drill, deployment, clock, part)
    part.write_bytes(bytes(play.MOST_BYTES + 1))
    where = play.outputs(drill, tmp_path / "out")
    with pytest.raises(DeploymentError, match="too large"):
        play.keep(drill, stage, length_s, part, where)
    assert not any(path.exists() for path in where)


def test_an_unknown_drill_is_told_with_its_neighbours() -> None:
    with pytest.raises(UsageError, match="no drill 'link-slw'") as caught:
        find("link-slw")
    assert "link-slow" in caught.value.hint


def test_the_plugin_of_the_version_drill_can_be_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import entry_points

    monkeypatch.syspath_prepend(str(write_plugin(tmp_path)))
    assert "pdops_drill_version:register" in [e.value for e in entry_points(group="vllm.general_plugins")]
    assert Need.CPU in find("version-mismatch").needs


@pytest.mark.parametrize("up", [False, True])
def test_the_list_is_as_published(up: bool, deployment: Double) -> None:
    import jsonschema

    from pdops.reference.drills import schema
    from pdops.reference.drills.run import listing

    found = listing(deployment if up else None)
    jsonschema.validate(found, schema.listing())
    assert found["deployment"] == ("double" if up else None)
    assert all(bool(d["why"]) != d["available"] for d in found["drills"])


def test_a_diagnosis_is_compared_with_the_truth() -> None:
    import jsonschema

    from pdops.reference.drills import judge, schema

    folder = HERE / "fixtures" / "recordings"
    right = judge.compare(folder / "prefill-killed.pdrec", folder / "prefill-killed.truth.yaml")
    assert right.right
    assert right.lines()[0].startswith("diagnosis RIGHT: at ")
    jsonschema.validate(json.loads(json.dumps(right.document())), schema.running()["properties"]["diagnosis"])


def test_a_wrong_diagnosis_is_told(tmp_path: Path) -> None:
    from pdops.reference.drills import judge

    folder = HERE / "fixtures" / "recordings"
    text = (folder / "prefill-killed.truth.yaml").read_text().replace("- prefill-down", "- kvstore-down")
    (tmp_path / "x.truth.yaml").write_text(text)
    wrong = judge.compare(folder / "prefill-killed.pdrec", tmp_path / "x.truth.yaml")
    assert not wrong.right
    assert "WRONG" in wrong.lines()[0]
    assert "fault window: 0 of" in wrong.lines()[1]
