"""Settle what follows from facts already read: engine defaults, and the compatibility hash."""

from __future__ import annotations

from pdops.model.cluster import Role, Worker
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.compat import compat_hash, connector_version, inputs_of, uses_nixl
from pdops.sources.facts.defaults import default_facts

_NONE = frozenset({"none", "null"})


def resolve(out: Collected, worker: Worker) -> None:
    """Add defaults, the connector's version and the compatibility hash to an engine's facts."""
    if worker.role not in (Role.PREFILL, Role.DECODE, Role.COLOCATED):
        return
    facts = out.facts.setdefault(worker.id, {})
    if worker.version is not None:
        facts.setdefault("version", worker.version)
    if "cache_dtype" in facts:
        facts.setdefault("kv_cache_dtype", facts["cache_dtype"])
    unread = {item.key for item in out.unread if item.worker == worker.id}
    out.put(worker.id, default_facts(facts, unread))
    facts = out.facts[worker.id]
    if not uses_nixl(facts) or facts.get("kv_connector", "").casefold() in _NONE:
        return
    connector = connector_version(facts.get("version"))
    if connector is not None:
        facts.setdefault("connector_version", str(connector))
    logged = facts.get("compat_hash_logged")
    if logged is not None:
        # The engine's own word, printed at debug level, outdoes any working out.
        facts["compat_hash"] = logged
        return
    inputs, missing = inputs_of(facts)
    if inputs is not None:
        facts["compat_hash"] = compat_hash(inputs)
    else:
        out.miss(worker.id, "compat_hash", f"it needs {', '.join(missing)}")
