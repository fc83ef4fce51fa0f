"""Play every drill that this machine allows on deployments of their own, and print how each was diagnosed.

    python tests/soak.py --out build/drills [NAME …]

Bounded: a drill takes about four minutes, all of them about an hour and a half.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

STORE = ("kv-store-stopped",)
PDOPS = [sys.executable, "-m", "pdops"]


def main() -> int:
    """Run them; the status is the number of drills that could not be played."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--out", type=Path, default=Path("build/drills"))
    given = parser.parse_args()
    listed = json.loads(subprocess.run([*PDOPS, "drill", "list", "--json"], capture_output=True, check=True).stdout)
    names = given.names or [d["name"] for d in listed["drills"]]
    failed = 0
    for options, ours in (
        ([], [n for n in names if n not in STORE]),
        (["--kv-store", "mooncake"], [n for n in names if n in STORE]),
    ):
        if ours:
            failed += _play(options, ours, given.out)
    return failed


def _play(options: list[str], names: list[str], out: Path) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="pdops-soak-") as folder:
        place = ["--state-dir", str(Path(folder) / "state")]
        subprocess.run([*PDOPS, "up", *place, "--network", "namespaces", *options], check=True)
        try:
            for name in names:
                print(f"== {name}", flush=True)
                done = subprocess.run([*PDOPS, "drill", "run", name, *place, "-o", str(out), "--force"], check=False)
                failed += done.returncode not in (0, 1)
                print(f"== {name}: exit {done.returncode}", flush=True)
        finally:
            subprocess.run([*PDOPS, "down", *place, "--deadline", "10"], check=False)
    return failed


if __name__ == "__main__":
    sys.exit(main())
