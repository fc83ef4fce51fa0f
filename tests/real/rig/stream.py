"""Read a completion stream: output, errors inside it, and whether it came to its end."""

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
    done: bool = False
    error: str | None = None

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
        if event.get("usage"):
            self.tokens = event["usage"].get("completion_tokens")
        if self.error is not None or not has_output(event, first=self.pieces == 0):
            return False
        self.pieces += 1
        return True

    def _note(self, event: dict[str, Any]) -> None:
        found = error_of(event)
        if found is not None and self.error is None:
            self.error = found


def error_of(body: dict[str, Any]) -> str | None:
    """Return the message of an error object, None when the body holds none."""
    found = body.get("error")
    if not found and body.get("object") == "error":
        found = body
    if not found:
        return None
    return str(found.get("message", found)) if isinstance(found, dict) else str(found)


def has_output(event: dict[str, Any], *, first: bool) -> bool:
    """Say whether an event carries output: not usage, not the role of a chat, not an end without output."""
    choices = event.get("choices")
    if not choices:
        return False
    choice = choices[0]
    delta = choice.get("delta")
    if delta is not None:
        return "role" not in delta and bool(delta.get("content") or choice.get("finish_reason") is None)
    return not (first and not choice.get("text") and choice.get("finish_reason"))


def _loads(raw: bytes) -> dict[str, Any]:
    try:
        event = json.loads(raw)
    except ValueError:
        return {"error": {"message": f"not JSON: {raw[:120]!r}"}}
    return event if isinstance(event, dict) else {"error": {"message": f"not an object: {raw[:120]!r}"}}
