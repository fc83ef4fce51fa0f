"""Keep the set of workers over a restart."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path

from pdops.router.settings import RouterError, WorkerSpec, role_name, worker_id, worker_url, zone_name
from pdops.router.workers import Registry

SCHEMA = "pdops/router-state/v1"
_HINT = "repair it, or move it away to start from the command line alone"


def read(path: Path) -> tuple[list[tuple[WorkerSpec, bool]], set[str]]:
    """Return workers, each with whether it is cordoned, and the ids removed on purpose; nothing when there is no file.

    Raises:
        RouterError: the file cannot be read or is not one of ours.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return [], set()
    except OSError as error:
        why = error.strerror or str(error)
        hint = "make it readable, or give --state another path"
        raise RouterError("cannot read the state file", where=str(path), why=why, hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise RouterError("the state file is damaged", where=str(path), why=f"not JSON: {error}", hint=_HINT) from error
    try:
        if content["schema"] != SCHEMA:
            raise RouterError(f"schema {content['schema']!r}, expected {SCHEMA}", hint=_HINT)
        workers = [
            (
                WorkerSpec(
                    id=worker_id(w["id"]),
                    role=role_name(w["role"]),
                    url=worker_url(w["url"]),
                    zone=zone_name(w.get("zone")),
                ),
                w["cordoned"] is True,
            )
            for w in content["workers"]
        ]
        removed = {worker_id(name) for name in content["removed"]}
    except (KeyError, TypeError, RouterError) as error:
        why = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise RouterError("the state file is damaged", where=str(path), why=why, hint=_HINT) from error
    if len({spec.id for spec, _ in workers}) != len(workers):
        raise RouterError("the state file is damaged", where=str(path), why="an id stands there twice", hint=_HINT)
    return workers, removed


def write(path: Path, registry: Registry) -> None:
    """Replace the file as a whole, readable by its owner only.

    Raises:
        RouterError: it cannot be written.
    """
    workers = [
        {"id": w.id, "role": w.spec.role.value, "url": w.spec.url, "zone": w.zone, "cordoned": w.cordoned}
        for w in registry.workers.values()
    ]
    content = {"schema": SCHEMA, "workers": workers, "removed": sorted(registry.removed)}
    try:
        # mkstemp makes the file with mode 0600.
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(content, file, indent=1)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
            raise
    except OSError as error:
        raise RouterError(
            "cannot write the state file",
            where=str(path),
            why=error.strerror or str(error),
            hint="give --state a path in a folder that exists and can be written",
        ) from error
