"""A plain TCP copy from one worker's namespace to another's over their KV links: what the link itself can do."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from pdops.errors import DeploymentError
from pdops.reference.network import Network

_RECEIVE = """
import json, socket, sys, time
server = socket.create_server((sys.argv[1], 0))
server.settimeout(float(sys.argv[2]))
print(server.getsockname()[1], flush=True)
peer, _ = server.accept()
peer.settimeout(float(sys.argv[2]))
total, begin, end = 0, None, None
while data := peer.recv(1 << 16):
    end = time.monotonic()
    # The first read starts the clock and is not counted: nothing is known about how long it took.
    if begin is None:
        begin = end
    else:
        total += len(data)
print(json.dumps([total, end - begin if begin is not None else 0.0]))
"""
_SEND = """
import socket, sys
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))
left, block = int(sys.argv[4]), bytes(1 << 16)
while left > 0:
    peer.sendall(block[: min(left, len(block))])
    left -= len(block)
peer.shutdown(socket.SHUT_WR)
peer.recv(1)
"""


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy that was made: bytes received after the first read, and the seconds they took."""

    bytes: int
    seconds: float

    @property
    def bits_per_s(self) -> float:
        """The rate of payload; headers are not in it."""
        return self.bytes * 8 / self.seconds if self.seconds > 0 else float("nan")


def measure(network: Network, src: str, dst: str, size_bytes: int, timeout_s: float = 20.0) -> Copy:
    """Copy `size_bytes` from one worker to another and return what arrived in which time.

    Raises:
        DeploymentError: no connection, or the copy did not end within `timeout_s` seconds.
    """
    where = f"{src} > {dst}"
    address = network.kv_address(dst)
    receive = [*network.enter(dst), sys.executable, "-c", _RECEIVE, address, str(timeout_s)]
    # Both programs are ours and end by themselves: each of their socket operations is bounded.
    with subprocess.Popen(receive, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as receiver:
        assert receiver.stdout is not None
        port = receiver.stdout.readline().strip()
        try:
            if not port:
                raise DeploymentError("cannot listen for a TCP copy", where=where, hint="is the network up?")
            send = [*network.enter(src), sys.executable, "-c", _SEND, address, port, str(timeout_s), str(size_bytes)]
            sent = subprocess.run(send, capture_output=True, text=True, timeout=timeout_s, check=False)
            text, _ = receiver.communicate(timeout=timeout_s if sent.returncode == 0 else 1.0)
        except subprocess.TimeoutExpired:
            why = f"it did not end within {timeout_s:.0f} s"
            raise DeploymentError("no TCP copy over the KV link", where=where, why=why) from None
        finally:
            if receiver.poll() is None:
                receiver.kill()
    if sent.returncode or not text.strip():
        why = sent.stderr.strip().rpartition("\n")[2] or "the receiver got nothing"
        raise DeploymentError("no TCP copy over the KV link", where=where, why=why)
    total, seconds = json.loads(text)
    return Copy(int(total), float(seconds))
