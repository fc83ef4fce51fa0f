"""What stands in for a KV store's master that is away or to be left out, so that engines that run do not wait for it.

A Mooncake client whose master's port is closed tries for 4.3 s in each call, one call after the other, and no setting
shortens that; one whose connection is closed by the other side gives up within milliseconds, and the engine computes what the
store would have given. So a stand-in closes what arrives for the master from outside of its namespace: always while nobody
listens there, and for a bypass in any case, when connections from before are reset too. From inside the master is still
reached: it can be started and probed meanwhile.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

from pdops.actuate import processes
from pdops.clock import WallClock
from pdops.errors import DeploymentError
from pdops.reference import iproute, store
from pdops.reference.network import Network
from pdops.reference.running import Running
from pdops.reference.spec import StoreSpec
from pdops.reference.state import ProcessState

PROGRAM = Path(__file__).parent / "store_standin.py"
TABLE = "pdops_store"
"""The nftables table, in the master's namespace only."""
_TAKEN = "taken"
"""The chain that only a bypass has."""
_LISTENS_S = 20.0
_CLOCK = WallClock()


def users(running: Running) -> tuple[str, ...]:
    """Return the engines that run and were started with the store's connector."""
    known = running.state.processes
    return tuple(
        e.id for e in running.spec.engines
        if running.alive(e.id) and any(store.CONNECTOR in word for word in known[e.id].command)
    )  # fmt: skip


def active(running: Running) -> tuple[bool | None, str]:
    """Return whether engines that run are kept from the store, or None and why that is not known.

    Without its stand-in what was a bypass is a port that is closed: engines neither reach the store nor give up at once.
    """
    spec, network = _where(running)
    taken, why = _taken(network, spec)
    ref = running.state.ref(store.standin(spec))
    if taken and (ref is None or not processes.alive(ref)):
        return None, "the store's stand-in has ended, and engines wait for a port that is closed: run `pdops up` again"
    return taken, why


def stand_by(running: Running) -> None:
    """Have calls closed at once while no master listens; a kernel that cannot look for a listener goes without.

    Raises:
        DeploymentError: the stand-in does not listen.
    """
    spec, network = _where(running)
    _stand(running)
    # After `_stand`, so that only a filter that cannot be asked leaves it open.
    if active(running)[0] is False:
        iproute.run([*network.enter(spec.id), "nft", "delete", "table", "ip", TABLE], check=False)
        iproute.run([*network.enter(spec.id), "nft", rules(spec, always=False)], check=False)


def begin(running: Running) -> None:
    """Keep engines that run from the store; harmless when they are kept from it already.

    Raises:
        DeploymentError: the stand-in does not listen, or the packet filter does not take the rules.
    """
    spec, network = _where(running)
    _stand(running)
    iproute.run([*network.enter(spec.id), "nft", rules(spec, always=True)])


def end(running: Running) -> None:
    """Let engines reach the store again; harmless when they do.

    Raises:
        DeploymentError: the stand-in does not listen, or the rules cannot be taken away.
    """
    spec, network = _where(running)
    # Also where the stand-in has ended: once it is started again, what was left of the bypass would be one.
    if _taken(network, spec)[0] is not False:
        iproute.run([*network.enter(spec.id), "nft", "delete", "table", "ip", TABLE])
    stand_by(running)


def rules(spec: StoreSpec, *, always: bool) -> str:
    """Return what turns the master's visitors to the stand-in, in place of what a former call left."""
    here = f'iif != "lo" tcp dport {spec.rpc_port}'
    # A socket that is bound to all addresses is a wildcard; where there is none, neither matches.
    served = "" if always else "".join(f"{here} socket wildcard {bound} accept; " for bound in (0, 1))
    reset = f"chain {_TAKEN} {{ type filter hook input priority 0; {here} reject with tcp reset; }}" if always else ""
    return f"""add table ip {TABLE}
delete table ip {TABLE}
table ip {TABLE} {{
  chain arriving {{ type nat hook prerouting priority -100; {served}{here} redirect to :{_port(spec)}; }}
  {reset}
}}
"""


def _stand(running: Running) -> None:
    """Start the stand-in unless it runs, and wait until it listens."""
    spec, network = _where(running)
    name, port = store.standin(spec), _port(spec)
    ref = running.state.ref(name)
    if ref is None or not processes.alive(ref):
        command = [*network.enter(spec.id), sys.executable, "-I", str(PROGRAM), spec.host, str(port)]
        log = running.home.log(name)
        ref = processes.spawn(command, log=log, mark=running.state.mark, env=dict(os.environ), cwd=running.home.path)
        entry = ProcessState(
            pid=ref.pid, start_ticks=ref.start_ticks, started_at_s=_CLOCK.now(), command=tuple(command)
        )
        running.state = running.state.with_process(name, entry)
        running.home.write(running.state)
    end = _CLOCK.monotonic() + _LISTENS_S
    while not _listens(spec.host, port):
        if not processes.alive(ref) or _CLOCK.monotonic() > end:
            hint = f"read the end of {running.home.log(name)}"
            raise DeploymentError("the store's stand-in does not listen", where=f"{spec.host}:{port}", hint=hint)
        time.sleep(0.05)


def _where(running: Running) -> tuple[StoreSpec, Network]:
    spec, network = running.spec.store, running.network
    assert spec is not None, "this deployment has no KV store"
    assert network is not None, "its store has no namespace"
    return spec, network


def _port(spec: StoreSpec) -> int:
    """Return a port that nobody else takes in the master's namespace."""
    return max(spec.rpc_port, spec.metrics_port, spec.http_port) + 1


def _taken(network: Network, spec: StoreSpec) -> tuple[bool | None, str]:
    """Return whether the rules of a bypass are there, or None and why the packet filter does not say."""
    try:
        listed = iproute.run([*network.enter(spec.id), "nft", "-j", "list", "ruleset"])
    except DeploymentError as error:
        return None, str(error)
    return f'"{_TAKEN}"' in listed, ""


def _listens(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1.0).close()
    except OSError:
        return False
    return True
