"""Read what a client asks for, and write what each leg is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

KEY_CHARS = 256
"""Start of the prompt that decides its prefill worker under prefix affinity: long enough to tell system prompts apart,
short enough that what follows a shared one does not matter."""
ASK_FOR_KV = {"do_remote_decode": True, "do_remote_prefill": False}
RELEASE_MODEL = "pdops-release-kv"
"""A model no engine serves; see `release`."""
_PREFILL_DROPS = ("stream_options", "min_tokens", "kv_transfer_params")


class BadRequestError(Exception):
    """The body cannot be served; the message says why."""


@dataclass(frozen=True, slots=True)
class Prompted:
    """A request body that can be served."""

    body: dict[str, Any]
    chat: bool
    key: str
    size: int

    @property
    def stream(self) -> bool:
        """Say whether the client wants a stream."""
        return bool(self.body.get("stream"))

    @property
    def model(self) -> str | None:
        """The model asked for, None when it is left to the engine."""
        return self.body.get("model")

    def prefill(self) -> dict[str, Any]:
        """Return the body of the prefill leg: one token, no stream, and where its KV lies."""
        leg = {k: v for k, v in self.body.items() if k not in _PREFILL_DROPS}
        leg |= {"stream": False, "max_tokens": 1, "kv_transfer_params": ASK_FOR_KV}
        if "max_completion_tokens" in leg:
            leg["max_completion_tokens"] = 1
        return leg

    def decode(self, address: dict[str, Any] | None) -> dict[str, Any]:
        """Return the body of the decode leg, with the KV address where there is one."""
        leg = {k: v for k, v in self.body.items() if k != "kv_transfer_params"}
        return leg if address is None else {**leg, "kv_transfer_params": address}


def release(address: dict[str, Any]) -> dict[str, Any]:
    """Return a body that makes a decode engine give prefill's KV free without computing anything.

    vLLM's NIXL connector tells prefill to free its blocks when decode's serving layer refuses a request that carries a KV
    address; a model it does not serve is refused before anything is scheduled.
    """
    return {"model": RELEASE_MODEL, "prompt": "-", "max_tokens": 1, "kv_transfer_params": address}


def read(content: object, *, chat: bool) -> Prompted:
    """Check a body as far as the router depends on it; the engines check the rest.

    Raises:
        BadRequestError: it cannot be handed over.
    """
    if not isinstance(content, dict):
        raise BadRequestError("the body is not a JSON object")
    stream = content.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise BadRequestError("stream is neither true nor false")
    model = content.get("model")
    if model is not None and not isinstance(model, str):
        raise BadRequestError("model is not a text")
    for name in ("n", "best_of"):
        count = content.get(name)
        if count is None:
            continue
        if isinstance(count, bool) or not isinstance(count, int):
            raise BadRequestError(f"{name} is not a whole number")
        if count != 1:
            raise BadRequestError(f"{name} is {count}: the KV of a prompt is handed over once, so only 1 is served")
    if content.get("use_beam_search"):
        raise BadRequestError("beam search is not served: the KV of a prompt is handed over once")
    key, size = _messages(content) if chat else _prompt(content)
    return Prompted(content, chat, key, max(size, 1))


def _messages(content: dict[str, Any]) -> tuple[str, int]:
    messages = content.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequestError("messages is not a list with at least one message")
    texts = []
    for message in messages:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise BadRequestError("each message is an object with a role")
        said = message.get("content")
        if isinstance(said, list):
            said = "".join(str(part.get("text", "")) for part in said if isinstance(part, dict))
        texts.append(f"{message['role']}\0{said or ''}")
    text = "\0".join(texts)
    return text[:KEY_CHARS], len(text)


def _prompt(content: dict[str, Any]) -> tuple[str, int]:
    prompt = content.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        return prompt[:KEY_CHARS], len(prompt)
    if not isinstance(prompt, list) or not prompt:
        raise BadRequestError("prompt is neither a text nor a list of token ids")
    if all(isinstance(token, int) and not isinstance(token, bool) for token in prompt):
        # A token is about four characters.
        return " ".join(map(str, prompt[: KEY_CHARS // 4])), 4 * len(prompt)
    if all(isinstance(one, str | list) for one in prompt):
        raise BadRequestError(f"{len(prompt)} prompts in one request: send one at a time")
    raise BadRequestError("prompt is neither a text nor a list of token ids")
