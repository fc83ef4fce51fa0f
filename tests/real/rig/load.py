"""Bounded open-loop load: arrivals at a rate, whatever the answers do, up to a number under way; ends by itself."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
from dataclasses import dataclass, field

import aiohttp

from pdops.clock import WallClock
from tests.real.rig import model

CLOCK = WallClock()
WORDS = ["queue", "batch", "block", "cache", "lease", "pull", "push", "node", "rank", "page", "token", "router", "decode", "prefill"]


@dataclass(slots=True)
class Tally:
    """What came of the requests; times in seconds."""

    sent: int = 0
    ok: int = 0
    shed: int = 0
    failed: int = 0
    ttft: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float | int | None]:
        """Return counts and quantiles."""
        return {
            "sent": self.sent,
            "ok": self.ok,
            "failed": self.failed,
            "shed": self.shed,
            **{f"ttft_p{q}": _quantile(self.ttft, q) for q in (50, 95)},
            **{f"itl_p{q}": _quantile(self.gaps, q) for q in (50, 95)},
        }


def _quantile(values: list[float], percent: int) -> float | None:
    return round(sorted(values)[min(len(values) - 1, len(values) * percent // 100)], 4) if values else None


def _text(length: int, source: random.Random) -> str:
    words = ""
    while len(words) < length:
        words += source.choice(WORDS) + " "
    return words[:length]


async def drive(given: argparse.Namespace) -> Tally:
    """Send requests for `given.duration` seconds and wait for the last ones, a minute at most."""
    source = random.Random(given.seed)
    shared = _text(int(given.prompt * given.shared), random.Random(given.seed + 1))
    tally = Tally()
    running: set[asyncio.Task[None]] = set()
    timeout = aiohttp.ClientTimeout(total=given.timeout)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        end = CLOCK.monotonic() + given.duration
        while CLOCK.monotonic() < end:
            if len(running) < given.concurrency:
                prompt = shared + _text(given.prompt - len(shared), source)
                task = asyncio.create_task(_one(session, given, prompt, tally))
                running.add(task)
                task.add_done_callback(running.discard)
            else:
                tally.shed += 1
            await asyncio.sleep(source.expovariate(given.rate))
        if running:
            _, late = await asyncio.wait(running, timeout=60.0)
            for task in late:
                task.cancel()
    return tally


async def _one(session: aiohttp.ClientSession, given: argparse.Namespace, prompt: str, tally: Tally) -> None:
    tally.sent += 1
    body = {
        "model": model.NAME,
        "prompt": prompt,
        "max_tokens": given.tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    begin = last = CLOCK.monotonic()
    tokens = 0
    try:
        async with session.post(given.url + "/v1/completions", json=body) as answer:
            if answer.status != 200:
                tally.failed += 1
                return
            async for line in answer.content:
                if not line.startswith(b"data: {"):
                    continue
                if json.loads(line[6:]).get("error"):
                    tally.failed += 1
                    return
                now = CLOCK.monotonic()
                (tally.gaps if tokens else tally.ttft).append(now - (last if tokens else begin))
                tokens, last = tokens + 1, now
    except (aiohttp.ClientError, TimeoutError, ValueError):
        tally.failed += 1
        return
    if tokens:
        tally.ok += 1
    else:
        tally.failed += 1


def main() -> None:
    """Drive load and print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=1.0, help="requests per second")
    parser.add_argument("--duration", type=float, default=60.0, help="seconds")
    parser.add_argument("--concurrency", type=int, default=16, help="most requests under way")
    parser.add_argument("--prompt", type=int, default=300, help="prompt length in characters, one token each")
    parser.add_argument("--shared", type=float, default=0.3, help="share of the prompt that all requests have in common")
    parser.add_argument("--tokens", type=int, default=24, help="output tokens")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds a client waits")
    parser.add_argument("--seed", type=int, default=7)
    print(json.dumps(asyncio.run(drive(parser.parse_args())).summary()), flush=True)


if __name__ == "__main__":
    main()
