"""Every text file in this folder is a session: files, a command, and exactly what it prints and returns.

Write the expectations again with `PDOPS_UPDATE=1 python -m pytest tests/cli`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
SECTION = re.compile(r"^-- (file \S+|command|exit|stdout|stderr) --\n", re.MULTILINE)


def _read(path: Path) -> dict[str, str]:
    parts = SECTION.split(path.read_text(encoding="utf-8"))
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def _run(command: str, folder: Path) -> tuple[int, str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith("PDOPS_")}
    env |= {"COLUMNS": "100", "NO_COLOR": "1", "PYTHONPATH": os.pathsep.join(map(str, _roots()))}
    args = [a.replace("FIXTURES", str(ROOT / "fixtures")) for a in shlex.split(command.strip())[1:]]
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-m", "pdops", *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    clean = [text.replace(str(ROOT / "fixtures"), "FIXTURES") for text in (done.stdout, done.stderr)]
    return done.returncode, clean[0], clean[1]


def _roots() -> list[Path]:
    return [ROOT / part for part in (".", "exporters", "tui", "runbooks", "dashboards")]


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda p: p.stem)
def test_session(path: Path, tmp_path: Path) -> None:
    """The command prints and returns what the file says."""
    parts = _read(path)
    for name, body in parts.items():
        if name.startswith("file "):
            (tmp_path / name.removeprefix("file ")).write_text(body, encoding="utf-8")
    status, out, err = _run(parts["command"], tmp_path)
    if os.environ.get("PDOPS_UPDATE"):
        files = "".join(f"-- {n} --\n{b}" for n, b in parts.items() if n.startswith("file "))
        path.write_text(
            f"{files}-- command --\n{parts['command']}-- exit --\n{status}\n-- stdout --\n{out}-- stderr --\n{err}",
            encoding="utf-8",
        )
    assert "Traceback" not in err
    assert (int(parts.get("exit", "0")), parts.get("stdout", ""), parts.get("stderr", "")) == (status, out, err)
