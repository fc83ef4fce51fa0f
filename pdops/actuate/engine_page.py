"""Whether an engine serves, and how many requests are in it, asked over HTTP with bounds."""

from __future__ import annotations

from dataclasses import dataclass

from pdops.actuate.admin_http import AdminHttp
from pdops.errors import ActionError
from pdops.sources.exposition import NotExposition, Parser

_NEEDED = {
    "vllm": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "sglang": ("sglang:num_running_reqs", "sglang:num_queue_reqs"),
}
"""Requests in an engine: what it must say for the count to be known, by engine."""
_MORE = (
    "sglang:num_prefill_prealloc_queue_reqs",
    "sglang:num_prefill_bootstrap_queue_reqs",
    "sglang:num_prefill_inflight_queue_reqs",
    "sglang:num_decode_prealloc_queue_reqs",
    "sglang:num_decode_transfer_queue_reqs",
)
"""Further queues, which an engine has in one role only."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What an engine says; None where it does not say, and `why`."""

    serving: bool | None
    inflight: int | None
    why: str = ""


class EnginePage(AdminHttp):
    """One engine.

    Args:
        url: where it serves.
    """

    who = "the engine"

    def look(self) -> Answered:
        """Ask for its models, which is its serving side, and count requests in it."""
        try:
            self.ask("GET", "/v1/models")
        except ActionError as error:
            # A wrong status is an answer; silence may be one that is late.
            silent = "does not answer" in error.what
            return Answered(None if silent and "timed out" in error.why.lower() else False, None, str(error))
        inflight, why = self._inflight()
        return Answered(True, inflight, why)

    def _inflight(self) -> tuple[int | None, str]:
        try:
            _, page = self.ask("GET", "/metrics")
            parsed = Parser().parse(str(page).encode())
        except (ActionError, NotExposition) as error:
            return None, f"requests in it are not known: {error}"
        sums: dict[str, float] = {}
        for series, value in zip(parsed.layout.series, parsed.values, strict=True):
            name = series.partition("{")[0]
            sums[name] = sums.get(name, 0.0) + value
        for needed in _NEEDED.values():
            if all(name in sums for name in needed):
                found = sum(sums.get(name, 0.0) for name in (*needed, *_MORE))
                return (int(found), "") if found == found else (None, "its page counts no requests, but NaN")
        return None, "its page does not count requests in it"
