"""What is done to the parts of a real deployment: a power cut, and somebody else where the store must listen."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator

from pdops.actuate import processes
from pdops.reference.running import Running

_ENDED_S = 60.0


def power_cut(running: Running) -> None:
    """End every process at once, with SIGKILL.

    Raises:
        TimeoutError: one of them stays.
    """
    watching = {s.id for s in running.spec.services}
    for name in running.state.processes.keys() - watching:
        ref = running.state.ref(name)
        assert ref is not None
        processes.kill(ref)
    end = time.monotonic() + _ENDED_S
    while running.pids() - {running.state.processes[w].pid for w in watching & running.state.processes.keys()}:
        if time.monotonic() > end:
            raise TimeoutError(f"processes stay: {sorted(running.pids())}")
        time.sleep(0.2)


def order(running: Running) -> list[str]:
    """Return the parts that run, in the order they were started."""
    started = running.state.processes
    return sorted((w for w in running.spec.ids() if running.alive(w)), key=lambda w: started[w].started_at_s)


@contextlib.contextmanager
def taken(running: Running) -> Iterator[None]:
    """Let somebody else listen where the store must: it cannot come up then."""
    network, store = running.network, running.spec.store
    assert network is not None
    assert store is not None
    script = "import socket,sys\ns=socket.create_server((sys.argv[1],int(sys.argv[2])))\nprint('listens',flush=True)\ns.accept()"
    command = [*network.enter(store.id), sys.executable, "-c", script, store.host, str(store.rpc_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        try:
            assert other.stdout is not None
            assert other.stdout.readline().strip() == "listens"
            yield
        finally:
            other.kill()
