"""Prove how fast a KV link is, with a plain TCP copy from one worker's namespace to another's."""

from __future__ import annotations

import subprocess
import sys

from pdops.errors import DeploymentError
from pdops.reference.drills.plan import Network

_MOST_S = 60.0
_RECEIVE = """
import socket, sys
from time import monotonic
server = socket.create_server((sys.argv[1], 0))
server.settimeout(30)
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
peer.settimeout(30)
begin, size = monotonic(), 0
while piece := peer.recv(65536):
    size += len(piece)
print(size, monotonic() - begin, flush=True)
"""
_SEND = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), 30) as peer:
    peer.sendall(bytes(int(sys.argv[3])))
"""


def bits_per_s(network: Network, source: str, sink: str, size: int) -> float:
    """Copy `size` bytes from one worker to another over the KV link and return the rate the receiver saw, in bits/s.

    Raises:
        DeploymentError: the copy did not arrive within a minute.
    """
    python = [sys.executable, "-I", "-c"]
    address = network.kv_address(sink)
    receiver = subprocess.Popen(
        [*network.enter(sink), *python, _RECEIVE, address], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        assert receiver.stdout is not None
        port = receiver.stdout.readline().strip()
        command = [*network.enter(source), *python, _SEND, address, port, str(size)]
        subprocess.run(command, check=True, timeout=_MOST_S, stdin=subprocess.DEVNULL, capture_output=True)
        said, _ = receiver.communicate(timeout=_MOST_S)
        arrived, seconds = said.split()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise DeploymentError(
            "a plain TCP copy over the KV link failed", where=f"{source} to {sink}", why=str(error)[:200]
        ) from error
    finally:
        receiver.kill()
        receiver.communicate()
    if int(arrived) != size:
        raise DeploymentError("a plain TCP copy over the KV link was cut short", where=f"{source} to {sink}")
    return size * 8 / max(float(seconds), 1e-6)
