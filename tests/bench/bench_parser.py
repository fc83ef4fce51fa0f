"""Compare the exposition parser with the official one on the recorded pages, in one run.

Run as `python tests/bench/bench_parser.py`; prints a Markdown table. Times are CPU time, the best of several rounds.
"""

from __future__ import annotations

import gzip
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from pdops.catalog.names import wanted_names
from pdops.sources.exposition import Parser

ROOT = Path(__file__).resolve().parents[2] / "fixtures" / "expositions"
SETS = {
    "vLLM 0.32.0 decode": "vllm-0.32.0-nixl/decode-*.prom",
    "vLLM 0.32.0 prefill": "vllm-0.32.0-nixl/prefill-*.prom",
    "vLLM 0.32.0 link drills": "link-drills/*.prom.gz",
    "NIXL 1.5.1": "other-engines/nixl_*.prom",
    "Mooncake 0.3.13 master": "other-engines/mooncake_master_*.prom",
    "vllm-router 0.1.17": "other-engines/vllm_router_*.prom",
    "sglang-router 0.3.2": "other-engines/sglang_router_*.prom",
}


def read(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def best(work: Callable[[], object], rounds: int, times: int) -> float:
    """Seconds of CPU for one call, the best of several rounds."""
    found = []
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(times):
            work()
        found.append((time.process_time() - start) / times)
    return min(found)


def main() -> None:
    print(
        f"pdops {version('pdops')}, prometheus_client {version('prometheus_client')}, Python {platform.python_version()}\n"
    )
    print("| pages | bytes | samples | wanted | official, ms | first look, ms | known layout, ms | ratio |")
    print("|---|---|---|---|---|---|---|---|")
    ratios = []
    for name, pattern in SETS.items():
        bodies = [read(path) for path in sorted(ROOT.glob(pattern))]
        bodies = [body for body in bodies if not body.startswith(b"# scrape failed")]
        # One page of each layout: the parser has seen its series before, with other values.
        body = max(bodies, key=len)
        parser = Parser()
        parsed = parser.parse(body)
        text = body.decode()
        official = best(lambda text=text: list(text_string_to_metric_families(text)), 3, 5)
        # A set of its own, so that nothing another parser knows is taken over.
        first = best(lambda body=body: Parser(set(wanted_names())).parse(body), 3, 5)
        known = best(lambda parser=parser, body=body: parser.parse(body), 5, 100)
        samples = len(parsed.layout.series) + parsed.skipped
        ratios.append(official / known)
        print(
            f"| {name} | {len(body)} | {samples} | {len(parsed.layout.series)} | {official * 1e3:.2f} | {first * 1e3:.2f} "
            f"| {known * 1e3:.3f} | {official / known:.0f}x |"
        )
    print(f"\nEngine pages: {min(ratios[:3]):.0f}x to {max(ratios[:3]):.0f}x; all pages: at least {min(ratios):.0f}x.")


if __name__ == "__main__":
    main()
