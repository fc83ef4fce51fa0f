"""Ask promtool whether rules are well formed and their tests hold."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from pdops.grafana.rules import cases
from pdops.grafana.rules.types import Alert

_PATIENCE_S = 300.0


def promtool() -> str | None:
    """Return where promtool is, or None."""
    return shutil.which("promtool")


def check(program: str, documents: dict[str, str]) -> str | None:
    """Return what promtool says against files of rules, or None when it says nothing."""
    with tempfile.TemporaryDirectory(prefix="pdops-rules-") as made:
        for name, text in documents.items():
            (Path(made) / name).write_text(text, encoding="utf-8")
        return _run(program, Path(made), "check", "rules", *documents)


def test(program: str, alerts: tuple[Alert, ...]) -> str | None:
    """Run the tests of alerts and return what failed, or None when all hold."""
    with tempfile.TemporaryDirectory(prefix="pdops-rules-") as made:
        paths = []
        for number, alert in enumerate(alerts):
            if not cases.cases(alert):
                continue
            place = Path(made) / f"{number:03d}-{alert.name}"
            place.mkdir()
            for name, text in cases.files(alert).items():
                (place / name).write_text(text, encoding="utf-8")
            paths.append(str((place / "tests.yaml").relative_to(made)))
        return _run(program, Path(made), "test", "rules", *paths)


def _run(program: str, where: Path, *args: str) -> str | None:
    try:
        done = subprocess.run(
            [program, *args], cwd=where, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return f"promtool did not end within {_PATIENCE_S:.0f} s"
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()
