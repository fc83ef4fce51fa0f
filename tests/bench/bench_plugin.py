"""What the engine plugin costs on the real pair: CPU inside its callbacks over CPU of the engine's steps.

    python tests/bench/bench_plugin.py [--blocks 24] [--seconds 8] [--engine-python PATH]

Two pairs of the reference deployment run side by side, one with the plugin, one with the stock connector. Blocks of the same
load go to one and the other in turn, so both see the same machine. Prints a Markdown table with intervals over the blocks
(bootstrap, 95 %). CPU times, so that other work on the machine changes little; nothing asserts them.

- Inside the callbacks: `pdops_plugin_cpu_seconds_total`, thread CPU time the plugin measures itself, by part.
- Steps: the two threads that make one, the main thread of the engine's core and of its worker; and, second, everything that
  the processes of the engine use, HTTP server and mathematics included.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pdops.model.cluster import Role
from pdops.reference import pages
from pdops.reference.load import Load, LoadOptions
from pdops.reference.running import Running

PDOPS = [sys.executable, "-m", "pdops"]
ON, OFF = "plugin", "stock"
SPENT, STEPS = "pdops_plugin_cpu_seconds_total", "vllm:iteration_tokens_total_count"
RATE, PROMPT, TOKENS, AT_ONCE = 12.0, 300, 32, 32
WARM_S = 8.0
RESAMPLES = 10_000
_STEPPING = ("VLLM::EngineCor", "VLLM::Worker")
"""What the kernel calls the processes whose main threads make a step."""


@dataclass(frozen=True, slots=True)
class Used:
    """Of one engine: steps made, CPU seconds of the stepping threads, of all its processes, and inside the plugin's callbacks.

    What is not told is no number (NaN), and so is all that is made of it.
    """

    steps: float
    stepping_s: float
    all_s: float
    plugin_s: float

    def __sub__(self, other: Used) -> Used:
        return Used(
            self.steps - other.steps,
            self.stepping_s - other.stepping_s,
            self.all_s - other.all_s,
            self.plugin_s - other.plugin_s,
        )


def main() -> None:
    """Start both pairs, measure in turn, print, stop both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=24, help="blocks of each [24]")
    parser.add_argument("--seconds", type=float, default=8.0, help="load of a block [8]")
    parser.add_argument("--engine-python", help="as for `pdops up`")
    given = parser.parse_args()
    more = ["--engine-python", given.engine_python] if given.engine_python else []
    found: dict[str, list[dict[Role, Used]]] = {ON: [], OFF: []}
    with (
        tempfile.TemporaryDirectory(prefix="pdops-bench-") as folder,
        pair(Path(folder) / ON, ["--plugin", *more]) as on,
        pair(Path(folder) / OFF, ["--no-plugin", *more]) as off,
    ):
        for running in (on, off):
            block(running, WARM_S, seed=0)
        for number in range(given.blocks):
            turns = [(ON, on), (OFF, off)]
            # Whoever goes first changes, so that neither always follows the other.
            for name, running in turns if number % 2 == 0 else reversed(turns):
                found[name].append(block(running, given.seconds, seed=number + 1))
    report(found, given.seconds)


@contextmanager
def pair(place: Path, options: list[str]) -> Iterator[Running]:
    """Run a deployment of one prefill, one decode and a router."""
    where = ["--state-dir", str(place)]
    subprocess.run(
        [*PDOPS, "up", *where, "--name", place.name, "--no-exporter", *options], check=True, stdout=sys.stderr
    )
    try:
        yield Running.open(place)
    finally:
        subprocess.run([*PDOPS, "down", *where, "--deadline", "10"], check=False, stdout=sys.stderr)


def block(running: Running, seconds: float, seed: int) -> dict[Role, Used]:
    """Give one pair load for a while and return what each of its engines used until all was answered.

    Raises:
        RuntimeError: not every request was answered.
    """
    engines = running.spec.engines
    before = {e.role: used(running, e.id) for e in engines}
    options = LoadOptions(
        url=running.router_url,
        model=running.spec.served_model,
        rate=RATE,
        duration=seconds,
        prompt=PROMPT,
        tokens=TOKENS,
        concurrency=AT_ONCE,
        seed=seed,
    )
    summary = asyncio.run(Load(options).run(asyncio.Event()))
    if summary["outcomes"] != {"ok": summary["sent"]}:
        raise RuntimeError(f"not every request was answered: {summary}")
    return {e.role: used(running, e.id) - before[e.role] for e in engines}


def used(running: Running, worker: str) -> Used:
    """Read what an engine has used so far.

    Raises:
        RuntimeError: the threads that make its steps are not found.
    """
    ref, page = running.state.ref(worker), running.metrics(worker)
    assert ref is not None
    stepping = total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            if int(fields[2]) != ref.pid:
                continue
            total += sum(_cpu_s(task) for task in (process / "task").iterdir())
            if (process / "comm").read_text().strip() in _STEPPING:
                stepping += _cpu_s(process / "task" / process.name)
        except OSError:
            continue
    if not stepping:
        raise RuntimeError(f"{worker} has no process that is called {' or '.join(_STEPPING)}")
    return Used(_told(page, STEPS), stepping, total, _told(page, SPENT))


def _told(page: str, family: str) -> float:
    found = pages.total(page, family)
    return math.nan if found is None else found


def _cpu_s(task: Path) -> float:
    """Return a thread's time on a CPU; the kernel tells nanoseconds."""
    return int((task / "schedstat").read_text().split()[0]) / 1e9


def interval(count: int, value: Callable[[np.ndarray], float]) -> tuple[float, float, float]:
    """Return a value over all blocks and the bounds in which 95 % of resamples of the blocks lie."""
    draw = np.random.default_rng(1)
    told = [value(draw.integers(0, count, count)) for _ in range(RESAMPLES)]
    low, high = np.quantile(told, [0.025, 0.975])
    return value(np.arange(count)), float(low), float(high)


def report(found: dict[str, list[dict[Role, Used]]], seconds: float) -> None:
    """Print the table."""
    blocks = len(found[ON])
    print(f"# The engine plugin on the real pair, {blocks} blocks of {seconds:g} s each, with and without in turn\n")
    print(
        f"Python {platform.python_version()}, {platform.machine()}; {RATE:g} requests/s, {PROMPT} tokens in, {TOKENS} out.\n"
    )
    print("| | prefill | decode |\n|---|---|---|")
    roles = (Role.PREFILL, Role.DECODE)
    columns = {
        (side, role, what): np.array([getattr(one[role], what) for one in found[side]])
        for side in (ON, OFF)
        for role in roles
        for what in Used.__slots__
    }

    def ratio(over: str, under: str, role: Role) -> Callable[[np.ndarray], float]:
        top, base = columns[ON, role, over], columns[ON, role, under]
        return lambda at: float(top[at].sum() / base[at].sum())

    def grown(what: str, role: Role) -> Callable[[np.ndarray], float]:
        with_it = columns[ON, role, what], columns[ON, role, "steps"]
        without = columns[OFF, role, what], columns[OFF, role, "steps"]
        return lambda at: float(
            with_it[0][at].sum() / with_it[1][at].sum() / (without[0][at].sum() / without[1][at].sum()) - 1
        )

    rows: list[tuple[str, Callable[[Role], str]]] = [
        ("steps with the plugin", lambda role: f"{columns[ON, role, 'steps'].sum():,.0f}"),
        ("steps without", lambda role: f"{columns[OFF, role, 'steps'].sum():,.0f}"),
        (
            "CPU of the stepping threads a step, without",
            lambda role: f"{1e3 * columns[OFF, role, 'stepping_s'].sum() / columns[OFF, role, 'steps'].sum():.2f} ms",
        ),
        (
            "CPU inside the callbacks a step",
            lambda role: f"{1e6 * ratio('plugin_s', 'steps', role)(np.arange(blocks)):.1f} µs",
        ),
        (
            "inside the callbacks over the stepping threads",
            lambda role: _share(interval(blocks, ratio("plugin_s", "stepping_s", role))),
        ),
        (
            "inside the callbacks over the whole engine",
            lambda role: _share(interval(blocks, ratio("plugin_s", "all_s", role))),
        ),
        (
            "stepping threads a step, with over without",
            lambda role: _share(interval(blocks, grown("stepping_s", role)), "+"),
        ),
        ("whole engine a step, with over without", lambda role: _share(interval(blocks, grown("all_s", role)), "+")),
    ]
    for name, cell in rows:
        print(f"| {name} | {' | '.join(cell(role) for role in roles)} |")


def _share(found: tuple[float, float, float], sign: str = "") -> str:
    value, low, high = (f"{100 * number:{sign}.2f}" for number in found)
    return f"{value} % ({low} to {high})"


if __name__ == "__main__":
    main()
