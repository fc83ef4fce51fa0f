"""Put an object into a Mooncake store, read it back and delete it; run by the engine's Python, prints one line of JSON.

Nothing of pdops is imported here: the engine's environment does not have it.
"""

from __future__ import annotations

import json
import os
import sys
import time

LEAST_BUFFER_BYTES = 16 << 20


def check(hostname: str, master: str, lent_bytes: int, size_bytes: int) -> dict[str, object]:
    """Return `ok`, the last `step` that was begun, `why` it went wrong, and `seconds` by step.

    Args:
        hostname: this client's address, where other clients reach it.
        master: address and port of the master's RPC.
        lent_bytes: memory to lend to the store meanwhile, for a store no engine has joined yet; 0 uses theirs.
        size_bytes: size of the object.
    """
    seconds: dict[str, float] = {}
    result: dict[str, object] = {"ok": False, "step": "import", "why": "", "seconds": seconds, "bytes": size_bytes}
    begin = time.monotonic()  # noqa: TID251  the engine's environment has no pdops

    def done(step: str, following: str) -> None:
        nonlocal begin
        now = time.monotonic()  # noqa: TID251
        seconds[step] = round(now - begin, 6)
        begin, result["step"] = now, following

    try:
        from mooncake.store import MooncakeDistributedStore  # type: ignore[import-not-found]
    except ImportError as error:
        return {**result, "why": str(error)[:300]}
    store = MooncakeDistributedStore()
    done("import", "connect")
    status = store.setup(hostname, "P2PHANDSHAKE", lent_bytes, LEAST_BUFFER_BYTES, "tcp", "", master)
    if status:
        return {**result, "why": f"set-up answers {status}"}
    done("connect", "put")
    key, value = f"pdops-probe-{os.getpid()}-{os.urandom(8).hex()}", os.urandom(size_bytes)
    try:
        if status := store.put(key, value):
            return {**result, "why": f"put answers {status}"}
        done("put", "get")
        found = store.get(key)
        if found != value:
            return {**result, "why": f"{len(found)} bytes came back, and they differ" if found else "nothing came back"}
        done("get", "delete")
    finally:
        # Reading takes a lease, which only force overrules.
        deleted = store.remove(key, True)
    if deleted:
        return {**result, "why": f"delete answers {deleted}"}
    if store.is_exist(key) != 0:
        return {**result, "why": "it is still there"}
    done("delete", "end")
    store.close()
    return {**result, "ok": True}


if __name__ == "__main__":
    try:
        outcome = check(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    except Exception as error:  # noqa: BLE001  whatever goes wrong is the answer
        outcome = {"ok": False, "step": "", "why": f"{type(error).__name__}: {error}"[:300], "seconds": {}}
    sys.stdout.write("\n" + json.dumps(outcome) + "\n")
    sys.stdout.flush()
    # The client's threads end slowly; the answer is out.
    os._exit(0)
