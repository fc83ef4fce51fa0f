"""Judge a canary from its answers and the counters around it: pure, and never sure of more than was seen."""

from __future__ import annotations

from pdops.model.report import Bound
from pdops.probe.completion import Answer
from pdops.probe.counters import BYTES, EXTERNAL, LOCAL, PROMPT, Moved
from pdops.probe.report import Check, Status

_SHOWN = 40


def answer_check(answer: Answer, who: str, prompt_tokens: int | None) -> Check:
    """Judge whether a whole answer came, and to the same prompt as the one prefill saw (in tokens)."""
    if answer.error:
        return Check(name="answer", status=Status.WRONG, observed=answer.status, why=f"{who}: {answer.error}")
    if answer.completion_tokens == 0 or not (answer.text or answer.tokens):
        return Check(name="answer", status=Status.WRONG, observed=answer.status, why=f"{who}: the answer is empty")
    theirs = answer.prompt_tokens
    if theirs is not None and prompt_tokens is not None and theirs != prompt_tokens:
        why = f"{who} counts {theirs} prompt tokens, prefill {prompt_tokens}: tokenizer or chat template differ"
        return Check(
            name="answer", status=Status.WRONG, observed=theirs, expected=prompt_tokens, unit="tokens", why=why
        )
    return Check(name="answer", status=Status.OK, observed=answer.status)


def text_check(answer: Answer, references: tuple[Answer, ...]) -> Check:
    """Judge whether an answer is prefill's own greedy continuation of the same prompt.

    Two references that differ from each other mean that prefill is not deterministic, so a difference proves nothing.
    """
    usable = [reference for reference in references if not reference.error and (reference.text or reference.tokens)]
    seen = _quoted(answer.text)
    if answer.error:
        return Check(name="text", status=Status.UNKNOWN, why="there is no whole answer to compare")
    if not usable:
        why = references[0].error if references and references[0].error else "it gave none"
        return Check(name="text", status=Status.UNKNOWN, observed=seen, why=f"prefill's own continuation: {why}")
    expected = _quoted(usable[0].text)
    if any(_same(answer, reference) for reference in usable):
        how = "compared by token ids" if answer.token_ids and usable[0].token_ids else "compared as text"
        return Check(name="text", status=Status.OK, observed=seen, expected=expected, why=how)
    if any(not _same(usable[0], other) for other in usable[1:]):
        why = "prefill does not repeat its own greedy answer, so there is nothing to compare with"
        return Check(name="text", status=Status.UNKNOWN, observed=seen, expected=expected, why=why)
    seen, expected = _tokens(answer, usable[0], seen), _tokens(usable[0], answer, expected)
    why = f"text differs from prefill's own continuation: {seen}, expected {expected}"
    return Check(name="text", status=Status.WRONG, observed=seen, expected=expected, why=why)


def finish_check(answer: Answer, references: tuple[Answer, ...]) -> Check:
    """Judge whether the answer ended, and as prefill's own did."""
    seen = answer.finish_reason
    wanted = next((r.finish_reason for r in references if not r.error and r.finish_reason), "length")
    if answer.error and seen is None:
        return Check(name="finish_reason", status=Status.UNKNOWN, expected=wanted, why="there is no whole answer")
    if seen == wanted:
        return Check(name="finish_reason", status=Status.OK, observed=seen, expected=wanted)
    why = f"finish_reason is {seen or 'missing'}, expected {wanted}"
    return Check(name="finish_reason", status=Status.WRONG, observed=seen, expected=wanted, why=why)


def counter_checks(
    moved: Moved, prompt_tokens: int | None, kv_bytes_per_token: float | None, *, unique: bool
) -> tuple[Check, Check, Check]:
    """Judge where the prompt's KV came from: tokens from prefill, tokens computed by decode, bytes moved.

    Other requests may have moved the counters too, by as many prompt tokens as the counter of prompt tokens moved
    beyond ours. Ours then lie between what others can not have done and all that was done; a judgement needs the whole
    of that interval. With `unique` decode cannot have had the beginning of the prompt in its cache.
    """
    ours = _Ours.of(moved, prompt_tokens, unique=unique)
    return (
        _external(moved, ours),
        _local(moved, ours),
        _bytes(moved, ours, kv_bytes_per_token, unique=unique),
    )


class _Ours:
    """The least and the most prompt tokens of our request by where they came from."""

    __slots__ = ("external", "local", "n", "other")

    def __init__(self, n: int, other: float, external: tuple[float, float], local: tuple[float, float]) -> None:
        self.n, self.other, self.external, self.local = n, other, external, local

    @classmethod
    def of(cls, moved: Moved, n: int | None, *, unique: bool) -> _Ours | None:
        if n is None or moved.prompt is None or moved.prompt < n:
            return None
        other = moved.prompt - n
        local = None if moved.local is None else (max(0.0, moved.local - other), min(n, moved.local))
        most = float(n) if moved.external is None else min(float(n), moved.external)
        least = 0.0 if moved.external is None else max(0.0, moved.external - other)
        if moved.external is not None and local is not None:
            cached = 0.0 if unique else max(0.0, moved.prompt - moved.external - moved.local)  # type: ignore[operator]
            least = min(most, max(least, n - local[1] - cached))
        return cls(n, other, (least, most), local or (0.0, float(n)))


def _unclear(name: str, moved: Moved, signal: str, why: str, expected: float | None, unit: str = "tokens") -> Check:
    why = moved.why.get(signal) or moved.why.get(PROMPT) or why
    return Check(name=name, status=Status.UNKNOWN, expected=expected, unit=unit, why=f"{name}: {why}")


def _uncounted(moved: Moved, ours: _Ours | None) -> str:
    if ours is None:
        return f"the counters of {moved.worker} did not count this request in time"
    return f"other requests moved the counters of {moved.worker} too ({ours.other:.0f} prompt tokens): cannot tell"


def _external(moved: Moved, ours: _Ours | None) -> Check:
    name, seen = "external_tokens", moved.external
    if seen is None or ours is None:
        return _unclear(name, moved, EXTERNAL, _uncounted(moved, ours), None if ours is None else ours.n)
    least, most = ours.external
    shown: float | Bound = least if least == most else Bound(least, "ge")
    if most == 0:
        why = f"{moved.worker} took no KV of this prompt from outside (0 of {ours.n} tokens)"
        return Check(name=name, status=Status.WRONG, observed=0.0, expected=float(ours.n), unit="tokens", why=why)
    if least == 0:
        return _unclear(name, moved, EXTERNAL, _uncounted(moved, ours), float(ours.n))
    return Check(name=name, status=Status.OK, observed=shown, expected=float(ours.n), unit="tokens")


def _local(moved: Moved, ours: _Ours | None) -> Check:
    name = "local_compute"
    if moved.local is None or ours is None:
        return _unclear(name, moved, LOCAL, _uncounted(moved, ours), 0.0)
    least, most = ours.local
    if least > 0:
        why = f"{moved.worker} computed {least:.0f} of {ours.n} prompt tokens itself"
        seen: float | Bound = least if least == most else Bound(least, "ge")
        return Check(name=name, status=Status.WRONG, observed=seen, expected=0.0, unit="tokens", why=why)
    if most > 0:
        return _unclear(name, moved, LOCAL, _uncounted(moved, ours), 0.0)
    return Check(name=name, status=Status.OK, observed=0.0, expected=0.0, unit="tokens")


def expected_bytes(moved: Moved, prompt_tokens: int | None, kv_bytes_per_token: float | None) -> float | None:
    """Return the bytes of whole blocks that hold the tokens to be pulled; None when a factor is not known.

    Tokens that decode had cached already are not pulled; they fill whole blocks, so the rest rounds up to blocks.
    """
    ours = _Ours.of(moved, prompt_tokens, unique=False)
    tokens = prompt_tokens if ours is None or ours.other or not moved.external else ours.external[1]
    if tokens is None or kv_bytes_per_token is None or moved.block_size is None:
        return None
    return -(-tokens // moved.block_size) * moved.block_size * kv_bytes_per_token


def _bytes(moved: Moved, ours: _Ours | None, kv_bytes_per_token: float | None, *, unique: bool) -> Check:
    name, seen = "bytes", moved.bytes
    wanted = expected_bytes(moved, None if ours is None else ours.n, kv_bytes_per_token)
    if seen is None or ours is None:
        return _unclear(name, moved, BYTES, _uncounted(moved, ours), wanted, "bytes")
    shared = ours.other > 0
    if seen == 0:
        why = f"{moved.worker} moved no bytes of KV"
        return Check(name=name, status=Status.WRONG, observed=0.0, expected=wanted, unit="bytes", why=why)
    if wanted is None:
        absent = "kv_bytes_per_token" if kv_bytes_per_token is None else "block_size"
        why = f"bytes: {seen:.0f} moved, but how many it had to be cannot be told without {absent}"
        return Check(name=name, status=Status.UNKNOWN, observed=seen, unit="bytes", why=why)
    if seen < wanted and shared and not unique:
        return _unclear(name, moved, BYTES, _uncounted(moved, ours), wanted, "bytes")
    if seen < wanted or (seen > wanted and not shared):
        why = f"{moved.worker} moved {seen:.0f} bytes of KV, expected {wanted:.0f}"
        return Check(name=name, status=Status.WRONG, observed=seen, expected=wanted, unit="bytes", why=why)
    if shared:
        why = "other requests moved it too: at least as much as expected, not exactly told"
        # All that moved is a ceiling of ours; that it reaches what ours needs is all that can be said.
        return Check(name=name, status=Status.OK, observed=seen, expected=Bound(wanted, "ge"), unit="bytes", why=why)
    return Check(name=name, status=Status.OK, observed=seen, expected=wanted, unit="bytes")


def decided(moved: Moved, prompt_tokens: int | None, kv_bytes_per_token: float | None) -> bool:
    """Say whether waiting longer for the counters can change nothing: ours is counted, and its bytes where there are any."""
    if prompt_tokens is None or moved.prompt is None:
        return True
    if moved.prompt < prompt_tokens:
        return False
    if moved.bytes is None or moved.external is None or moved.external == 0:
        return True
    wanted = expected_bytes(moved, prompt_tokens, kv_bytes_per_token)
    return moved.bytes >= (wanted if wanted is not None else 1.0)


def _same(one: Answer, other: Answer) -> bool:
    ids = one.token_ids, other.token_ids
    return ids[0] == ids[1] if None not in ids else one.text == other.text


def _tokens(one: Answer, other: Answer, text: str) -> str:
    """Return ids where the texts look the same, else the text."""
    return f"token ids {list(one.tokens)}" if one.text == other.text and one.token_ids else text


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
