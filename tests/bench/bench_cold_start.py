"""Print how long the commands take from process start to exit, beside an empty interpreter, in one run."""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RUNS = 7
RECORDING = ROOT / "fixtures" / "recordings" / "prefill-killed.pdrec"
COMMANDS: dict[str, list[str]] = {
    "python -c pass": ["-c", "pass"],
    "pdops --help": ["-m", "pdops", "--help"],
    "pdops explain --list": ["-m", "pdops", "explain", "--list"],
    "pdops diagnose --replay (one instant)": ["-m", "pdops", "diagnose", "--replay", str(RECORDING), "--at", "-1"],
    "pdops diagnose --replay (whole recording)": ["-m", "pdops", "diagnose", "--replay", str(RECORDING)],
}


def main() -> None:
    """Run every command several times, interleaved, and print medians."""
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, args in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, *args], cwd=ROOT, capture_output=True, check=False)
            times[name].append(time.perf_counter() - begin)
    empty = statistics.median(times["python -c pass"])
    print(f"# Cold start, {RUNS} runs each, interleaved; Python {platform.python_version()}, {platform.machine()}\n")
    print("| command | median s | fastest s | slowest s | times an empty interpreter |")
    print("|---|---|---|---|---|")
    for name, taken in times.items():
        median = statistics.median(taken)
        print(f"| {name} | {median:.3f} | {min(taken):.3f} | {max(taken):.3f} | {median / empty:.1f} |")


if __name__ == "__main__":
    main()
