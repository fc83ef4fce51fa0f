"""Run `ip`, `tc` and `nft` without a shell, bounded in time, and read their JSON."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from pdops.errors import DeploymentError

_TOOLS = {"ip": "iproute2", "tc": "iproute2", "nft": "nftables"}
_CAPABILITIES = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN"}
"""Links and packet filters need the first; named namespaces are mounts and need the second."""
_TIMEOUT_S = 20.0


def available() -> tuple[bool, str]:
    """Return whether namespaces, links and faults can be made here, and what is missing if not."""
    missing = []
    if tools := tools_missing():
        packages = sorted({_TOOLS[tool] for tool in tools})
        missing.append(f"not installed: {', '.join(tools)} (Debian packages: {', '.join(packages)})")
    if rights := _rights_missing():
        missing.append(f"not allowed: {', '.join(rights)} (root has both, most containers have none)")
    return not missing, "; ".join(missing)


def tools_missing() -> list[str]:
    """Return the programs that are not installed."""
    return [tool for tool in _TOOLS if shutil.which(tool) is None]


def run(command: Sequence[str], *, check: bool = True) -> str:
    """Run a command and return what it printed.

    Args:
        command: program and arguments.
        check: False takes any failure for an empty answer.

    Raises:
        DeploymentError: it cannot be run, failed, or did not end in time.
    """
    where = " ".join(command)
    try:
        # Commands are built from names that were checked, never from text of others.
        done = subprocess.run(list(command), capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, input="")
    except subprocess.TimeoutExpired:
        why = f"within {_TIMEOUT_S:.0f} s"
        raise DeploymentError(f"{command[0]} did not end", where=where, why=why, hint="run it by hand") from None
    except OSError as error:
        why, hint = error.strerror or str(error), "install the packages iproute2 and nftables"
        raise DeploymentError(f"cannot run {command[0]}", where=where, why=why, hint=hint) from error
    if done.returncode:
        if not check:
            return ""
        why = done.stderr.strip() or f"exit status {done.returncode}"
        hint = "run it by hand to see more; `pdops down` removes what was made"
        raise DeploymentError(f"{command[0]} failed", where=where, why=why, hint=hint)
    return done.stdout


def run_all(commands: Iterable[Sequence[str]], *, check: bool = True) -> None:
    """Run commands in turn.

    Raises:
        DeploymentError: one failed; those after it were not run.
    """
    for command in commands:
        run(command, check=check)


def query(command: Sequence[str], *, check: bool = True) -> list[dict[str, Any]]:
    """Run a command that answers with a list as JSON, and return its entries.

    Raises:
        DeploymentError: it failed.
    """
    text = run(command, check=check)
    return [entry for entry in json.loads(text) if entry] if text.strip() else []


def namespaces() -> list[str]:
    """Return the names of all network namespaces."""
    return [entry["name"] for entry in query(["ip", "-j", "netns", "list"])]


def destinations() -> list[str]:
    """Return where the IPv4 routes of the host lead to, the default route left out."""
    return [entry["dst"] for entry in query(["ip", "-4", "-j", "route", "show"]) if entry["dst"] != "default"]


def dropped(command: Sequence[str]) -> int:
    """Return the packets counted in an nftables table that is listed as JSON; 0 without the table."""
    text = run(command, check=False)
    found = 0
    for entry in json.loads(text).get("nftables", []) if text.strip() else []:
        for part in entry.get("rule", {}).get("expr", []):
            found += int(part.get("counter", {}).get("packets", 0)) if isinstance(part, dict) else 0
    return found


def _rights_missing() -> list[str]:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            have = int(line.split()[1], 16)
            return [name for bit, name in _CAPABILITIES.items() if not have >> bit & 1]
    return list(_CAPABILITIES.values())
