"""What a canary says: its prompt, and what a person can do about what it found."""

from __future__ import annotations

import dataclasses
import secrets

from pdops.model.cluster import Cluster
from pdops.probe.report import CanaryReport, Result, Status

WORDS = 48
_ONSETS = "bdfghklmnprstvwz"
_VOWELS = "aeiou"


def prompt_of(words: int = WORDS) -> str:
    """Return a prompt nobody sent before: made-up words, new from its beginning, so that not one block is cached.

    Two syllables are about 12 bits, so a block of 32 characters already differs from every other one.
    """
    made = ("".join(secrets.choice(_ONSETS) + secrets.choice(_VOWELS) for _ in range(2)) for _ in range(words))
    return " ".join(made) + "\nThe same words again: "


def hints(result: Result) -> Result:
    """Return a result with what to do about it."""
    src, dst = result.src or "prefill", result.dst or "decode"
    status = {check.name: check.status for check in result.checks}
    sentences: list[str] = []

    def wrong(*names: str) -> bool:
        return any(status.get(name) is Status.WRONG for name in names)

    if wrong("prefill"):
        sentences.append(f"read the log of {src}, and check its address, kv_connector and kv_role")
    if wrong("answer", "finish_reason"):
        sentences.append(f"read the logs of {result.router or src} and {dst} at this time")
    if wrong("text") and result.router is None:
        sentences.append(f"send no traffic from {src} to {dst}: its answers are wrong with HTTP 200; restart {dst}")
    elif wrong("text"):
        sentences.append("look which pair is wrong, and take it out of the router")
    if wrong("external_tokens", "local_compute"):
        asked = f"whether {result.router} passes kv_transfer_params on" if result.router else f"kv_role of {dst}"
        sentences.append(f"{dst} does the work of prefill: check {asked}")
    elif wrong("bytes"):
        sentences.append(
            f"compare block_size and kv_cache_dtype of {src} and {dst}, and kv_bytes_per_token in pdops.yaml"
        )
    return dataclasses.replace(result, next=tuple(sentences))


def notes(report: CanaryReport, cluster: Cluster) -> CanaryReport:
    """Return a report with what a reader must know about its data."""
    said: list[str] = []
    if cluster.kv_bytes_per_token is None:
        said.append(
            "kv_bytes_per_token is not known, so bytes are seen to move but not whether all of them did: "
            "give model.kv_bytes_per_token in pdops.yaml"
        )
    if cluster.model is not None and report.model is not None and report.model != cluster.model:
        said.append(f"the inventory's model {cluster.model!r} is not served; {report.model!r} was asked for")
    texts = [check.expected for r in report.results for check in r.checks if check.name == "text" and check.expected]
    if len(texts) > 1 and len(set(texts)) == 1:
        said.append("this model answers every canary with the same text, so the text proves little")
    return dataclasses.replace(report, notes=(*report.notes, *said))
