"""What `pdops --help` must not pay for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("textual", "aiohttp", "numpy", "opentelemetry", "kubernetes", "pydantic", "yaml")


def _loaded(*args: str) -> set[str]:
    code = (
        "import sys, contextlib, io\n"
        "from pdops.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):\n"
        f"    main({list(args)!r})\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return {name.partition(".")[0] for name in done.stdout.split()}


@pytest.mark.parametrize(
    "command",
    [
        (),
        ("diagnose",),
        ("top",),
        ("record",),
        ("replay",),
        ("explain",),
        ("rules",),
        ("rules", "build"),
        ("rules", "check"),
        ("demo",),
        ("schema",),
        ("canary",),
        ("preflight",),
        ("runbook",),
        ("runbook", "plan"),
    ],
)
def test_help_imports_nothing_heavy(command: tuple[str, ...]) -> None:
    """Help of every command comes without the libraries that do the work."""
    assert set() == _loaded(*command, "--help") & set(HEAVY)


def test_explain_draws_nothing() -> None:
    """A command that draws nothing never imports textual."""
    assert "textual" not in _loaded("explain", "--list")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
def test_a_full_disk_is_said_in_two_lines() -> None:
    """Output that cannot be written is an error with a hint, not a traceback."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pdops", "explain", "--list"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == "pdops: input or output failed: No space left on device"
    assert "Traceback" not in done.stderr
