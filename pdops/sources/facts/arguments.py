"""Read a command line as an engine does: options by their own name with underscores, JSON options flattened.

Names and short forms are those of vLLM 0.32 (`vllm serve --help=all`), SGLang (`--help` of launch_server) and gflags.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

SHORT = {
    "-tp": "tensor_parallel_size",
    "-pp": "pipeline_parallel_size",
    "-dp": "data_parallel_size",
    "-dcp": "decode_context_parallel_size",
    "-pcp": "prefill_context_parallel_size",
    "-ep": "enable_expert_parallel",
    "-q": "quantization",
    "-sc": "speculative_config",
    "-ac": "attention_config",
    "-cc": "compilation_config",
}
JSON_OPTIONS = (
    "kv_transfer_config",
    "kv_events_config",
    "speculative_config",
    "attention_config",
    "compilation_config",
)
_OWN_NAMES = frozenset({"kv_transfer_config", "kv_events_config", "attention_config"})
"""Documents whose entries are known by their own names; in others an entry may share its name with an option."""
_FLAGS_OFF = "no_"
_SAME = {
    "tp_size": "tensor_parallel_size",
    "pp_size": "pipeline_parallel_size",
    "dp_size": "data_parallel_size",
    "tp": "tensor_parallel_size",
}
_EXPANDED = ("$", "`")
_SHELLS = frozenset({"sh", "bash", "dash", "ash"})
_ENDS = ";&|\n"
_MODULES = ("vllm.entrypoints.openai", "vllm.entrypoints.launchers", "sglang.launch_server", "dynamo.vllm")


@dataclass(slots=True)
class Arguments:
    """Options as text, and what could not be made sense of: key to reason."""

    options: dict[str, str] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)


def parse(argv: Sequence[str], *, positional_model: bool = True) -> Arguments:
    """Return the options of a command line; values with shell or template variables are not readable."""
    out = Arguments()
    documents: dict[str, dict[str, Any]] = {}
    words = list(argv)
    at = _start(words)
    if positional_model and at and words[at - 1] == "serve" and at < len(words) and not words[at].startswith("-"):
        _take(out, documents, "model", words[at])
        at += 1
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word in ("-", "--"):
            continue
        name, equals, value = word.partition("=")
        key = SHORT.get(name) or name.lstrip("-").replace("-", "_")
        if "." in name:
            head, _, rest = name.lstrip("-").partition(".")
            key = f"{head.replace('-', '_')}.{rest}"
        if equals:
            _take(out, documents, key, value)
        elif at < len(words) and not _is_option(words[at]):
            values = [words[at]]
            at += 1
            while at < len(words) and not _is_option(words[at]):
                values.append(words[at])
                at += 1
            _take(out, documents, key, values[0] if len(values) == 1 else json.dumps(values))
        elif key.startswith(_FLAGS_OFF):
            out.options[key.removeprefix(_FLAGS_OFF)] = "false"
        else:
            out.options[key] = "true"
    for key, document in documents.items():
        out.options[key] = _text(document)
        out.options.update(flatten_document(key, document))
    for short, full in _SAME.items():
        if short in out.options:
            out.options.setdefault(full, out.options[short])
    return out


def of_shell(command: Iterable[str]) -> list[str]:
    """Return the engine's command line of a container that starts through a shell, else the words as they are.

    The last simple command that looks like an engine's is taken; the shell is not evaluated.
    """
    words = list(command)
    if len(words) < 2 or words[0].rpartition("/")[2] not in _SHELLS:
        return words
    # `bash -c SCRIPT`, `bash -lc SCRIPT`, `bash -x -c SCRIPT`: the script is the last of them that has a blank.
    script = max((w for w in words[1:] if not w.startswith("-")), key=len, default="")
    found = [line for line in _commands(script) if is_engine(line)]
    return found[-1] if found else words


def is_engine(words: Sequence[str]) -> bool:
    """Whether a command line starts an inference engine."""
    names = [word.rpartition("/")[2] for word in words[:32]]
    if any(a == "vllm" and b == "serve" for a, b in pairwise(names)):
        return True
    return any(name.startswith(_MODULES) for name in names)


def flatten_document(name: str, document: Mapping[str, Any]) -> dict[str, str]:
    """Return the entries of a JSON option as options.

    Entries of a KV connector go by their own name, those of its extra configuration too. Under MultiConnector the names
    of the children are `kv_connector_children`, a JSON list; the entries of a NIXL child stand for the whole, those of
    other children are prefixed with the child's name.
    """
    if name != "kv_transfer_config":
        prefix = "" if name in _OWN_NAMES else f"{name}."
        return {f"{prefix}{key}": _text(value) for key, value in document.items()}
    flat: dict[str, str] = {}
    for key, value in document.items():
        if key == "kv_connector_extra_config":
            extra = value if isinstance(value, dict) else {}
            children = extra.get("connectors")
            flat |= {k: _text(v) for k, v in extra.items() if k != "connectors"}
            if isinstance(children, list):
                flat |= _children([child for child in children if isinstance(child, dict)])
        else:
            flat[key] = _text(value)
    return flat


def _children(children: list[dict[str, Any]]) -> dict[str, str]:
    names = [str(child.get("kv_connector", "?")) for child in children]
    flat = {"kv_connector_children": json.dumps(names)}
    for name, child in zip(names, children, strict=True):
        entries = {k: _text(v) for k, v in child.items() if k not in ("kv_connector", "kv_connector_extra_config")}
        extra = child.get("kv_connector_extra_config")
        entries |= {k: _text(v) for k, v in extra.items()} if isinstance(extra, dict) else {}
        nixl = name.startswith("Nixl")
        flat |= {k if nixl and k != "kv_role" else f"{name}.{k}": v for k, v in entries.items()}
    return flat


def _take(out: Arguments, documents: dict[str, dict[str, Any]], key: str, value: str) -> None:
    head, dot, rest = key.partition(".")
    if any(mark in value for mark in _EXPANDED) and not value.lstrip().startswith("{"):
        out.unread[head] = f"set from a variable ({value[:80]}) that is not known here"
        return
    if dot and head in JSON_OPTIONS:
        _nest(documents.setdefault(head, {}), rest.split("."), _scalar(value))
    elif head in JSON_OPTIONS and value.strip().startswith("{"):
        _document(out, documents, head, value)
    else:
        out.options[key] = value


def _document(out: Arguments, documents: dict[str, dict[str, Any]], key: str, value: str) -> None:
    try:
        data = json.loads(value)
    except (ValueError, RecursionError) as error:
        out.unread[key] = f"not JSON: {error}"[:200]
        return
    given = {k: v for k, v in data.items() if not (isinstance(v, str) and any(m in v for m in _EXPANDED))}
    for name in data.keys() - given.keys():
        out.unread[name] = f"set from a variable ({str(data[name])[:80]}) that is not known here"
    documents.setdefault(key, {}).update(given)


def _nest(document: dict[str, Any], path: list[str], value: Any) -> None:
    for step in path[:-1]:
        below = document.setdefault(step, {})
        if not isinstance(below, dict):
            return
        document = below
    document[path[-1]] = value


def _scalar(value: str) -> Any:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _start(words: list[str]) -> int:
    """Return where the options begin: after `serve` or the engine's module, whatever starts it; else after the program."""
    for index, (first, second) in enumerate(pairwise(words)):
        if first == "-m" and second.startswith(_MODULES):
            return index + 2
        if first.rpartition("/")[2] == "vllm" and second == "serve":
            return index + 2
    if "-m" in words[:4]:
        return min(words.index("-m") + 2, len(words))
    return 1 if words and not words[0].startswith("-") else 0


def _is_option(word: str) -> bool:
    if not word.startswith("-") or len(word) < 2:
        return False
    return not word[1:].replace(".", "", 1).isdigit()


def _commands(script: str) -> list[list[str]]:
    """Split a script into simple commands; quotes may span lines. Nothing when it cannot be split."""
    lines = [line for line in script.replace("\\\n", " ").split("\n") if not line.lstrip().startswith("#")]
    lexer = shlex.shlex("\n".join(lines), posix=True, punctuation_chars=_ENDS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set(_ENDS):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:
        return []
    return [command for command in found if command]
