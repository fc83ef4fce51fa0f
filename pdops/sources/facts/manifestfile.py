"""Read the documents of Kubernetes YAML files: many in a file, lists taken apart, bounded in size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pdops.errors import UsageError

MAX_BYTES = 4 << 20
_MAX_NODES = 500_000
"""Values of a document with its aliases written out; 4 MiB of plain YAML stay below it, nested aliases do not."""
WHAT = "manifest cannot be used"
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class ManifestError(UsageError):
    """A manifest file cannot be read."""


def documents(path: Path) -> Iterator[Mapping[str, Any]]:
    """Yield the documents of a file.

    Raises:
        ManifestError: it cannot be read, is no YAML, or is larger than 4 MiB.
    """
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise ManifestError(WHAT, where=str(path), why=why, hint="check the path and its permissions") from error
    except UnicodeDecodeError as error:
        raise ManifestError(WHAT, where=str(path), why="it is not UTF-8 text", hint="save it as UTF-8") from error
    if len(raw) > MAX_BYTES:
        raise ManifestError(WHAT, where=str(path), why="it is larger than 4 MiB", hint="give the workloads only")
    try:
        for document in yaml.load_all(text, Loader=_LOADER):
            _bounded(document)
            yield from _items(document)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        hint = "templates must be rendered first (`helm template`)" if "{{" in text else "check this line"
        why = f"not YAML: {error.problem}"
        raise ManifestError(WHAT, where=f"{path}:{line}", why=why, hint=hint) from error
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        why = f"not YAML: {str(error).splitlines()[0] if str(error) else type(error).__name__}"
        raise ManifestError(WHAT, where=str(path), why=why, hint="check the file") from error


def _bounded(document: Any) -> None:
    """Refuse what aliases make endless: whoever walks or prints it would not come back."""
    left, todo = _MAX_NODES, [document]
    while todo:
        node = todo.pop()
        inner = [*node, *node.values()] if isinstance(node, dict) else node if isinstance(node, list | tuple) else ()
        left -= len(inner)
        if left < 0:
            raise ValueError("its aliases, written out, are too many values")
        todo += inner


def _items(document: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(document, dict):
        items = document.get("items")
        if str(document.get("kind", "")).endswith("List") and isinstance(items, list):
            for item in items:
                yield from _items(item)
        else:
            yield document
