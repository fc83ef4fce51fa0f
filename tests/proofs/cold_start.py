"""Everything is killed, and the cold-start runbook brings it up in order; then once more while the KV store cannot come up.

    python -m tests.proofs.cold_start [--keep DIR]

About ten minutes. Without CAP_NET_ADMIN there is no store, and the second half is said to be left out.
"""

from __future__ import annotations

from pdops.reference.network import Network
from tests.proofs.kit import Proof, ProofError, proof
from tests.proofs.parts import order, power_cut, taken

TITLE = "proof: cold start from nothing, with and without the KV store"
NAME = "cold-start-short"
STORE = ("--network", "namespaces", "--kv-store", "mooncake")


def main() -> None:
    """Prove it."""
    able, why = Network.available()
    with proof(TITLE, *(STORE if able else ())) as told:
        runbook = told.short("cold-start", NAME, observe_s=5)
        wanted = [*(["store-0"] if able else []), "prefill-0", "decode-0", "router-0"]
        _start(told, runbook, wanted)
        if not able:
            told.say(f"left out: the same with the store down, as there is no store here ({why})")
            return
        power_cut(told.now)
        told.say("somebody else listens where the KV store must")
        with taken(told.now):
            plan = told.plan(runbook)
            told.carry_out(plan)
        _check(told, ["prefill-0", "decode-0", "router-0"])
        (_, run) = told.runs(NAME)
        told.say(f"the run is {run.state}, {run.why}")
        if "without store" not in run.why:
            raise ProofError("the run does not say what it went on without")


def _start(told: Proof, runbook: str, wanted: list[str]) -> None:
    power_cut(told.now)
    told.say("every process was ended with SIGKILL")
    told.pdops("status", "--state-dir", str(told.place), codes=(0, 1))
    told.carry_out(told.plan(runbook))
    _check(told, wanted)


def _check(told: Proof, wanted: list[str]) -> None:
    found = order(told.now)
    told.say(f"started in this order: {', '.join(found)}")
    if found != wanted:
        raise ProofError(f"expected {', '.join(wanted)}")
    told.pdops("canary", "--state-dir", str(told.place))


if __name__ == "__main__":
    main()
