"""YAML as people read it: keys in the order given, scripts as blocks, a line that says where the file came from."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

HEADER = (
    "# Rendered by `pdops up --render`; render it again rather than edit it, or keep changes in a file of your own.\n"
)


class _Dumper(yaml.SafeDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002
        return True


def _string(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _string)


def document(content: Any, note: str = "") -> str:
    """Return one YAML document; `note` is put before it as a comment."""
    return documents([content], note)


def documents(contents: Iterable[Any], note: str = "") -> str:
    """Return several YAML documents in one file."""
    dumped = (yaml.dump(c, Dumper=_Dumper, sort_keys=False, width=110, allow_unicode=True) for c in contents)
    comment = "".join(f"# {line}\n" for line in note.splitlines())
    return HEADER + comment + "---\n".join(dumped)
