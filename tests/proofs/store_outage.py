"""The KV store is killed under load; an alert becomes the fallback, requests go on, and the recovery brings the hits back.
Then it hangs, and the runbook for outages leaves it out, restarts it and lets engines use it again.

    python -m tests.proofs.store_outage [--keep DIR]

About a quarter of an hour. The store is the engines' own (Mooncake's master, and the memory both engines lend it), so it
needs CAP_NET_ADMIN.
"""

from __future__ import annotations

import time
from typing import Any

from pdops.reference import pages, store_check
from pdops.reference.spec import StoreSpec
from pdops.runbook.states import RunState
from tests.proofs.kit import READY_S, Proof, ProofError, firing, over, proof, responding

TITLE = "proof: the KV store is killed under load, is left out, and comes back"
UP = ("--network", "namespaces", "--kv-store", "mooncake", "--monitoring", "--prefill-blocks", "64")
"""Few blocks on prefill: of twelve beginnings of 360 tokens its own cache holds some, the store all."""
ALERT, STORE = "PDKvStoreDown", "store-0"
HANGS = "the store hangs"
FALLBACK, OUTAGE = "prefix-cache-fallback", "kv-store-outage"
SHAPE = {"prompt": 600, "tokens": 8, "shared": 0.6, "prefixes": 12, "concurrency": 8}
RATE = 2.0
CALM_S = 240.0
"""The guard asks what prefill did before, and a diagnosis commits itself to little without five minutes of the past; the alert
needs more than one of them."""
LEAST = 0.98
"""Share of all arrivals that is answered, those that were not sent as too many waited included."""


class Phases:
    """What one client is answered in each part of the story, and what the engines find in the store meanwhile."""

    def __init__(self, told: Proof) -> None:
        self._told, self._load = told, told.load(RATE, 3600, **SHAPE)
        self._marks: list[tuple[str, float, float]] = []

    def begin(self, name: str) -> None:
        """Begin a part."""
        if self._marks:
            self._load.phase()
        self._marks.append((name, time.monotonic(), _hits(self._told)))

    def end(self) -> dict[str, dict[str, Any]]:
        """Print what came of every part and return it, with `hits` in tokens and the `share` of arrivals that was answered."""
        ends = [*((at, hits) for _, at, hits in self._marks[1:]), (time.monotonic(), _hits(self._told))]
        counted = self._load.end()["phases"]
        if len(counted) != len(self._marks):
            raise ProofError(f"the client counted {len(counted)} parts of {len(self._marks)}")
        found = {}
        for (name, begin, before), (end, after), part in zip(self._marks, ends, counted, strict=True):
            bad = {k: n for k, n in part["outcomes"].items() if k not in ("ok", "cancelled")}
            ok = part["outcomes"].get("ok", 0)
            share = ok / max(1, part["sent"] + part["shed"] - part["outcomes"].get("cancelled", 0))
            found[name] = {"share": share, "bad": bad, "hits": after - before}
            late = part["ttft_s_p95"]
            self._told.say(
                f"{name}, {end - begin:.0f} s: {part['sent']} sent, {ok} answered, {sum(bad.values())} failed {bad or ''}, "
                f"{part['shed']} not sent as too many waited; TTFT p95 {'-' if late is None else f'{late:.2f} s'}; "
                f"{after - before:.0f} tokens from the store"
            )
        return found


def main() -> None:
    """Prove it."""
    with proof(TITLE, *UP) as told:
        told.say("the store is the engines' own: a Mooncake master, with memory that prefill and decode lend")
        fallback = told.short(FALLBACK, FALLBACK, observe_s=30)
        outage = told.short(OUTAGE, OUTAGE, observe_s=30, alerts=False)
        phases = Phases(told)
        phases.begin("with the store")
        with responding(told, f"{FALLBACK}=approve", runbooks=(fallback, outage)):
            told.say(
                f"{RATE:g} requests/s of {SHAPE['prompt']:g} tokens, {SHAPE['shared']:.0%} shared, for {CALM_S:.0f} s"
            )
            time.sleep(CALM_S)
            phases.begin("the store is dead")
            told.now.kill(STORE)
            told.say(f"{STORE} was ended with SIGKILL: {store_check.health(_store(told))}")
            told.wait(f"{ALERT} in Alertmanager", lambda: firing(told, ALERT), 600)
            run = told.wait("a run that respond made of it", lambda: told.runs(FALLBACK), 600)[-1]
            told.say(f"run {run.id} was opened by {run.requester}: {'; '.join(run.plan['effects'][:-1])}")
            told.pdops("runbook", "approve", run.id, *told.journal, "--as", "ben")
            told.wait("engines to be kept from the store", lambda: _store(told).bypassed, 300)
            phases.begin("left out")
            told.wait("the run to end", lambda: over(told.runs(FALLBACK)[-1]), 900)
        run = told.runs(FALLBACK)[-1]
        told.pdops("runbook", "log", run.id, *told.journal)
        if run.state is not RunState.DONE:
            raise ProofError(f"the run is {run.state}: {run.why}")
        told.now.start(STORE)
        told.now.wait_ready(STORE, READY_S)
        told.say("somebody started the master again; engines are still kept from it")
        time.sleep(20)
        phases.begin("going back")
        told.carry_out(
            told.plan(fallback, "--recovery", "--set", f"store={STORE}", "--set", "before=round-robin"), watch_s=30
        )
        phases.begin("with the store again")
        _whole(told)
        time.sleep(40)
        phases.begin(HANGS)
        told.now.freeze(STORE)
        told.say(f"{STORE} was stopped with SIGSTOP: it listens and answers nobody; {OUTAGE} is carried out by hand")
        told.carry_out(told.plan(outage, "--set", f"store={STORE}"), watch_s=15)
        phases.begin("with the store once more")
        _whole(told)
        time.sleep(40)
        found = phases.end()
        told.pdops("runbook", "verify-audit", *told.journal)
        _judge(found)
        told.wait(f"{ALERT} to be resolved", lambda: not firing(told, ALERT), 600)


def _judge(found: dict[str, dict[str, Any]]) -> None:
    if bad := {name: part["bad"] for name, part in found.items() if part["bad"]}:
        raise ProofError(f"requests failed: {bad}")
    for name, part in found.items():
        # While the master hangs each look-up still waits for it; that is what the runbook ends.
        if name != HANGS and part["share"] < LEAST:
            raise ProofError(f"{name} {part['share']:.0%} of what arrived was answered")
    for name in ("with the store", "with the store again", "with the store once more"):
        if not found[name]["hits"]:
            raise ProofError(f"{name} nothing came from it")
    if found["left out"]["hits"]:
        raise ProofError("what was left out gave hits")


def _hits(told: Proof) -> float:
    # Of decode the same family also counts what NIXL brought.
    found = pages.total(told.now.metrics("prefill-0"), "vllm:external_prefix_cache_hits_total")
    if found is None:
        raise ProofError("prefill does not tell its hits in the store")
    return found


def _store(told: Proof) -> StoreSpec:
    store = told.now.spec.store
    assert store is not None
    return store


def _whole(told: Proof) -> None:
    """Wait until both engines lend their memory again, and put an object through it."""
    store, begin = _store(told), time.monotonic()
    told.wait(
        "both engines to lend their memory", lambda: store_check.joined(store) == 2 * store.segment_bytes, READY_S
    )
    told.say(f"they did within {time.monotonic() - begin:.0f} s; {store_check.put_get_delete(told.now)}")


if __name__ == "__main__":
    main()
