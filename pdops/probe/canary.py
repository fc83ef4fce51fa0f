"""One tiny request with a known answer through every (prefill, decode) pair and through every router.

A pair is right when decode answers what prefill itself would have answered, from KV that really moved. The prompt of
each canary is new, so that no cache answers. Prefill is asked for one token and a KV address, decode for a few tokens
with that address, then prefill for the same tokens without any: its own greedy continuation is what has to come.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from yarl import URL

from pdops.clock import Clock
from pdops.model.cluster import Cluster, Pair, Role, Worker
from pdops.probe import judge
from pdops.probe.choose import by_decode
from pdops.probe.completion import Answer, Asker, body_of
from pdops.probe.counters import CounterReader, Moved, Reading, moved, together
from pdops.probe.draft import Draft, unknown, wrong
from pdops.probe.report import Api, CanaryReport, Check, Result, Status
from pdops.probe.words import notes, prompt_of
from pdops.sources.fetch import Fetcher, FetchError

ASK_FOR_KV = {"do_remote_decode": True, "do_remote_prefill": False}
"""What makes a vLLM prefill engine keep the KV of a request and say where it is."""
TOKENS = 8
"""Output tokens compared: enough to tell texts apart, few enough that rounding rarely turns a near tie."""
_SCRAPE_S = 5.0
_OTHER_API = frozenset({400, 404, 405, 501})
"""How engines refuse an interface they do not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanarySettings:
    """How far a canary may go.

    Args:
        timeout_s: for the requests of one canary together, in seconds. The first pull between two workers includes
            their handshake, which takes seconds.
        settle_s: how long counters are waited for after the answer, in seconds; engines publish them a little later.
        poll_s: seconds between looks at the counters.
        at_once: canaries that run at the same time; one decode worker never has two.
    """

    timeout_s: float = 60.0
    settle_s: float = 10.0
    poll_s: float = 0.2
    at_once: int = 4


class Canary:
    """Sends the canaries of one cluster.

    Args:
        cluster: whose pairs and routers.
        clock: for limits and durations.
        settings: how far it may go.

    Raises:
        InventoryError: no worker has an address.
    """

    def __init__(self, cluster: Cluster, clock: Clock, settings: CanarySettings | None = None) -> None:
        self._cluster, self._clock = cluster, clock
        self._settings = settings or CanarySettings()
        self._fetcher = Fetcher(clock, clock.now, timeout_s=min(_SCRAPE_S, self._settings.timeout_s))
        self._counters = CounterReader(cluster, self._fetcher, clock)
        self._asker = Asker(clock, self._fetcher)
        self._models: dict[str, str | None] = {}
        self._apis: dict[str, Api] = {}
        self._serving: set[str] = set()
        self._proven: set[str] = set()

    async def run(
        self, pairs: Sequence[Pair], *, routers: bool = True, told: Callable[[Result], None] = lambda _: None
    ) -> CanaryReport:
        """Return what the canaries found: pairs first, each decode worker by itself, then routers, one after the other.

        Args:
            pairs: which pairs to ask, as `chosen_pairs` gives them.
            routers: whether the routers are asked too.
            told: called with each result as it comes.
        """
        at_s, turns = self._clock.now(), asyncio.Semaphore(self._settings.at_once)
        found: dict[Pair, Result] = {}

        async def one_decode(mine: Sequence[Pair]) -> None:
            for pair in mine:
                async with turns:
                    found[pair] = await self._pair(pair)
                told(found[pair])

        async with self._asker:
            try:
                async with asyncio.TaskGroup() as group:
                    for mine in by_decode(pairs):
                        group.create_task(one_decode(mine))
                through = []
                for worker in self._cluster.of_role(Role.ROUTER) if routers else ():
                    through.append(await self._router(worker))
                    told(through[-1])
            finally:
                await self._fetcher.aclose()
        report = CanaryReport(
            cluster=self._cluster.name,
            at_s=at_s,
            model=next((m for m in self._models.values() if m), self._cluster.model),
            pairs=tuple(found[pair] for pair in pairs),
            routers=tuple(through),
        )
        return notes(report, self._cluster)

    async def _pair(self, pair: Pair) -> Result:
        src, dst = self._cluster.get(pair.src), self._cluster.get(pair.dst)
        assert src is not None
        assert dst is not None
        run = self._draft()
        if src.url is None or dst.url is None:
            nowhere = src.id if src.url is None else dst.id
            run.checks.append(unknown("prefill", f"{nowhere} has no serving address"))
            return run.result(self._clock, src=src.id, dst=dst.id)
        before = await self._counters.read(dst)
        run.answered = bool(before.engines)
        model = await self._model(src)
        address = await self._prefill(run, src, model)
        if address is not None and run.api is not None and model is not None:
            body = body_of(run.api, model, run.prompt, TOKENS, stream=True, kv=address)
            run.answer = await self._ask(run, dst, run.api, body)
            run.checks.append(judge.answer_check(run.answer, dst.id, run.prompt_tokens))
            await self._compare(run, src, model)
            await self._settle(run, [dst], [before])
        return run.result(self._clock, src=src.id, dst=dst.id)

    async def _prefill(self, run: Draft, src: Worker, model: str | None) -> object:
        """Return the KV address that prefill gives, or None after noting what is wrong."""
        if model is None:
            # Asking with a made-up name tells apart a worker that is down from one that only hides its models.
            answer = await self._ask(run, src, Api.COMPLETIONS, body_of(Api.COMPLETIONS, "", "a", 1, stream=False))
            if answer.answered:
                run.checks.append(unknown("prefill", f"{src.id} does not say which model it serves"))
                return None
        else:
            answer = await self._first(run, src, model, 1, stream=False, kv=ASK_FOR_KV)
        run.prefill_s, run.prompt_tokens = answer.duration_s, answer.prompt_tokens
        if answer.error:
            run.checks.append(wrong("prefill", f"{src.id}: {answer.error}", answer.status))
            return None
        if answer.kv is None:
            why = f"{src.id} gave no kv_transfer_params: it does not hand over KV"
            run.checks.append(wrong("prefill", why, answer.status))
            return None
        run.checks.append(Check(name="prefill", status=Status.OK, observed=answer.status))
        return answer.kv

    async def _first(
        self, run: Draft, worker: Worker, model: str, tokens: int, *, stream: bool, kv: object = None
    ) -> Answer:
        """Ask by completions, or by chat where the engine takes chat only, and remember which."""
        first: Answer | None = None
        for api in (self._apis[worker.id],) if worker.id in self._apis else tuple(Api):
            answer = await self._ask(run, worker, api, body_of(api, model, run.prompt, tokens, stream=stream, kv=kv))
            if not answer.error:
                self._apis[worker.id] = run.api = api
                return answer
            first = first or answer
            if answer.status not in _OTHER_API:
                break
        assert first is not None
        return first

    async def _compare(self, run: Draft, src: Worker, model: str) -> None:
        """Ask prefill for its own continuation, twice when it differs, and judge the answer by it."""
        answer, found = run.answer, list[Answer]()
        assert answer is not None
        while not answer.error and run.api is not None and len(found) < 2:
            body = body_of(run.api, model, run.prompt, TOKENS, stream=False)
            found.append(await self._ask(run, src, run.api, body))
            if judge.text_check(answer, tuple(found)).status is not Status.WRONG:
                break
        run.reference = found[0] if found else None
        if found and not found[0].error:
            self._proven.add(src.id)
        run.checks.append(judge.text_check(answer, tuple(found)))
        run.checks.append(judge.finish_check(answer, tuple(found)))

    async def _settle(self, run: Draft, workers: Sequence[Worker], before: Sequence[Reading]) -> Sequence[Moved]:
        """Wait until the counters have counted this request, or for as long as allowed, and judge them."""
        assert run.answer is not None
        tokens = run.prompt_tokens if run.prompt_tokens is not None else run.answer.prompt_tokens
        width, end = self._cluster.kv_bytes_per_token, self._clock.monotonic() + self._settings.settle_s
        sure = 0
        while True:
            after = await asyncio.gather(*(self._counters.read(worker) for worker in workers))
            parts = [moved(b, a) for b, a in zip(before, after, strict=True)]
            total = together(parts)
            sure = sure + 1 if judge.decided(total, tokens, width) else 0
            # Others' tokens may fill the count before ours are in it, so a busy worker is looked at once more.
            enough = 1 if total.prompt in (None, tokens) else 2
            if run.answer.error or sure >= enough or self._clock.monotonic() >= end:
                break
            await self._clock.sleep(self._settings.poll_s)
        run.checks += judge.counter_checks(total, tokens, width, unique=run.api is Api.COMPLETIONS)
        return parts

    async def _router(self, router: Worker) -> Result:
        run = self._draft()
        if router.url is None:
            run.checks.append(unknown("answer", f"{router.id} has no serving address"))
            return run.result(self._clock, router=router.id)
        src = await self._reference()
        model = await self._model(src if src is not None else router)
        decodes = self._cluster.of_role(Role.DECODE)
        before = await asyncio.gather(*(self._counters.read(worker) for worker in decodes))
        if src is not None and src.id in self._apis:
            self._apis[router.id] = self._apis[src.id]
        run.answer = await self._first(run, router, model or "", TOKENS, stream=True)
        run.answered = run.answer.answered
        run.prompt_tokens = run.answer.prompt_tokens
        run.checks.append(judge.answer_check(run.answer, router.id, None))
        if src is None or model is None:
            run.checks.append(unknown("text", "no prefill worker answers, so there is nothing to compare with"))
            run.checks.append(judge.finish_check(run.answer, ()))
        else:
            await self._compare(run, src, model)
        dst = None
        if decodes:
            parts = await self._settle(run, decodes, before)
            busy = [part.worker for part in parts if part.prompt]
            dst = busy[0] if len(busy) == 1 else None
        else:
            run.checks.append(unknown("external_tokens", "no decode worker is known, so no counters are"))
        return run.result(self._clock, src=src.id if src is not None else None, dst=dst, router=router.id)

    async def _ask(self, run: Draft, worker: Worker, api: Api, body: dict[str, object]) -> Answer:
        left = self._settings.timeout_s - (self._clock.monotonic() - run.begin)
        answer = await self._asker.ask(worker, api, body, run.id, timeout_s=left)
        run.answered = run.answered or answer.answered
        return answer

    async def _model(self, worker: Worker) -> str | None:
        """Return the name to ask a worker for: the inventory's where the worker serves it, else its first."""
        if worker.id in self._models or worker.url is None:
            return self._models.get(worker.id)
        served: list[str] = []
        try:
            url = URL(worker.url.rstrip("/") + "/v1/models", encoded=True)
            answer = await self._fetcher.get(url, worker.secret, accept="application/json")
            served = [entry["id"] for entry in json.loads(answer.body)["data"] if isinstance(entry["id"], str)]
        except (FetchError, ValueError, RecursionError, KeyError, TypeError):
            served = []
        named = self._cluster.model
        name = named if named in served or not served else served[0]
        self._models[worker.id] = name
        if served:
            self._serving.add(worker.id)
        return name

    async def _reference(self) -> Worker | None:
        """Return a prefill worker to compare a router's answer with: one that gave its own continuation, else one that serves."""
        prefills = self._cluster.of_role(Role.PREFILL)
        for worker in sorted(prefills, key=lambda w: w.id not in self._proven):
            await self._model(worker)
            if worker.id in self._serving:
                return worker
        return None

    def _draft(self) -> Draft:
        return Draft(self._clock.monotonic(), self._clock.now(), prompt_of(), f"pdops-canary-{secrets.token_hex(8)}")
