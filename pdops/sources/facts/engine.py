"""Ask an engine once per start how it is configured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from yarl import URL

from pdops.catalog.names import INFO_FAMILIES, canonical_name, split_series
from pdops.model.cluster import Cluster, Worker
from pdops.model.frame import Layout, Scrape
from pdops.sources.fetch import Fetcher, FetchError
from pdops.sources.redact import clean, is_secret, redact

_TIMEOUT_S = 2.0
_SLOW_TIMEOUT_S = 20.0
"""An engine surveys its whole environment for the first `/server_info`; more than 2 s were seen."""
_VERSION_BYTES = 64 * 1024
_INFO_BYTES = 512 * 1024
_MAX_FACTS = 1_000
_MAX_TEXT = 256
_MAX_DEPTH = 8
_ASKED = frozenset({"vllm"})


class FactReader:
    """Collects facts beside the scrapes, never in their way; what cannot be read is left out.

    Args:
        fetcher: the session of the scrapes.
        server_info: also ask for `/server_info`, which vLLM serves in development mode only.
    """

    def __init__(self, cluster: Cluster, fetcher: Fetcher, *, server_info: bool = False) -> None:
        self._workers = {worker.id: worker for worker in cluster.workers}
        self._fetcher = fetcher
        self._server_info = server_info
        self._asked: set[str] = set()
        self._layouts: dict[tuple[str, str], Layout] = {}
        self._fresh: dict[str, dict[str, str]] = {}
        self._running: set[asyncio.Task[None]] = set()

    def saw(self, scrape: Scrape, *, restarted: bool = False) -> None:
        """Take facts from a page that answered, and ask its worker when it is new or has restarted."""
        if scrape.layout is None:
            return
        key = (scrape.worker, scrape.endpoint)
        if scrape.full and self._layouts.get(key) is not scrape.layout:
            self._layouts[key] = scrape.layout
            self._keep(scrape.worker, info_facts(scrape.layout))
        if restarted:
            self._asked.discard(scrape.worker)
        worker = self._workers.get(scrape.worker)
        if worker is None or worker.url is None or scrape.engine not in _ASKED or scrape.worker in self._asked:
            return
        self._asked.add(scrape.worker)
        task = asyncio.create_task(self._ask(worker, worker.url.rstrip("/")))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def take(self) -> Mapping[str, Mapping[str, str]]:
        """Return the facts that are new since the last call, by worker."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    async def aclose(self) -> None:
        """Stop asking; may be called twice."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _ask(self, worker: Worker, base: str) -> None:
        version = await self._json(worker, f"{base}/version", _VERSION_BYTES)
        if isinstance(version, dict) and isinstance(version.get("version"), str):
            self._keep(worker.id, {"version": version["version"]})
        if self._server_info:
            info = await self._json(worker, f"{base}/server_info?config_format=json", _INFO_BYTES)
            self._keep(worker.id, flatten(info))

    async def _json(self, worker: Worker, url: str, max_bytes: int) -> Any:
        try:
            answer = await self._fetcher.get(
                URL(url, encoded=True),
                worker.secret,
                accept="application/json",
                timeout_s=_TIMEOUT_S,
                max_bytes=max_bytes,
            )
            return json.loads(answer.body)
        except (FetchError, ValueError, RecursionError):
            return None

    def _keep(self, worker: str, facts: Mapping[str, str]) -> None:
        kept = {clean(k): redact(clean(v))[:_MAX_TEXT] for k, v in facts.items() if not is_secret(k, v)}
        if kept:
            self._fresh.setdefault(worker, {}).update(kept)


async def ask_engine(
    worker: Worker, fetcher: Fetcher, *, server_info: bool = False
) -> tuple[dict[str, str], dict[str, str]]:
    """Ask a vLLM server once for its version, model and, in development mode only, its whole configuration.

    Returns:
        The facts, and for each key that could not be had the reason.
    """
    facts: dict[str, str] = {}
    unread: dict[str, str] = {}
    assert worker.url is not None, f"{worker.id} has no address"
    base = worker.url.rstrip("/")
    asked = [("version", f"{base}/version", _VERSION_BYTES), ("served_model_name", f"{base}/v1/models", _INFO_BYTES)]
    if server_info:
        asked.append(("server_info", f"{base}/server_info?config_format=json", _INFO_BYTES))
    for key, url, limit in asked:
        timeout_s = _SLOW_TIMEOUT_S if key == "server_info" else _TIMEOUT_S
        try:
            answer = await fetcher.get(
                URL(url, encoded=True), worker.secret, accept="application/json", timeout_s=timeout_s, max_bytes=limit
            )
            document = json.loads(answer.body)
        except FetchError as error:
            unread[key] = error.reason
        except (ValueError, RecursionError):
            unread[key] = "answer is not JSON"
        else:
            found = {"version": version_facts, "served_model_name": served_facts}.get(key, flatten)(document)
            facts |= found
            if not found:
                unread[key] = "answer does not say"
    return facts, unread


def version_facts(document: Any) -> dict[str, str]:
    """Return the engine's version from the answer of `/version`."""
    version = document.get("version") if isinstance(document, dict) else None
    return {"version": version} if isinstance(version, str) else {}


def served_facts(document: Any) -> dict[str, str]:
    """Return name, path and longest context of the base model from the answer of `/v1/models`."""
    entries = document.get("data") if isinstance(document, dict) else None
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("id"), str) and entry.get("parent") is None:
            facts = {"served_model_name": entry["id"]}
            if isinstance(entry.get("root"), str):
                facts["model"] = entry["root"]
            if isinstance(entry.get("max_model_len"), int):
                facts["max_model_len"] = str(entry["max_model_len"])
            return facts
    return {}


def info_facts(layout: Layout) -> dict[str, str]:
    """Return the labels of a page's info families, the engine rank left out."""
    facts: dict[str, str] = {}
    for series in layout.series:
        name = canonical_name(series.partition("{")[0].strip())[0]
        if name in INFO_FAMILIES:
            facts.update({k: v for k, v in split_series(series)[1].items() if k != "engine"})
    return facts


def flatten(data: Any) -> dict[str, str]:
    """Return a configuration document as text by option.

    An option goes by its own name where that is unique in the document, else by its dotted path. Lists are JSON.
    """
    paths: dict[tuple[str, ...], str] = {}
    _walk(data, (), paths)
    leaves: dict[str, int] = {}
    for path in paths:
        leaves[path[-1]] = leaves.get(path[-1], 0) + 1
    return {path[-1] if leaves[path[-1]] == 1 else ".".join(path): text for path, text in paths.items()}


def _walk(data: Any, path: tuple[str, ...], into: dict[tuple[str, ...], str]) -> None:
    if len(into) >= _MAX_FACTS or len(path) > _MAX_DEPTH:
        return
    if isinstance(data, dict):
        for key, value in data.items():
            _walk(value, (*path, str(key)[:_MAX_TEXT]), into)
    elif path:
        into[path] = data if isinstance(data, str) else json.dumps(data)[: _MAX_TEXT * 4]
