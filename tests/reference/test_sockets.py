"""Where processes listen."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from pdops.reference.sockets import listeners

LISTEN = "import socket,time; s=socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); time.sleep(60)"


@contextlib.contextmanager
def heard(*enter: str) -> Iterator[tuple[int, int]]:
    """Give the number of a process that listens, and its port."""
    with subprocess.Popen([*enter, sys.executable, "-c", LISTEN], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def test_a_process_that_listens_and_one_that_is_gone() -> None:
    with heard() as (pid, port):
        assert [(str(address), at) for address, at in listeners([pid, 2**22 + 1])] == [("127.0.0.1", port)]
    assert listeners([pid]) == []
