"""Read a buffer of one NIXL agent from another in a throw-away process; run by the engine's Python, prints JSON.

Nothing of pdops is imported here: the engine's environment does not have it.
"""

from __future__ import annotations

import json
import os
import sys
import time

SIZE = 1 << 20
LIMIT_S = 30.0


def check() -> dict[str, object]:
    """Return backend, bytes and seconds of one read, or what went wrong."""
    import torch  # type: ignore[import-not-found]
    from nixl._api import nixl_agent, nixl_agent_config  # type: ignore[import-not-found]

    config = nixl_agent_config(backends=["UCX"], num_threads=0)
    source, sink = nixl_agent("pdops-source", config), nixl_agent("pdops-sink", config)
    here = torch.arange(SIZE, dtype=torch.int64).to(torch.uint8)
    there = torch.zeros(SIZE, dtype=torch.uint8)
    registered = [(source, source.register_memory(here)), (sink, sink.register_memory(there))]
    name = sink.add_remote_agent(source.get_agent_metadata())
    handle = sink.initialize_xfer("READ", sink.get_xfer_descs(there), sink.get_xfer_descs(here), name, b"")
    begin = time.monotonic()  # noqa: TID251  the engine's environment has no pdops
    state = sink.transfer(handle)
    while state == "PROC" and time.monotonic() - begin < LIMIT_S:  # noqa: TID251
        state = sink.check_xfer_state(handle)
    seconds = time.monotonic() - begin  # noqa: TID251
    same = bool(torch.equal(here, there))
    sink.release_xfer_handle(handle)
    for agent, memory in registered:
        agent.deregister_memory(memory)
    return {"ok": state == "DONE" and same, "state": state, "same": same, "bytes": SIZE, "seconds": seconds}


if __name__ == "__main__":
    try:
        result = check()
    except Exception as error:  # noqa: BLE001  whatever goes wrong is the answer
        result = {"ok": False, "state": f"{type(error).__name__}: {error}"[:300]}
    sys.stdout.write("\n" + json.dumps(result) + "\n")
    sys.stdout.flush()
    # Agents of one process have been seen to crash while they are taken down; the answer is out.
    os._exit(0)
