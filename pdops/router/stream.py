"""Read a completion, streamed or whole: output, errors inside it, and how it ended."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class StreamReader:
    """Follow the server-sent events of one request.

    An engine that fails after it began to answer keeps status 200 and puts an error object into the stream, so the status
    alone says nothing. A busy engine puts several tokens into one event: `pieces` counts events with output, `tokens` is
    what the engine says at the end, when it was asked for usage.
    """

    pieces: int = 0
    tokens: int | None = None
    prompt_tokens: int | None = None
    done: bool = False
    error: str | None = None
    finish: str | None = None

    def feed(self, line: bytes) -> bool:
        """Take one line and say whether it carries output."""
        line = line.strip()
        if line.startswith(b"{"):
            # An error body outside the event framing.
            self._note(_loads(line))
            return False
        if not line.startswith(b"data:"):
            return False
        payload = line[len(b"data:") :].strip()
        if payload == b"[DONE]":
            self.done = True
            return False
        event = _loads(payload)
        self._note(event)
        if self.error is not None or not has_output(event, first=self.pieces == 0):
            return False
        self.pieces += 1
        return True

    def whole(self, content: dict[str, Any]) -> None:
        """Take an answer that was not streamed."""
        self._note(content)
        self.done = True
        self.pieces = int(self.tokens != 0 if self.tokens is not None else has_text(content))

    def _note(self, event: dict[str, Any]) -> None:
        found = error_of(event)
        if found is not None and self.error is None:
            self.error = found
        usage = event.get("usage")
        if isinstance(usage, dict):
            self.tokens = _count(usage.get("completion_tokens"))
            self.prompt_tokens = _count(usage.get("prompt_tokens"))
        reason = _choice(event).get("finish_reason")
        if isinstance(reason, str):
            self.finish = reason


def error_of(body: dict[str, Any]) -> str | None:
    """Return the message of an error object, None when the body holds none."""
    found: Any = body.get("error")
    if not found and body.get("object") == "error":
        found = body
    if not found:
        return None
    return str(found.get("message", found)) if isinstance(found, dict) else str(found)


def has_output(event: dict[str, Any], *, first: bool) -> bool:
    """Say whether an event carries output: not usage, not the role of a chat, not an end without output."""
    choice = _choice(event)
    if not choice:
        return False
    delta = choice.get("delta")
    if isinstance(delta, dict):
        said = any(delta.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls"))
        return said or ("role" not in delta and choice.get("finish_reason") is None)
    return not (first and not choice.get("text") and choice.get("finish_reason"))


def has_text(content: dict[str, Any]) -> bool:
    """Say whether a whole answer says anything."""
    choice = _choice(content)
    message = choice.get("message")
    if isinstance(message, dict):
        return any(message.get(name) for name in ("content", "reasoning", "reasoning_content", "tool_calls"))
    return bool(choice.get("text"))


def _choice(event: dict[str, Any]) -> dict[str, Any]:
    choices = event.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _loads(raw: bytes) -> dict[str, Any]:
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return {"error": {"message": f"not JSON: {raw[:120]!r}"}}
    return event if isinstance(event, dict) else {"error": {"message": f"not an object: {raw[:120]!r}"}}
