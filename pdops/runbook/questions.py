"""The closed list of questions a runbook may ask."""

from __future__ import annotations

from pdops.runbook import questions_headroom as headroom
from pdops.runbook import questions_report as report
from pdops.runbook import questions_signal as signal
from pdops.runbook import questions_state as state
from pdops.runbook.action_params import Nothing
from pdops.runbook.gates import Question

QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        Question(name="data-fresh", title="enough workers give data about now", params=state.DataFresh,
                 answer=state.data_fresh, again=True),
        Question(name="min-ready", title="enough others of its role take requests while a worker does not",
                 params=state.MinReady, answer=state.min_ready),
        Question(name="pool-ready", title="so many workers of a role take requests", params=state.PoolReady,
                 answer=state.pool_ready),
        Question(name="serving", title="a worker or store answers as it must", params=state.OfWorker,
                 answer=state.serving),
        Question(name="silent", title="a worker or store surely does not answer", params=state.OfWorker,
                 answer=state.silent),
        Question(name="no-rollout", title="a pool is not inside a rollout", params=state.OfRole, answer=state.no_rollout,
                 again=True),
        Question(name="own-replicas", title="nobody else sets the size of a pool", params=state.OfRole,
                 answer=state.own_replicas, again=True),
        Question(name="room-for", title="there is room for one more worker of a role", params=state.OfRole,
                 answer=state.room_for),
        Question(name="router-setting", title="a setting of the router is at most a number", params=state.RouterSetting,
                 answer=state.router_setting),
        Question(name="canary-passed", title="the newest canary of every pair of a worker passed", params=state.OfWorker,
                 answer=state.canary_passed),
        Question(name="diagnosis-agrees", title="the diagnosis asks for this runbook", params=report.Agrees,
                 answer=report.agrees),
        Question(name="nothing-answers", title="no worker answers, so that nothing tells a diagnosis", params=Nothing,
                 answer=state.nothing_answers),
        Question(name="not-advised-against", title="the diagnosis does not warn of this runbook",
                 params=report.OfRunbook, answer=report.not_advised_against),
        Question(name="healthy", title="the diagnosis finds nothing wrong", params=Nothing, answer=report.healthy),
        Question(name="cause-gone", title="the diagnosis does not name a cause any more", params=report.OfCause,
                 answer=report.cause_gone),
        Question(name="symptom-gone", title="clients do not see a symptom any more", params=report.OfSymptom,
                 answer=report.symptom_gone),
        Question(name="slo-met", title="a latency is within what is promised", params=report.OfLatency,
                 answer=report.slo_met),
        Question(name="errors-below", title="the share of failed requests is below a limit", params=report.ErrorsBelow,
                 answer=report.errors_below),
        Question(name="signal", title="a signal is above or below a number", params=signal.Signal,
                 answer=signal.signal),
        Question(name="empty", title="a worker has held nothing for so many seconds", params=signal.Empty,
                 answer=signal.empty),
        Question(name="peers-can-carry", title="the others have room for the KV of a decode worker, or the queue of a prefill worker",
                 params=state.OfWorker, answer=signal.peers_can_carry),
        Question(name="kv-headroom", title="a role has KV blocks left", params=signal.KvHeadroom,
                 answer=signal.kv_headroom),
        Question(name="prefill-headroom", title="prefill could compute every prompt in full", params=headroom.PrefillHeadroom,
                 answer=headroom.prefill_headroom),
    )
}  # fmt: skip
"""By name; the order is that of `pdops runbook lint --list`."""
