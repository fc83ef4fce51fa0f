"""A share of a core for every prefill worker, so that one more adds what the first does not have, also on two cores."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pdops.actuate import processes
from pdops.errors import PdopsError
from pdops.model.cluster import Role
from pdops.reference.running import roles
from tests.proofs.kit import Proof

_UNIFIED = Path("/sys/fs/cgroup")
_CPU = _UNIFIED / "cpu"
_PERIOD_US = 20_000
"""Short beside TTFT: a worker that has used up its share waits at most so long for the next."""
_LOOK_S = 0.3


@contextlib.contextmanager
def quota(told: Proof, share: float) -> Iterator[None]:
    """Hold every prefill worker, also one that is started later, to a share of a core; without it where that cannot be done.

    Raises:
        ProofError: a group can be made, and no worker comes into it.
    """
    old = _CPU.is_dir()
    parent = (_CPU if old else _UNIFIED) / f"pdops-proof-{os.getpid()}"
    try:
        parent.mkdir()
        if not old:
            (parent / "cgroup.subtree_control").write_text("+cpu")
    except OSError as error:
        told.say(f"no CPU quota, because no control group can be made here: {error}")
        yield
        return
    over = threading.Event()
    watch = threading.Thread(target=_hold, args=(told, parent, share, over), daemon=True)
    watch.start()
    try:
        told.wait("prefill to be held to its share", lambda: _held(parent), 30)
        told.say(f"per-worker limit: every prefill engine has {share:g} of a core")
        yield
        told.say(f"held to it: {', '.join(_held(parent)) or 'nobody'}")
    finally:
        over.set()
        watch.join()
        for group in (*(g for g in parent.iterdir() if g.is_dir()), parent):
            _give_back(group, parent.parent)


def _hold(told: Proof, parent: Path, share: float, over: threading.Event) -> None:
    said = ""
    while not over.wait(_LOOK_S):
        # The deployment's file is written anew, and processes come and go, while this reads: the next look may succeed.
        try:
            running = told.now
            for worker in (w for w, role in roles(running.spec).items() if role is Role.PREFILL):
                if (ref := running.state.ref(worker)) is not None:
                    _put(_limited(parent, worker, share), processes.members([ref]))
        except (OSError, PdopsError) as error:
            if str(error) != said:
                said = str(error)
                told.say(f"per-worker limit, not held at this look: {said}")


def _limited(parent: Path, worker: str, share: float) -> Path:
    group = parent / worker
    if not group.is_dir():
        group.mkdir()
        if parent.parent == _CPU:
            (group / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(int(share * _PERIOD_US)))
        else:
            (group / "cpu.max").write_text(f"{int(share * _PERIOD_US)} {_PERIOD_US}")
    return group


def _held(parent: Path) -> list[str]:
    return sorted(g.name for g in parent.iterdir() if g.is_dir() and (g / "cgroup.procs").read_text())


def _put(group: Path, pids: set[int]) -> None:
    file = group / "cgroup.procs"
    for pid in pids - {int(line) for line in file.read_text().split()}:
        with contextlib.suppress(OSError):
            file.write_text(str(pid))


def _give_back(group: Path, root: Path) -> None:
    """Leave no group behind: what is in it goes where it was."""
    for _ in range(50):
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(pid)
            group.rmdir()
            return
        time.sleep(0.1)
