"""Every way in which a pair or a router can be right, wrong, or not to be judged."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import jsonschema
import pytest

from pdops.clock import WallClock
from pdops.errors import UsageError
from pdops.model.cluster import Cluster, Pair, Secret
from pdops.model.frame import ProbeKind
from pdops.model.report import Bound
from pdops.probe.canary import TOKENS, Canary, CanarySettings
from pdops.probe.choose import by_decode, chosen_pairs
from pdops.probe.encode import schema, to_json
from pdops.probe.report import Api, CanaryReport, Check, Result, Status, to_probes
from pdops.probe.words import prompt_of
from tests.probe import doubles as d

QUICK = CanarySettings(timeout_s=20.0, settle_s=0.3, poll_s=0.01)
HASTY = CanarySettings(timeout_s=0.5, settle_s=0.1, poll_s=0.01)


async def ask(cluster: Cluster, settings: CanarySettings = QUICK, **more: bool) -> CanaryReport:
    report = await Canary(cluster, WallClock(), settings).run(cluster.pairs(), **more)
    jsonschema.validate(json.loads(to_json(report)), schema())
    return report


async def one(
    decode: d.Served, prefill: d.Served | None = None, settings: CanarySettings = QUICK, **more: object
) -> Result:
    async with d.cluster_of([prefill or d.HonestPrefill()], [decode], **more) as cluster:
        return (await ask(cluster, settings)).pairs[0]


def bad(result: Result) -> dict[str, str]:
    return {check.name: check.status.value for check in result.checks if check.status is not Status.OK}


def check(result: Result, name: str) -> Check:
    return next(check for check in result.checks if check.name == name)


async def test_a_sound_pair_is_right_to_the_byte() -> None:
    prefill, decode = d.HonestPrefill(), d.HonestDecode()
    result = await one(decode, prefill)
    assert (result.status, result.because, result.next) == (Status.OK, "", ())
    tokens = result.prompt_tokens
    assert tokens == d.tokens_in(prompt_of())
    assert check(result, "external_tokens").observed == tokens
    assert check(result, "bytes").observed == check(result, "bytes").expected == d.blocks_bytes(tokens)
    assert None not in dataclasses.astuple(result.seconds)
    first, reference = prefill.bodies
    assert first["kv_transfer_params"] == {"do_remote_decode": True, "do_remote_prefill": False}
    assert (first["max_tokens"], first["temperature"]) == (1, 0)
    assert "kv_transfer_params" not in reference
    assert reference["max_tokens"] == TOKENS
    assert decode.bodies[0]["kv_transfer_params"]["remote_engine_id"] == prefill.url
    assert prefill.headers[0]["X-Request-Id"] == decode.headers[0]["X-Request-Id"]


async def test_two_canaries_share_no_beginning() -> None:
    prefill = d.HonestPrefill()
    async with d.cluster_of([prefill], [d.HonestDecode()]) as cluster:
        await ask(cluster)
        await ask(cluster)
    assert prefill.bodies[0]["prompt"][:16] != prefill.bodies[2]["prompt"][:16]


WRONG = [
    (d.WrongTextDecode, {"text"}, "differs from prefill's own"),
    (d.ErrorInStreamDecode, {"answer"}, "KV load failed"),
    (d.CutStreamDecode, {"answer"}, "broke off"),
    (d.EmptyDecode, {"answer", "text", "finish_reason"}, "empty"),
    (d.GarbageDecode, {"answer"}, "not a JSON object: <html>hello</html>"),
    (d.EndlessDecode, {"answer"}, "longer than"),
    (d.RefusingDecode, {"answer"}, "HTTP 500: remote agent is not known"),
    (d.SelfComputingDecode, {"external_tokens", "local_compute", "bytes"}, "took no KV"),
    (d.HalfPullingDecode, {"local_compute"}, "computed 36 of 52 prompt tokens itself"),
    (d.ShortPullDecode, {"bytes"}, "moved 4800 bytes of KV, expected 6400"),
    (d.UnfinishedDecode, {"finish_reason"}, "finish_reason is missing, expected length"),
    (d.StoppedDecode, {"finish_reason"}, "finish_reason is stop, expected length"),
    (d.OtherTemplateDecode, {"answer", "bytes"}, "counts 55 prompt tokens, prefill 52"),
    (d.BusySelfComputingDecode, {"local_compute"}, "computed 22 of 52 prompt tokens itself"),
]


@pytest.mark.parametrize(("double", "names", "why"), WRONG, ids=lambda v: getattr(v, "__name__", ""))
async def test_a_broken_decode_is_wrong(double: type[d.HonestDecode], names: set[str], why: str) -> None:
    result = await one(double())
    assert result.status is Status.WRONG
    assert names - {"bytes"} <= {name for name, status in bad(result).items() if status == "wrong"}
    assert why in result.because
    assert result.next
    assert "\x1b" not in to_json(CanaryReport(cluster="c", at_s=0.0, model=None, pairs=(result,)))


async def test_text_is_all_that_is_wrong_when_the_blocks_held_another_prompt() -> None:
    assert bad(await one(d.WrongTextDecode())) == {"text": "wrong"}


async def test_token_ids_tell_more_than_text() -> None:
    right = await one(d.TellingDecode(), d.TellingPrefill())
    assert (right.status, check(right, "text").why) == (Status.OK, "compared by token ids")
    assert bad(await one(d.MisreadingDecode(), d.TellingPrefill())) == {"text": "wrong"}


async def test_a_decode_that_computes_the_prompt_itself_answers_the_right_text() -> None:
    result = await one(d.SelfComputingDecode())
    assert bad(result) == {"external_tokens": "wrong", "local_compute": "wrong", "bytes": "wrong"}
    assert check(result, "local_compute").observed == 52


async def test_a_silent_decode_is_wrong_after_the_limit() -> None:
    result = await one(d.SilentDecode(), settings=HASTY)
    assert result.status is Status.WRONG
    assert "decode-0: no answer within" in result.because


@pytest.mark.parametrize(
    ("double", "why"),
    [
        (d.AddresslessPrefill, "gave no kv_transfer_params"),
        (d.RefusingPrefill, "HTTP 500: engine core died"),
        (d.GuardedPrefill, "HTTP 401: unauthorized"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
async def test_a_broken_prefill_is_wrong_and_decode_is_not_asked(double: type[d.HonestPrefill], why: str) -> None:
    decode = d.HonestDecode()
    result = await one(decode, double())
    assert bad(result) == {"prefill": "wrong"}
    assert why in result.because
    assert decode.bodies == []


async def test_a_token_is_read_from_its_file_and_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")
    prefill = d.GuardedPrefill()
    prefill.secret = Secret(bearer_token_file=str(tmp_path / "token"))
    decode = d.HonestDecode()
    assert (await one(decode, prefill)).status is Status.OK
    assert "Authorization" not in decode.headers[0]


async def test_a_token_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    prefill = d.HonestPrefill()
    prefill.secret = Secret(bearer_token_file=str(tmp_path / "none"))
    assert "cannot be read" in (await one(d.HonestDecode(), prefill)).because


async def test_a_prefill_that_does_not_repeat_itself_proves_nothing() -> None:
    assert bad(await one(d.HonestDecode(), d.FicklePrefill())) == {"text": "unknown"}


async def test_a_chat_only_model_is_asked_by_chat() -> None:
    prefill, decode = d.ChatOnlyPrefill(), d.ChatDecode()
    result = await one(decode, prefill)
    assert (result.status, result.api) == (Status.OK, Api.CHAT)
    assert "messages" in decode.bodies[0]
    assert result.prompt_tokens == 57


async def test_a_chat_template_in_decodes_own_cache_is_not_pulled() -> None:
    result = await one(d.CachedTemplateDecode(), d.ChatOnlyPrefill())
    assert bad(result) == {}
    assert check(result, "bytes").observed == d.blocks_bytes(57 - d.BLOCK)


async def test_others_that_are_pulled_too_leave_a_bound() -> None:
    result = await one(d.BusyDecode())
    # Their twenty cached tokens are no computed ones, so ours came from outside as a whole.
    assert bad(result) == {}
    assert check(result, "external_tokens").observed == 52
    assert check(result, "bytes").expected == Bound(6400, "ge")
    assert "not exactly told" in check(result, "bytes").why


async def test_others_that_are_computed_hide_where_ours_came_from() -> None:
    result = await one(d.BusyComputingDecode())
    assert bad(result) == {"external_tokens": "unknown", "local_compute": "unknown"} or bad(result) == {
        "local_compute": "unknown"
    }
    assert result.status is Status.UNKNOWN
    assert "other requests moved the counters" in result.because


@pytest.mark.parametrize(
    ("double", "why"),
    [
        (d.UncountingDecode, "the page of decode-0 (vllm) has no external_kv_tokens"),
        (d.NeverCountingDecode, "did not count this request in time"),
        (d.RestartingDecode, "decode-0 restarted in between"),
        (d.UnreadableDecode, "the page of decode-0 cannot be read: HTTP 503"),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
async def test_without_counters_a_right_text_is_not_enough(double: type[d.HonestDecode], why: str) -> None:
    result = await one(double())
    assert bad(result) == dict.fromkeys(("external_tokens", "local_compute", "bytes"), "unknown")
    assert result.status is Status.UNKNOWN
    assert why in result.because


async def test_counters_that_come_late_are_waited_for() -> None:
    settings = dataclasses.replace(QUICK, settle_s=10.0)
    assert (await one(d.LateDecode(), settings=settings)).status is Status.OK


async def test_without_kv_bytes_per_token_how_many_bytes_had_to_move_is_unknown() -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.HonestDecode()], kv_bytes_per_token=None) as cluster:
        report = await ask(cluster)
    assert report.status is Status.UNKNOWN
    assert bad(report.pairs[0]) == {"bytes": "unknown"}
    assert "cannot be told without kv_bytes_per_token" in check(report.pairs[0], "bytes").why
    assert any("give model.kv_bytes_per_token" in note for note in report.notes)


async def test_another_model_than_the_inventorys_is_said() -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.HonestDecode()], model="qwen") as cluster:
        report = await ask(cluster)
    assert report.model == d.MODEL
    assert any("'qwen' is not served" in note for note in report.notes)


async def test_sixteen_pairs_in_parallel_and_never_two_on_one_decode() -> None:
    prefills = [d.HonestPrefill() for _ in range(4)]
    decodes = [d.SlowDecode() for _ in range(4)]
    told: list[str] = []
    async with d.cluster_of(prefills, decodes) as cluster:
        canary = Canary(cluster, WallClock(), QUICK)
        report = await canary.run(cluster.pairs(), told=lambda result: told.append(result.name))
    assert [r.name for r in report.pairs] == [str(pair) for pair in cluster.pairs()]
    assert sorted(told) == sorted(map(str, cluster.pairs()))
    assert report.status is Status.OK, [r.because for r in report.pairs]
    # Two at once on one decode would have been seen in each other's counters, which are exact here.
    assert all(check(r, "bytes").observed == check(r, "bytes").expected for r in report.pairs)
    assert [decode.most for decode in decodes] == [1, 1, 1, 1]


async def test_one_broken_decode_of_four_is_told_apart() -> None:
    decodes = [d.HonestDecode(), d.HonestDecode(), d.WrongTextDecode(), d.HonestDecode()]
    async with d.cluster_of([d.HonestPrefill() for _ in range(2)], decodes) as cluster:
        report = await ask(cluster)
    wrong = {r.name for r in report.pairs if r.status is Status.WRONG}
    assert wrong == {"prefill-0>decode-2", "prefill-1>decode-2"}
    assert report.status is Status.WRONG


def test_each_decode_begins_at_another_prefill() -> None:
    pairs = [Pair(f"p{p}", f"d{n}") for p in range(3) for n in range(3)]
    assert [mine[0].src for mine in by_decode(pairs)] == ["p0", "p1", "p2"]


async def test_a_router_that_hands_over_is_right() -> None:
    prefill, decodes = d.HonestPrefill(), [d.HonestDecode(), d.HonestDecode()]
    async with d.cluster_of([prefill], decodes, [d.HonestRouter(prefill, decodes[1])]) as cluster:
        report = await ask(cluster)
    result = report.routers[0]
    assert (result.status, result.because) == (Status.OK, "")
    assert (result.src, result.dst) == ("prefill-0", "decode-1")


async def test_a_router_that_drops_the_address_is_wrong_although_the_text_is_right() -> None:
    prefill, decode = d.HonestPrefill(), d.HonestDecode()
    async with d.cluster_of([prefill], [decode], [d.ForgetfulRouter(prefill, decode)]) as cluster:
        report = await ask(cluster)
    assert report.pairs[0].status is Status.OK
    assert bad(report.routers[0]) == dict.fromkeys(("external_tokens", "local_compute", "bytes"), "wrong")
    assert "kv_transfer_params" in report.routers[0].next[0]


async def test_a_router_without_room_is_wrong() -> None:
    prefill, decode = d.HonestPrefill(), d.HonestDecode()
    async with d.cluster_of([prefill], [decode], [d.FullRouter(prefill, decode)]) as cluster:
        result = (await ask(cluster)).routers[0]
    assert "router-0: HTTP 503: queue is full" in result.because


async def test_a_router_to_an_unseen_decode_cannot_be_judged() -> None:
    prefill, decode, hidden = d.HonestPrefill(), d.HonestDecode(), d.HonestDecode()
    async with (
        hidden.running(),
        d.cluster_of([prefill], [decode], [d.HonestRouter(prefill, hidden)]) as cluster,
    ):
        result = (await ask(cluster)).routers[0]
    assert result.status is Status.UNKNOWN
    assert result.dst is None


async def test_a_router_alone_is_compared_with_a_prefill_that_answers() -> None:
    prefills, decode = [d.HonestPrefill(), d.RefusingPrefill(), d.HonestPrefill()], d.HonestDecode()
    router = d.HonestRouter(prefills[2], decode)
    async with d.cluster_of(prefills, [decode], [router]) as cluster:
        canary = Canary(cluster, WallClock(), QUICK)
        result = (await canary.run([])).routers[0]
    assert (result.status, result.src) == (Status.OK, "prefill-0")


async def test_a_router_is_compared_with_the_prefill_that_proved_itself() -> None:
    prefills, decode = [d.RefusingPrefill(), d.HonestPrefill()], d.HonestDecode()
    async with d.cluster_of(prefills, [decode], [d.HonestRouter(prefills[1], decode)]) as cluster:
        report = await ask(cluster)
    assert [r.status for r in report.results] == [Status.WRONG, Status.OK, Status.OK]
    assert report.routers[0].src == "prefill-1"


async def test_a_router_without_any_prefill_known_has_nothing_to_compare_with() -> None:
    prefill, decode = d.HonestPrefill(), d.HonestDecode()
    async with prefill.running(), d.cluster_of([], [decode], [d.HonestRouter(prefill, decode)]) as cluster:
        canary = Canary(cluster, WallClock(), QUICK)
        result = (await canary.run([])).routers[0]
    # The double of a router lists a model of its own, as routers do.
    assert bad(result) == {"text": "unknown"}


async def test_routers_are_left_out_on_demand() -> None:
    prefill, decode = d.HonestPrefill(), d.HonestDecode()
    async with d.cluster_of([prefill], [decode], [d.HonestRouter(prefill, decode)]) as cluster:
        assert (await ask(cluster, routers=False)).routers == ()


async def test_nothing_that_answers_is_told_apart_from_wrong_answers() -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.HonestDecode()]) as cluster:
        pass
    report = await ask(cluster, HASTY)
    assert not report.reachable
    assert "connection refused" in report.pairs[0].because


async def test_a_dead_decode_is_wrong_and_prefill_answered() -> None:
    dead = d.HonestDecode()
    async with dead.running():
        pass
    async with d.cluster_of([d.HonestPrefill()], []) as cluster:
        both = dataclasses.replace(cluster, workers=(*cluster.workers, dead.worker("decode-0")))
        report = await ask(both, HASTY)
    assert report.reachable
    assert "decode-0: connection refused" in report.pairs[0].because


async def test_results_are_probes_of_the_model() -> None:
    prefill = d.HonestPrefill()
    decodes = [d.HonestDecode(), d.WrongTextDecode(), d.UncountingDecode()]
    async with d.cluster_of([prefill], decodes, [d.HonestRouter(prefill, decodes[0])]) as cluster:
        probes = to_probes((await ask(cluster)).results)
    assert [probe.ok for probe in probes[:3]] == [True, False, None]
    assert [probe.pair for probe in probes] == [*(f"prefill-0>decode-{n}" for n in range(3)), None]
    assert probes[3].worker == "router-0"
    assert {probe.kind for probe in probes} == {ProbeKind.CANARY}
    assert probes[0].detail is None
    assert probes[1].detail


async def test_pairs_are_chosen_by_name() -> None:
    async with d.cluster_of([d.HonestPrefill()], [d.HonestDecode(), d.HonestDecode()]) as cluster:
        assert chosen_pairs(cluster, []) == cluster.pairs()
        assert chosen_pairs(cluster, ["prefill-0>decode-1"] * 2) == (Pair("prefill-0", "decode-1"),)
        for text in ("prefill-0", "decode-0>prefill-0", ">"):
            with pytest.raises(UsageError) as caught:
                chosen_pairs(cluster, [text])
            assert caught.value.hint
