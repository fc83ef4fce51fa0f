"""Every error of ours says what to do next: read from the sources, so that no path has to be walked."""

from __future__ import annotations

import ast
from pathlib import Path

import pdops.errors

ROOT = Path(__file__).parents[2]
TREES = {
    path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8"))
    for room in ("pdops", "exporters", "tui", "runbooks")
    for path in sorted((ROOT / room).rglob("*.py"))
}


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _errors() -> set[str]:
    """Names of our errors; one with an initializer of its own gives its own hint."""
    ours = {name for name, kind in vars(pdops.errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    kinds = [node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    size = 0
    while size != len(ours):
        size = len(ours)
        ours |= {kind.name for kind in kinds if any(_name(base) in ours for base in kind.bases)}
    own = {k.name for k in kinds if any(isinstance(x, ast.FunctionDef) and x.name == "__init__" for x in k.body)}
    return ours - (own - {"PdopsError"})


def test_the_errors_are_found() -> None:
    assert {"UsageError", "DeploymentError", "RouterError", "ManifestError"} <= _errors()


def test_an_error_says_what_to_do_next() -> None:
    ours = _errors()
    silent = [
        f"{path}:{node.lineno}: {ast.unparse(node)[:100]}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ours
        if not any(word.arg == "hint" and getattr(word.value, "value", None) != "" for word in node.keywords)
    ]
    assert not silent, silent
