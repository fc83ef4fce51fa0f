"""Prove a KV store by an object: put, read back, deleted, by a client of its own in the engine's Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CLIENT = Path(__file__).parent / "store_client.py"
SIZE_BYTES = 1 << 20
LENT_BYTES = 16 << 20
"""The least a store client lends."""
TIMEOUT_S = 30.0
"""A client connects within a second; one that cannot reach the master was seen to go on trying for 45 s."""
STEPS = ("import", "connect", "put", "get", "delete")

Run = Callable[[Sequence[str], float], tuple[int | None, str, str]]
"""Runs a command for at most so many seconds; returns exit status (None when it had to be ended), output and errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreObject:
    """What became of the object. `step` is the one that failed; seconds by step, of those that were done."""

    ok: bool
    step: str = ""
    why: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    size_bytes: int = SIZE_BYTES

    def __str__(self) -> str:
        if not self.ok:
            return f"{self.step}: {self.why}" if self.step else self.why
        took = ", ".join(f"{s} {self.seconds[s] * 1e3:.0f} ms" for s in STEPS[1:] if s in self.seconds)
        return f"an object of {self.size_bytes} bytes was put, read back and deleted ({took})"


def command(python: Path, address: str, master: str, *, alone: bool, size_bytes: int = SIZE_BYTES) -> list[str]:
    """Return the command line of the client.

    Args:
        python: the engine environment's Python.
        address: where the client runs, as other clients reach it; it listens on all addresses there.
        master: address and port of the master's RPC.
        alone: lend memory to the store meanwhile, because no engine does yet; else the object goes to an engine's memory.
        size_bytes: size of the object.
    """
    lent = max(LENT_BYTES, size_bytes * 2) if alone else 0
    return [str(python), str(CLIENT), address, master, str(lent), str(size_bytes)]


def check(call: Sequence[str], run: Run, timeout_s: float = TIMEOUT_S) -> StoreObject:
    """Run the client and read its answer; whatever goes wrong is in the answer."""
    status, output, errors = run(call, timeout_s)
    if status is None:
        return StoreObject(
            ok=False, step="connect", why=f"no answer within {timeout_s:.0f} s (is the master reachable?)"
        )
    try:
        said = json.loads(output.strip().rpartition("\n")[2])
        seconds = {str(k): float(v) for k, v in said.get("seconds", {}).items()}
        result = StoreObject(
            ok=said["ok"] is True,
            step="" if said["ok"] is True else str(said["step"]),
            why=str(said["why"]),
            seconds=seconds,
            size_bytes=int(said.get("bytes", SIZE_BYTES)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        last = errors.strip().rpartition("\n")[2] or "it says nothing"
        return StoreObject(ok=False, why=f"the store client ended with status {status}: {last[:300]}")
    if "libibverbs" in result.why:
        return StoreObject(ok=False, step=result.step, why=f"{result.why} (Debian package libibverbs1)")
    return result
