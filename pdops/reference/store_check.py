"""Is the KV store of a deployment well: what its master says, and an object through it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence

from pdops.actuate import processes
from pdops.probe import store_object
from pdops.reference import pages, store
from pdops.reference.running import Running
from pdops.reference.spec import StoreSpec
from pdops.sequence.run import Outcome

_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"


def health(spec: StoreSpec, timeout_s: float = 3.0) -> str | None:
    """Return None when the master says it serves, else what it says, or why it was not heard."""
    try:
        said = json.loads(pages.get(store.health_url(spec), timeout_s))
        if said["status"] == "ok" and said.get("service_ready", True):
            return None
        return f"the master says {json.dumps(said)[:200]}"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"the master does not answer: {str(error)[:200]}"


def joined(spec: StoreSpec, timeout_s: float = 5.0) -> int:
    """Return how many bytes the engines lend to the store.

    Raises:
        OSError: the master does not answer, or does not tell.
    """
    page = pages.get(f"http://{spec.host}:{spec.metrics_port}/metrics", timeout_s)
    found = pages.total(page, "master_total_capacity_bytes")
    if found is None:
        # Taken for nothing lent, the probe would use memory of its own and pass without touching an engine's.
        raise OSError("its page of metrics has no master_total_capacity_bytes")
    return int(found)


def put_get_delete(running: Running) -> store_object.StoreObject:
    """Put an object into the store, read it back and delete it, from the master's own namespace.

    While no engine lends memory the client lends some itself; later the object goes to an engine and back, over KV links.
    """
    spec = running.spec.store
    assert spec is not None, "this deployment has no KV store"
    try:
        alone = joined(spec) == 0
    except OSError as error:
        return store_object.StoreObject(
            ok=False, step="connect", why=f"the master does not tell what is lent: {str(error)[:200]}"
        )
    network = running.network
    prefix = network.enter(spec.id) if network is not None and spec.namespace is not None else []
    address = store.client_address(spec.host, spec.namespace)
    call = store_object.command(running.python, address, store.master(spec), alone=alone)

    def run(command: Sequence[str], timeout_s: float) -> tuple[int | None, str, str]:
        return _run([*prefix, *command], timeout_s, running.state.mark)

    return store_object.check(call, run)


def probe(running: Running) -> Outcome:
    """Return whether the master serves and an object goes through it."""
    assert running.spec.store is not None, "this deployment has no KV store"
    if (why := health(running.spec.store)) is not None:
        return Outcome(False, why)
    result = put_get_delete(running)
    # Waiting does not install a library.
    return Outcome(result.ok, str(result), fatal=result.step == "import")


def _run(command: Sequence[str], timeout_s: float, mark: str) -> tuple[int | None, str, str]:
    environment = {"PATH": os.environ.get("PATH", _PATH), processes.MARK: mark}
    # The command is ours; it leads a group of its own, so that what it started ends with it.
    with subprocess.Popen(
        list(command), env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    ) as child:  # fmt: skip
        try:
            output, errors = child.communicate(timeout=timeout_s)
        except BaseException as error:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return None, "", ""
    return child.returncode, output, errors
