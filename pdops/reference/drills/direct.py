"""Requests to one engine, past the router: prefill alone, decode with an address of our choice, one engine alone."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import requests

from pdops.reference import pages
from pdops.reference.drills.stage import Stage
from pdops.reference.load import text

_PATIENCE_S = 60.0
_ASK_FOR_KV = {"do_remote_decode": True, "do_remote_prefill": False}
TOKENS = 16


def prompts(count: int, chars: int, seed: int) -> list[str]:
    """Return different prompts of that many characters, the same for a seed."""
    draw = random.Random(seed)  # noqa: S311  words, not secrets
    return [f"{seed}-{number:03} {text(chars - 8, draw)}"[:chars] for number in range(count)]


def prefilled(stage: Stage, prompt: str) -> dict[str, Any]:
    """Let prefill compute a prompt and keep its KV for decode; return the address it answers.

    Raises:
        OSError: it did not answer, or refused.
    """
    answer = _ask(stage, stage.prefill, prompt, 1, _ASK_FOR_KV)
    return dict(answer["kv_transfer_params"])


def pulled(stage: Stage, prompt: str, address: dict[str, Any]) -> str:
    """Let decode pull from that address and go on; return its text.

    Raises:
        OSError: it did not answer, or refused.
    """
    return str(_ask(stage, stage.decode, prompt, TOKENS, address)["choices"][0]["text"])


def alone(stage: Stage, prompt: str, tokens: int = TOKENS) -> str:
    """Let prefill answer by itself; return its text.

    Raises:
        OSError: it did not answer, or refused.
    """
    return str(_ask(stage, stage.prefill, prompt, tokens, None)["choices"][0]["text"])


def _ask(stage: Stage, worker: str, prompt: str, tokens: int, address: dict[str, Any] | None) -> dict[str, Any]:
    body: dict[str, Any] = {
        "model": stage.deployment.spec.served_model,
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "ignore_eos": True,
    }
    if address is not None:
        body["kv_transfer_params"] = address
    answer: dict[str, Any] = pages.post(f"{stage.deployment.url(worker)}/v1/completions", body, _PATIENCE_S)
    return answer


def removed(url: str, token_file: Path) -> None:
    """Delete what a URL of the router's admin API stands for; what is not there is no error.

    Raises:
        OSError: it did not answer, or refused.
    """
    with requests.Session() as session:
        # Our own components are never asked through a proxy.
        session.trust_env = False
        headers = {"Authorization": f"Bearer {token_file.read_text(encoding='utf-8').strip()}"}
        answer = session.delete(url, headers=headers, timeout=10.0)
        if answer.status_code != 404:
            answer.raise_for_status()
