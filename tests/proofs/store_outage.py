"""The KV store is killed under load: requests go on, the fallback ladder is climbed down, the store comes back, and up again.

    python -m tests.proofs.store_outage [--keep DIR]

About a quarter of an hour. The store is the engines' own (Mooncake's master, and the memory both engines lend it), so it needs CAP_NET_ADMIN.
"""

from __future__ import annotations

import json
import time

from pdops.reference import pages, store_check
from pdops.reference.spec import StoreSpec
from tests.proofs.kit import READY_S, Proof, ProofError, firing, proof

TITLE = "proof: the KV store goes away under load and comes back"
UP = ("--network", "namespaces", "--kv-store", "mooncake", "--monitoring", "--prefill-blocks", "64")
ALERT, STORE = "PDKvStoreDown", "store-0"
SHAPE = {"prompt": 600, "tokens": 8, "shared": 0.6}
RATE = 2.0
WHICH = ("--set", f"store={STORE}", "--set", "before=round-robin")


def main() -> None:
    """Prove it."""
    with proof(TITLE, *UP) as told:
        told.say("the store is the engines' own: a Mooncake master, with memory that prefill and decode lend")
        load = told.load(RATE, 3000, **SHAPE)
        _answered(told, "with the store", 60)
        told.now.kill(STORE)
        told.say(f"{STORE} was killed: {store_check.health(_store(told))}")
        _answered(told, "without the store", 60)
        told.wait(f"{ALERT} in Alertmanager", lambda: firing(told, ALERT), 600)
        told.pdops("diagnose", "-c", str(told.now.inventory), "--for", "30", codes=(0, 1))
        fallback = told.short("prefix-cache-fallback", "fallback", observe_s=30)
        _climb(told, fallback, *WHICH)
        every = told.short("prefix-cache-fallback", "fallback-in-full", observe_s=30, always=True)
        _climb(told, every, *WHICH)
        _answered(told, "after the fallback", 30)
        _climb(told, told.short("kv-store-outage", "outage", observe_s=30), *WHICH[:2])
        told.wait("both engines to lend their memory again", lambda: _joined(told), READY_S)
        _answered(told, "with the store back", 30)
        _climb(told, every, "--recovery", *WHICH)
        _answered(told, "after the recovery", 30)
        result = store_check.put_get_delete(told.now)
        told.say(f"an object goes through the store: {result}")
        summary = load.end()
        told.say(f"the client: {json.dumps(summary)}")
        told.pdops("runbook", "verify-audit", *told.journal)
        wrong = {k: n for k, n in summary["outcomes"].items() if k != "ok"}
        if wrong or not result.ok:
            raise ProofError(f"requests failed: {wrong}; {result}")
        told.wait(f"{ALERT} to be resolved", lambda: not firing(told, ALERT), 600)


def _climb(told: Proof, runbook: str, *more: str) -> None:
    told.carry_out(told.plan(runbook, *more))
    shown = json.loads(pages.get(f"{told.now.router_url}/admin/settings", 10.0, told.now.admin_token_file))
    told.say(f"the router goes by policy {shown['policy']}, salt {shown['salt_ratio']:g}")


def _answered(told: Proof, when: str, seconds: float) -> None:
    """Say what clients got, and what the engines found in the store."""
    before, hits = _counts(told), _hits(told)
    time.sleep(seconds)
    after = _counts(told)
    grown = {k: after[k] - before.get(k, 0.0) for k in after if after[k] > before.get(k, 0.0)}
    told.say(f"{when}, {seconds:.0f} s: {grown}, {_hits(told) - hits:.0f} tokens from the store")
    if set(grown) != {"ok"}:
        raise ProofError(f"not every request was answered: {grown}")


def _counts(told: Proof) -> dict[str, float]:
    page = told.now.metrics("router-0")
    names = ("ok", "error", "timeout", "rejected")
    return {n: pages.total(page, "pdops_router_requests_total", outcome=n) or 0.0 for n in names}


def _hits(told: Proof) -> float:
    found = (
        pages.total(told.now.metrics(w), "vllm:external_prefix_cache_hits_total") for w in ("prefill-0", "decode-0")
    )
    return sum(n or 0.0 for n in found)


def _store(told: Proof) -> StoreSpec:
    store = told.now.spec.store
    assert store is not None
    return store


def _joined(told: Proof) -> bool:
    store = _store(told)
    return store_check.joined(store) == 2 * store.segment_bytes


if __name__ == "__main__":
    main()
