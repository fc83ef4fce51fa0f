"""Bounded open-loop load: arrivals at a rate whether or not the cluster keeps up, for a while, then a summary.

    python -m pdops.reference.load URL --model NAME --rate 2 --duration 60

Arrivals are a Poisson process with a seed. Above the concurrency cap an arrival is shed and counted, never queued, so the
load cannot pile up without end. Prints one JSON object on standard output; SIGTERM and SIGINT end it early, with it. With
SIGUSR1 another phase begins: `phases` holds the counts of each, by when a request was sent.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import json
import random
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pdops.clock import WallClock

WORDS = (
    "alpha", "beta", "gamma", "delta", "block", "cache", "decode", "index", "layer", "node", "page", "prefill", "pull",
    "push", "queue", "rank", "token", "wave",
)  # fmt: skip
PATIENCE_S = 150.0
"""How long a client waits, and how long the end waits for the last of them: longer than the router's own limits."""
MOST_S, MOST_RATE, MOST_AT_ONCE, MOST_TOKENS = 3600.0, 1000.0, 1024, 100_000
"""Bounds of what can be asked for: seconds, requests/s, requests at once, tokens or characters."""
_CLOCK = WallClock()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """What to send: `rate` in requests/s, `duration` and `timeout` in seconds, `prompt` in characters.

    With the reference model one character is one token. `shared` is the part of the prompt, 0 to 1, that all have in common
    that begin alike; there are `prefixes` beginnings.
    """

    url: str
    model: str
    rate: float = 1.0
    duration: float = 60.0
    concurrency: int = 16
    prompt: int = 300
    shared: float = 0.3
    prefixes: int = 1
    tokens: int = 24
    timeout: float = PATIENCE_S
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

    def add(self, other: Tally) -> None:
        """Take another's in."""
        self.sent, self.shed, self.tokens = self.sent + other.sent, self.shed + other.shed, self.tokens + other.tokens
        self.outcomes.update(other.outcomes)
        self.errors.update(other.errors)
        for mine, more in ((self.ttft_s, other.ttft_s), (self.itl_s, other.itl_s), (self.request_s, other.request_s)):
            mine.extend(more)

    def summary(self) -> dict[str, object]:
        """Return counts, and quantiles in seconds of the requests that ended well (None when none did)."""
        quantiles = {
            f"{name}_p{round(share * 100)}": quantile(values, share)
            for name, values in (("ttft_s", self.ttft_s), ("itl_s", self.itl_s), ("request_s", self.request_s))
            for share in (0.5, 0.95, 0.99)
        }
        counts = {"sent": self.sent, "shed": self.shed, "tokens": self.tokens, "outcomes": dict(self.outcomes)}
        return {**counts, **quantiles, "errors": dict(self.errors.most_common(3))}


@dataclass(slots=True)
class Answer:
    """The stream of one request. An engine that fails after it began to answer keeps status 200 and puts an error into the
    stream; several tokens may come in one event, so `tokens` is what the engine counts when it says so.
    """

    pieces: int = 0
    tokens: int | None = None
    done: bool = False
    error: str | None = None

    def feed(self, line: bytes) -> bool:
        """Take one line and say whether it carries output."""
        line = line.strip()
        if line.startswith(b"data:"):
            line = line[len(b"data:") :].strip()
            if line == b"[DONE]":
                self.done = True
                return False
        elif not line.startswith(b"{"):
            return False
        try:
            event = json.loads(line)
        except ValueError:
            event = None
        if not isinstance(event, dict):
            self.error = self.error or f"not a JSON object: {line[:120]!r}"
            return False
        return self._take(event)

    def _take(self, event: dict[str, Any]) -> bool:
        wrong = event.get("error") or (event if event.get("object") == "error" else None)
        if wrong:
            self.error = self.error or str(wrong.get("message", wrong) if isinstance(wrong, dict) else wrong)
            return False
        if isinstance(usage := event.get("usage"), dict):
            self.tokens = usage.get("completion_tokens")
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return False
        text, ended = choice.get("text"), choice.get("finish_reason")
        # The last event of a request may be empty; one that ends without any output brought none.
        if text is None or (ended and not text and not self.pieces):
            return False
        self.pieces += 1
        return True


def quantile(values: list[float], share: float) -> float | None:
    """Return the value below which a share (0 to 1) of the values lies, None without values."""
    if not values:
        return None
    ordered = sorted(values)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))], 4)


def text(chars: int, draw: random.Random) -> str:
    """Return words of exactly that many characters."""
    words: list[str] = []
    length = 0
    while length < chars + 1:
        words.append(draw.choice(WORDS))
        length += len(words[-1]) + 1
    return " ".join(words)[:chars]


class Load:
    """One run."""

    def __init__(self, options: LoadOptions) -> None:
        self.options, self.phases = options, [Tally()]
        self._draw = random.Random(options.seed)  # noqa: S311  arrivals and words, not secrets
        # The same beginning for every seed, so that two loads at once share it.
        length = int(options.prompt * options.shared)
        self._prefixes = [text(length, random.Random(n)) for n in range(options.prefixes)]  # noqa: S311

    async def run(self, stop: asyncio.Event) -> dict[str, object]:
        """Send until the time is over or `stop` is set; return the summary."""
        options, tasks = self.options, set[asyncio.Task[None]]()
        limit = aiohttp.ClientTimeout(total=options.timeout)
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(timeout=limit, connector=connector) as session:
            begin = due = _CLOCK.monotonic()
            while due - begin < options.duration and not await _within(stop, due - _CLOCK.monotonic()):
                if len(tasks) >= options.concurrency:
                    self.phases[-1].shed += 1
                else:
                    task = asyncio.create_task(self._one(session, self._prompt()))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
                due += self._draw.expovariate(options.rate)
            stopping = asyncio.create_task(stop.wait())
            last = asyncio.gather(*tasks)
            both: list[asyncio.Future[Any]] = [last, stopping]
            await asyncio.wait(both, timeout=options.timeout, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            last.cancel()
            await asyncio.gather(*tasks, last, stopping, return_exceptions=True)
        total = Tally()
        for phase in self.phases:
            total.add(phase)
        return {"stopped_early": stop.is_set(), **total.summary(), "phases": [p.summary() for p in self.phases]}

    def _prompt(self) -> str:
        prefix = self._prefixes[0] if len(self._prefixes) == 1 else self._draw.choice(self._prefixes)
        return prefix + text(self.options.prompt - len(prefix), self._draw)

    async def _one(self, session: aiohttp.ClientSession, prompt: str) -> None:
        body = {
            "model": self.options.model,
            "prompt": prompt,
            "max_tokens": self.options.tokens,
            "temperature": 0,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        tally, begin, last = self.phases[-1], _CLOCK.monotonic(), 0.0
        ttft, gaps, reader = 0.0, list[float](), Answer()
        tally.sent += 1
        try:
            async with session.post(f"{self.options.url}/v1/completions", json=body) as answer:
                if answer.status != 200:
                    tally.outcomes[f"status {answer.status}"] += 1
                    tally.errors[(await answer.text())[:200]] += 1
                    return
                async for line in answer.content:
                    if reader.feed(line):
                        now = _CLOCK.monotonic()
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
        tally.request_s.append(_CLOCK.monotonic() - begin)


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for a while; return whether the event came first."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), max(0.0, seconds))
        return True
    return False


async def run(options: LoadOptions) -> dict[str, object]:
    """Run to the end, or to SIGTERM or SIGINT."""
    stop, load = asyncio.Event(), Load(options)
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, lambda: load.phases.append(Tally()))
    return await load.run(stop)


def _number(kind: Callable[[str], float], low: float, high: float) -> Callable[[str], float]:
    def read(given: str) -> float:
        value = kind(given)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected {low:g} to {high:g}, got {given!r}")
        return value

    # argparse calls the kind of a value by this name.
    read.__name__ = "number"
    return read


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pdops.reference.load", description="bounded open-loop load")
    parser.add_argument("url")
    parser.add_argument("--model", required=True, help="the served model's name")
    for name, kind, bounds, meaning in (
        ("rate", float, (0.001, MOST_RATE), "requests/s"),
        ("duration", float, (0.1, MOST_S), "seconds"),
        ("concurrency", int, (1, MOST_AT_ONCE), "more at once are shed"),
        ("prompt", int, (1, MOST_TOKENS), "prompt length in characters"),
        ("shared", float, (0, 1), "share of the prompt that is the same in all"),
        ("prefixes", int, (1, 1024), "shared beginnings, one of which is drawn for each"),
        ("tokens", int, (1, MOST_TOKENS), "output tokens"),
        ("timeout", float, (0.1, MOST_S), "seconds a client waits"),
        ("seed", int, (0, 2**31), "of arrivals and prompts"),
    ):
        default = LoadOptions.__dataclass_fields__[name].default
        parser.add_argument(f"--{name}", type=_number(kind, *bounds), default=default, help=f"{meaning} [{default}]")
    return parser


def main() -> None:
    """Run from the command line."""
    options = LoadOptions(**vars(_parser().parse_args()))
    sys.stdout.write(json.dumps(asyncio.run(run(options))) + "\n")


if __name__ == "__main__":
    main()
