"""Prove how fast a KV link is, with a plain TCP copy from one worker's namespace to another's."""

from __future__ import annotations

import json
import os
import subprocess

from pdops.errors import DeploymentError
from pdops.probe.bandwidth import Copied, send_command, serve_command
from pdops.reference.drills.deployment import Network

_GRACE_S = 10.0
_HINT = "`pdops status` shows whether both workers run; `pdops down` and `up` make the links anew"


def bits_per_s(network: Network, source: str, sink: str, *, most_bytes: int, seconds: float) -> float:
    """Copy from one worker to another over the KV link and return the rate the receiver saw, in bits/s.

    Args:
        network: has the links.
        source: worker that sends.
        sink: worker that receives.
        most_bytes: no more is sent.
        seconds: it takes no longer.

    Raises:
        DeploymentError: no rate can be told.
    """
    where = f"{source} to {sink}"
    serve = serve_command(network.kv_address(sink), seconds=2 * seconds + _GRACE_S, prefix=network.enter(sink))
    receiver = subprocess.Popen(
        serve, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert receiver.stdout is not None
        to = json.loads(receiver.stdout.readline())["listening"]
        send = send_command(to, count=most_bytes, seconds=seconds, prefix=network.enter(source))
        done = subprocess.run(
            send,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=2 * seconds + 2 * _GRACE_S,
            check=False,
            env=os.environ,
        )
        copied = Copied.of_json(done.stdout)
    except (KeyError, ValueError, OSError, subprocess.SubprocessError) as error:
        raise DeploymentError(
            "a plain TCP copy over the KV link failed", where=where, why=str(error)[:200], hint=_HINT
        ) from error
    finally:
        receiver.kill()
        receiver.communicate()
    if copied.bytes_per_s is None:
        raise DeploymentError(
            "a plain TCP copy over the KV link failed", where=where, why=copied.error or "", hint=_HINT
        )
    return copied.bytes_per_s * 8
