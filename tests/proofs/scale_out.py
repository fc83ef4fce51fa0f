"""Prefill saturates; a real Prometheus and Alertmanager alert; `pdops respond` adds a worker; the symptom goes. About 15 minutes.

    python -m tests.proofs.scale_out [--keep DIR]

Each prefill engine runs one request at a time (`--max-num-seqs 1`) on a share of a core, so that a second one adds capacity on
two cores, which decode, router and everything that watches need as well.
"""

from __future__ import annotations

import time

from tests.proofs.kit import READY_S, ProofError, firing, over, proof, responding
from tests.proofs.quota import quota

TITLE = "proof: scale-out of prefill, from an alert to a symptom that is gone"
RUNBOOK = "scale-out-prefill"
ALERTS = ("PDPrefillQueueing", "PDTtftHigh", "PDTtftBurnFast")
"""Those that start this runbook; whichever fires first."""
UP = (
    "--monitoring",
    "--prefill-seqs",
    "1",
    "--max-model-len",
    "4096",
    "--prefill-blocks",
    "2000",
    "--decode-blocks",
    "192",
)
SHARE = 0.4
"""Of a core, for everything a prefill engine does."""
CALM, CALM_S = 1.0, 150.0
"""Requests/s and seconds before it: a diagnosis commits itself to little without minutes of the past."""
SHAPE = {"prompt": 1500, "tokens": 8, "shared": 0.0}
AT_ONCE = 24
ABOVE = 1.0
"""Arrivals, beside the calm ones, over what one prefill worker was seen to do: together more than it can, less than two can."""


def main() -> None:
    """Prove it."""
    with proof(TITLE, *UP) as told, quota(told, SHARE):
        told.say("per-worker limit: every prefill engine runs with --max-num-seqs 1")
        # So few at once that nobody waits long: a promise that is broken now would be an alert of its own.
        burst = told.load(30, 60, **SHAPE, concurrency=4)
        time.sleep(10)
        one = told.throughput(15)
        burst.end()
        told.say(f"one prefill worker does {one:.2f} requests/s of {SHAPE['prompt']:g} tokens")
        calm = told.load(CALM, 3000, **SHAPE)
        with responding(told, "scale-out-prefill=auto"):
            told.say(f"{CALM:g} request/s for {CALM_S:.0f} s")
            time.sleep(CALM_S)
            told.load(one * ABOVE, 3000, **SHAPE, concurrency=AT_ONCE)
            told.say(f"from now on {one * ABOVE:.2f} requests/s more arrive")
            alert = told.wait("an alert in Alertmanager", lambda: firing(told, *ALERTS), 900)
            told.say(f"{alert} fires")
            before = told.throughput(30)
            run = told.wait("a run that respond made of it", lambda: told.runs(RUNBOOK), 900)[-1]
            told.say(f"run {run.id} was opened by {run.requester}; {before:.2f} requests/s are answered meanwhile")
            told.wait("the run to end", lambda: over(told.runs(RUNBOOK)[-1]), READY_S + 600)
            after = told.throughput(30)
            calm.end()
        run = told.runs(RUNBOOK)[-1]
        told.pdops("runbook", "log", run.id, *told.journal)
        told.pdops("runbook", "verify-audit", *told.journal)
        told.pdops("status", "--state-dir", str(told.place), codes=(0, 1))
        if not before:
            raise ProofError("no request was answered before the second worker, so it cannot be compared")
        told.say(f"throughput: {before:.2f} requests/s before, {after:.2f} after ({after / before:.2f} times)")
        if run.state != "done":
            raise ProofError(f"the run is {run.state}: {run.why}")
        if after <= before:
            raise ProofError("the second worker added nothing")
        told.wait(f"{alert} to be resolved", lambda: not firing(told, alert), 900)


if __name__ == "__main__":
    main()
