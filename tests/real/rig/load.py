"""Bounded open-loop load: arrivals at a rate whether or not the cluster keeps up, for a while, then a summary.

    python -m tests.real.rig.load URL --rate 2 --duration 60

Arrivals are a Poisson process with a seed. Above the concurrency cap an arrival is shed and counted, never queued, so the
load cannot pile up without end. Prints one JSON object on standard output; SIGTERM and SIGINT end it early, with it.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import signal
from dataclasses import dataclass, field

import aiohttp

from tests.real.rig import model
from tests.real.rig.procs import CLOCK
from tests.real.rig.stream import StreamReader

WORDS = [
    "alpha",
    "beta",
    "gamma",
    "delta",
    "block",
    "cache",
    "decode",
    "index",
    "layer",
    "node",
    "page",
    "prefill",
    "pull",
    "push",
    "queue",
    "rank",
    "token",
    "wave",
]
DRAIN_S = 150.0
"""How long a client waits, and how long the end waits for the last of them: longer than the proxy's own limit."""


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """What to send: `rate` in requests/s, `duration` and `timeout` in seconds, `prompt` in characters (one is a token)."""

    url: str
    rate: float
    duration: float
    concurrency: int = 16
    prompt: int = 300
    shared: float = 0.3
    tokens: int = 24
    timeout: float = DRAIN_S
    seed: int = 7


@dataclass(slots=True)
class Tally:
    """What came back."""

    sent: int = 0
    shed: int = 0
    tokens: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    ttft_s: list[float] = field(default_factory=list)
    itl_s: list[float] = field(default_factory=list)
    request_s: list[float] = field(default_factory=list)
    errors: collections.Counter[str] = field(default_factory=collections.Counter)

    def summary(self) -> dict[str, object]:
        """Return counts, and quantiles of the requests that ended well."""
        quantiles = {
            f"{name}_p{round(share * 100)}": _quantile(values, share)
            for name, values in (("ttft_s", self.ttft_s), ("itl_s", self.itl_s), ("request_s", self.request_s))
            for share in (0.5, 0.95, 0.99)
        }
        counts = {"sent": self.sent, "shed": self.shed, "tokens": self.tokens, "outcomes": dict(self.outcomes)}
        return {**counts, **quantiles, "errors": dict(self.errors.most_common(3))}


def _quantile(values: list[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)


def text(chars: int, draw: random.Random) -> str:
    """Return words of exactly that many characters."""
    words: list[str] = []
    while sum(map(len, words)) + len(words) < chars + 1:
        words.append(draw.choice(WORDS))
    return " ".join(words)[:chars]


class Load:
    """One run."""

    def __init__(self, options: LoadOptions) -> None:
        self.options, self.tally = options, Tally()
        self._draw = random.Random(options.seed)
        # The same beginning for every seed, so that two loads at once share it.
        self._prefix = text(int(options.prompt * options.shared), random.Random(0))

    async def run(self, stop: asyncio.Event) -> dict[str, object]:
        """Send until the time is over or `stop` is set; return the summary."""
        options, tasks = self.options, set[asyncio.Task[None]]()
        limit = aiohttp.ClientTimeout(total=options.timeout)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=limit, connector=connector) as session:
            begin = due = CLOCK.monotonic()
            while due - begin < options.duration and not await _within(stop, due - CLOCK.monotonic()):
                if len(tasks) >= options.concurrency:
                    self.tally.shed += 1
                else:
                    task = asyncio.create_task(self._one(session, self._prompt()))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                due += self._draw.expovariate(options.rate)
            if tasks and not stop.is_set():
                await asyncio.wait(tasks, timeout=options.timeout)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return {"stopped_early": stop.is_set(), **self.tally.summary()}

    def _prompt(self) -> str:
        return self._prefix + text(self.options.prompt - len(self._prefix), self._draw)

    async def _one(self, session: aiohttp.ClientSession, prompt: str) -> None:
        body = {
            "model": model.NAME,
            "prompt": prompt,
            "max_tokens": self.options.tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        tally, begin, last = self.tally, CLOCK.monotonic(), 0.0
        ttft, gaps, reader = 0.0, list[float](), StreamReader()
        tally.sent += 1
        try:
            async with session.post(f"{self.options.url}/v1/completions", json=body) as answer:
                if answer.status != 200:
                    tally.outcomes[f"status {answer.status}"] += 1
                    tally.errors[(await answer.text())[:200]] += 1
                    return
                async for line in answer.content:
                    if reader.feed(line):
                        now = CLOCK.monotonic()
                        if reader.pieces == 1:
                            ttft = now - begin
                        else:
                            gaps.append(now - last)
                        last = now
        except (aiohttp.ClientError, TimeoutError) as error:
            tally.outcomes[type(error).__name__] += 1
            return
        except asyncio.CancelledError:
            tally.outcomes["cancelled"] += 1
            raise
        tally.tokens += reader.pieces if reader.tokens is None else reader.tokens
        if reader.error is not None or not reader.done or not reader.pieces:
            tally.outcomes["error in stream"] += 1
            tally.errors[(reader.error or "cut short")[:200]] += 1
            return
        tally.outcomes["ok"] += 1
        tally.ttft_s.append(ttft)
        tally.itl_s += gaps
        tally.request_s.append(CLOCK.monotonic() - begin)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for a while; return whether the event came first."""
    try:
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
    except TimeoutError:
        return False
    return True


async def run(options: LoadOptions) -> dict[str, object]:
    """Run to the end, or to SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return await Load(options).run(stop)


def _main() -> None:
    parser = argparse.ArgumentParser(description="bounded open-loop load")
    parser.add_argument("url")
    parser.add_argument("--rate", type=float, default=1.0, help="requests/s")
    parser.add_argument("--duration", type=float, default=60.0, help="seconds")
    parser.add_argument("--concurrency", type=int, default=16, help="more at once are shed")
    parser.add_argument("--prompt", type=int, default=300, help="prompt length in characters, one token each")
    parser.add_argument("--shared", type=float, default=0.3, help="share of the prompt that is the same in all")
    parser.add_argument("--tokens", type=int, default=24, help="output tokens")
    parser.add_argument("--timeout", type=float, default=DRAIN_S, help="seconds a client waits")
    parser.add_argument("--seed", type=int, default=7)
    print(json.dumps(asyncio.run(run(LoadOptions(**vars(parser.parse_args()))))), flush=True)


if __name__ == "__main__":
    _main()
