"""Draw panels of the shipped dashboards over a recording of the real pair, with Grafana's own components, into a PNG.

    PYTHONPATH=. python tests/panels/render.py link-slow docs/panels.png

Needs npm (packages as locked here, about 420 MB, go into build/panels once), a Chromium, and Debian's Prometheus, which
answers the panels' own queries. A browser draws it, not a Grafana server: variables are filled in with everything.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.real.played import answer, installed, played

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DASHBOARDS = ROOT / "dashboards" / "pdops_dashboards"
BUILD = ROOT / "build" / "panels"
FILES = ("package.json", "package-lock.json", ".npmrc", "app.tsx")
SHOWN = (
    "overview/ttft",
    "overview/ttft-budget",
    "kv-transfer/time",
    "kv-transfer/bandwidth",
    "decode/itl",
    "diagnosis/confidence",
)
COLUMNS, WIDTH, HEIGHT, GAP = 3, 460, 280, 8
_SOURCES = ("--loader:.svg=dataurl", "--loader:.woff2=empty", "--loader:.woff=empty", "--loader:.ttf=empty")


def main() -> int:
    """Draw; the status is 2 where a program is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recording", help="a name in fixtures/recordings")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--panel", action="append", dest="panels", help=f"id of a panel; default: {' '.join(SHOWN)}")
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None or shutil.which("npm") is None or not installed():
        sys.stderr.write("needs chromium, npm, prometheus and promtool (Debian packages of these names)\n")
        return 2
    bundle()
    page = data(given.recording, given.panels or SHOWN)
    body = f'<div id="root"></div><script>window.PAGE = {json.dumps(page)}</script><script src="app.js"></script>'
    head = '<meta charset="utf-8"><link rel="stylesheet" href="app.css"><style>body { margin: 0 !important }</style>'
    shown = BUILD / "page.html"
    shown.write_text(f"<!doctype html><html><head>{head}</head><body>{body}</body></html>", encoding="utf-8")
    rows = -(-len(page["panels"]) // COLUMNS)
    size = f"{COLUMNS * (WIDTH + GAP) + GAP},{rows * (HEIGHT + GAP) + GAP}"
    shoot(browser, shown, given.picture.resolve(), size)
    sys.stdout.write(f"{given.picture}: {given.picture.stat().st_size:,} bytes\n")
    return 0


def bundle() -> None:
    """Install what is locked, once, and make one script of it."""
    BUILD.mkdir(parents=True, exist_ok=True)
    lock = BUILD / "package-lock.json"
    # npm writes this one last, so it is missing where an install was interrupted.
    whole = (BUILD / "node_modules" / ".package-lock.json").exists()
    fresh = whole and lock.exists() and lock.read_bytes() == (HERE / lock.name).read_bytes()
    for name in FILES:
        shutil.copyfile(HERE / name, BUILD / name)
    if not fresh:
        subprocess.run(["npm", "ci"], cwd=BUILD, check=True)
    words = [
        "npx",
        "--no-install",
        "esbuild",
        "app.tsx",
        "--bundle",
        "--minify",
        "--outfile=app.js",
        "--log-level=error",
    ]
    words += ['--define:process.env.NODE_ENV="production"', *_SOURCES]
    subprocess.run(words, cwd=BUILD, check=True)


def data(recording: str, ids: list[str] | tuple[str, ...]) -> dict[str, Any]:
    """Return what the page draws: the panels as their dashboards have them, with answers of Prometheus."""
    known = {found[1]: panel for panel in shipped() if (found := re.search(r"`([\w-]+/[\w-]+)`", panel["description"]))}
    with tempfile.TemporaryDirectory(prefix="pdops-panels-") as folder, played([recording], Path(folder)) as prometheus:
        span = prometheus.spans[recording]
        panels = [drawn(known[name], prometheus.url, span) for name in ids]
    return {
        "from": span[0] * 1000,
        "to": span[1] * 1000,
        "columns": COLUMNS,
        "width": WIDTH,
        "height": HEIGHT,
        "gap": GAP,
        "panels": panels,
    }


def shipped() -> list[dict[str, Any]]:
    """Return all panels of all dashboards, without rows."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(DASHBOARDS.glob("*.json"))]
    return [panel for file in files for panel in file["panels"] if panel["type"] == "timeseries"]


def drawn(panel: dict[str, Any], url: str, span: tuple[float, float]) -> dict[str, Any]:
    """Return one panel with its series; values that are not finite are gaps."""
    series = [
        {
            "name": legend(target["legendFormat"], found["metric"]),
            "times": [float(at) * 1000 for at, _ in found["values"]],
            "values": [float(v) if math.isfinite(float(v)) else None for _, v in found["values"]],
        }
        for target in panel["targets"]
        for found in answer(url, target["expr"], span)
    ]
    return {
        "title": panel["title"],
        "defaults": panel["fieldConfig"]["defaults"],
        "legend": panel["options"]["legend"],
        "series": series,
    }


def legend(form: str, labels: dict[str, str]) -> str:
    """Fill labels into a legend as Grafana does."""
    return re.sub(r"\{\{\s*(\w+)\s*\}\}", lambda m: labels.get(m[1], ""), form).strip()


def shoot(browser: str, page: Path, picture: Path, size: str) -> None:
    """Take the picture once the page has drawn."""
    with tempfile.TemporaryDirectory(prefix="pdops-chromium-") as profile:
        words = [
            browser,
            "--headless",
            "--no-sandbox",
            "--hide-scrollbars",
            "--disable-gpu",
            f"--user-data-dir={profile}",
        ]
        words += [f"--window-size={size}", "--virtual-time-budget=15000", f"--screenshot={picture}", page.as_uri()]
        subprocess.run(words, check=True, capture_output=True, timeout=180)


if __name__ == "__main__":
    sys.exit(main())
