"""Read workers from Kubernetes manifests as they would be applied: rendered YAML, any number of documents."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pdops.model.cluster import Cluster, Role, Worker
from pdops.sources.facts.arguments import Arguments, is_engine, of_shell
from pdops.sources.facts.collected import Collected
from pdops.sources.facts.manifestfile import WHAT, ManifestError, documents
from pdops.sources.facts.podfacts import pod_facts
from pdops.sources.facts.process import arguments_of, environment_facts
from pdops.sources.redact import clean

_MAX_WORKLOADS = 256
_MAX_VALUE = 128 << 10
"""Characters that variables may add to one word: what Linux takes for an argument."""
_TEMPLATES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Pod": (("spec",),),
    "LeaderWorkerSet": (
        ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec"),
        ("spec", "leaderWorkerTemplate", "workerTemplate", "spec"),
    ),
    **dict.fromkeys(("Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "Job"), (("spec", "template", "spec"),)),
}
_ROLE_KEYS = ("role", "component", "pool", "stage")
_VARIABLE = re.compile(r"\$\((\w+)\)|\$\{(\w+)\}|\$(\w+)")
_TAG = re.compile(r":v?(\d+\.\d+\.\d+)(?:$|[-+@.])")
_ID = re.compile(r"[^A-Za-z0-9._-]")
_ROUTERS = ("vllm-router", "pdops.router", "sglang_router", "sglang_router.launch_router")


@dataclass(slots=True)
class Manifests:
    """The workers of some manifests, their facts, and notes about documents that were not understood."""

    cluster: Cluster
    collected: Collected
    notes: list[str] = field(default_factory=list)


def read_manifests(paths: Sequence[Path], *, name: str = "manifests") -> Manifests:
    """Read the workers of manifest files.

    Raises:
        ManifestError: a file cannot be read, is no YAML, is larger than 4 MiB, or none has an engine in it.
    """
    found = [(str(path), document) for path in paths for document in documents(path)]
    out = parse_documents(found, name=name)
    if not any(w.role not in (Role.ROUTER, Role.KVSTORE) for w in out.cluster.workers):
        kinds = ", ".join(sorted({str(d.get("kind")) for _, d in found})) or "nothing"
        hint = "give rendered workloads, as `helm template` or `kubectl kustomize` print them"
        raise ManifestError(
            WHAT, where=", ".join(map(str, paths)), why=f"no workload runs an engine (found {clean(kinds)})", hint=hint
        )
    return out


def parse_documents(given: Sequence[tuple[str, Mapping[str, Any]]], *, name: str) -> Manifests:
    """Return the workers of parsed documents, each with the file it came from."""
    maps = {
        str(_at(d, "metadata", "name")): {str(k): str(v) for k, v in _map(d.get("data")).items()}
        for _, d in given
        if d.get("kind") == "ConfigMap"
    }
    out = Manifests(Cluster(name=name, workers=()), Collected())
    workers: list[Worker] = []
    for path, document in given:
        kind = str(document.get("kind"))
        if kind not in _TEMPLATES:
            if "containers" in str(document)[:100_000]:
                out.notes.append(f"{path}: kind {clean(kind)} is not read, though it seems to run containers")
            continue
        if len(workers) >= _MAX_WORKLOADS:
            out.notes.append(f"{path}: only the first {_MAX_WORKLOADS} workers are read")
            break
        worker = _worker(path, document, kind, maps, {w.id for w in workers}, out)
        if worker is not None:
            workers.append(worker)
    out.cluster = Cluster(name=name, workers=tuple(workers))
    return out


def _worker(
    path: str,
    document: Mapping[str, Any],
    kind: str,
    maps: Mapping[str, Mapping[str, str]],
    taken: set[str],
    out: Manifests,
) -> Worker | None:
    metadata = _map(document.get("metadata"))
    named = str(metadata.get("name") or metadata.get("generateName") or kind.lower()).rstrip("-")
    for steps in _TEMPLATES[kind]:
        spec = _map(_at(document, *steps))
        found = _engine_container(spec)
        if found is not None:
            break
    else:
        return None
    container, argv = found
    collected = Collected()
    environ = _environ(container, maps, named, collected)
    argv = [_expand(word, environ) for word in argv]
    role = _role(_labels(document, steps), argv, named)
    if role is None:
        out.notes.append(f"{path}: {clean(named)} runs an engine, and nothing tells whether it does prefill or decode")
        role = Role.COLOCATED
    worker_id = _unique(_ID.sub("-", named)[:60] or role.value, taken)
    read = arguments_of(role, argv)
    facts = {**read.options, **environment_facts(environ), **pod_facts(worker_id, spec, container)}
    if any(u.key == "environment.*" for u in collected.unread):
        # So that a variable that is not there is not taken for one that is not set.
        facts["environment"] = "partial"
    image = str(container.get("image", ""))
    tag = _TAG.search(image)
    if tag and ("vllm-openai" in image or image.rpartition(":")[0].endswith("/vllm")):
        facts["version"] = tag[1]
    else:
        collected.miss(
            worker_id, "version", f"the image {image or 'without a name'} does not tell the engine's version"
        )
    out.collected.put(worker_id, facts)
    collected.miss(worker_id, "host.*", "a pod spec does not tell it")
    collected.miss(worker_id, "reach.*", "nothing is dialled for a manifest")
    for key, why in read.unread.items():
        collected.miss(worker_id, key, why)
    for item in collected.unread:
        out.collected.miss(worker_id, item.key, item.why)
    return Worker(
        id=worker_id,
        role=role,
        pool=role.value,
        engine="vllm" if "vllm" in image or any("vllm" in word for word in argv[:4]) else None,
        version=facts.get("version"),
        node=facts.get("host.node"),
    )


def _engine_container(spec: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]] | None:
    for container in _list(spec.get("containers")):
        if not isinstance(container, dict):
            continue
        command, args = _words(container.get("command")), _words(container.get("args"))
        argv = of_shell([*command, *args])
        names = [word.rpartition("/")[2] for word in argv[:4]]
        if is_engine(argv) or any(name in _ROUTERS or name == "mooncake_master" for name in names):
            return container, argv
        image = str(container.get("image", ""))
        if not command and args and "vllm-openai" in image:
            # The entry point of that image is the server itself.
            return container, ["vllm", "serve", *args]
    return None


def _environ(
    container: Mapping[str, Any], maps: Mapping[str, Mapping[str, str]], worker: str, out: Collected
) -> dict[str, str]:
    environ: dict[str, str] = {}
    for source in _list(container.get("envFrom")):
        name = str(_at(source, "configMapRef", "name") or "")
        if name in maps:
            prefix = str(_map(source).get("prefix") or "")
            environ |= {f"{prefix}{key}": value for key, value in maps[name].items()}
        else:
            out.miss(worker, "environment.*", f"it comes from {name or 'a secret'}, which is not among these files")
    for entry in map(_map, _list(container.get("env"))):
        name, value = str(entry.get("name")), entry.get("value")
        if value is not None:
            environ[name] = _expand(str(value), environ)
            continue
        source = _map(entry.get("valueFrom"))
        path = _at(source, "fieldRef", "fieldPath")
        reference = _map(source.get("configMapKeyRef"))
        known = maps.get(str(reference.get("name")), {}).get(str(reference.get("key")))
        if path is not None:
            environ[name] = f"$({path})"
        elif known is not None:
            environ[name] = known
        elif source and environment_facts({name: ""}):
            out.miss(worker, name, f"it comes from {next(iter(source))}, which is not among these files")
    return environ


def _expand(text: str, environ: Mapping[str, str]) -> str:
    room = _MAX_VALUE

    def value(found: re.Match[str]) -> str:
        nonlocal room
        known = environ.get(found[1] or found[2] or found[3], found[0])
        room -= len(known)
        # Variables of variables of variables grow without end; what has no room stays as it is written.
        return known if room >= 0 else found[0]

    return _VARIABLE.sub(value, text)


def _labels(document: Mapping[str, Any], steps: tuple[str, ...]) -> dict[str, str]:
    labels = dict(_map(_at(document, "metadata", "labels")))
    labels |= _map(_at(document, *steps[:-1], "metadata", "labels"))
    return {str(key): str(value) for key, value in labels.items()}


def _role(labels: Mapping[str, str], argv: Sequence[str], name: str) -> Role | None:
    names = [word.rpartition("/")[2] for word in argv[:4]]
    if any(word in _ROUTERS for word in names):
        return Role.ROUTER
    if "mooncake_master" in names:
        return Role.KVSTORE
    told = [value for key, value in labels.items() if re.split(r"[/._-]", key)[-1].casefold() in _ROLE_KEYS]
    read: Arguments = arguments_of(Role.COLOCATED, argv)
    options = read.options
    by_option = {"kv_producer": "prefill", "kv_consumer": "decode"}.get(options.get("kv_role", ""), "")
    told += [by_option, options.get("disaggregation_mode", "")]
    told += ["prefill" if options.get("is_prefill_worker") == "true" else "", name]
    for text in told:
        found = {role for role in (Role.PREFILL, Role.DECODE) if role.value in text.casefold()}
        if len(found) == 1:
            return found.pop()
    return None


def _unique(name: str, taken: set[str]) -> str:
    number = 2
    unique = name
    while unique in taken:
        unique = f"{name}-{number}"
        number += 1
    return unique


def _at(data: Any, *steps: str) -> Any:
    for step in steps:
        data = _map(data).get(step)
    return data


def _map(data: Any) -> Mapping[str, Any]:
    return data if isinstance(data, dict) else {}


def _list(data: Any) -> list[Any]:
    return data if isinstance(data, list) else []


def _words(data: Any) -> list[str]:
    return [str(word) for word in _list(data)]
