"""Lay the engine plugin where an engine finds it: one file and its entry point, and nothing else of pdops."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pdops import __version__
from pdops.errors import DeploymentError

CONNECTOR = "NixlPdopsConnector"
MODULE = "pdops_vllm_plugin"
"""The module's name in an engine, whose environment has no pdops."""
_SOURCE = "pdops_exporters"
_FILE = "vllm_plugin.py"


def install(folder: Path) -> Path:
    """Write the plugin into a folder, which goes on an engine's PYTHONPATH, and return the folder.

    Engines find entry points in any `*.dist-info` on their path, so nothing is installed into their environment.

    Raises:
        DeploymentError: the plugin is not part of this installation, or the folder cannot be written.
    """
    spec = importlib.util.find_spec(_SOURCE)
    sources = [Path(p) / _FILE for p in (spec.submodule_search_locations or ())] if spec is not None else []
    source = next((p for p in sources if p.is_file()), None)
    if source is None:
        raise DeploymentError("the engine plugin is not there", where=_SOURCE, hint="install pdops again")
    info = folder / f"{MODULE}-{__version__}.dist-info"
    try:
        info.mkdir(parents=True, exist_ok=True)
        (folder / f"{MODULE}.py").write_bytes(source.read_bytes())
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: {__version__}\n")
        (info / "entry_points.txt").write_text(f"[vllm.general_plugins]\npdops = {MODULE}:register\n")
    except OSError as error:
        raise DeploymentError(
            "the engine plugin cannot be written",
            where=str(folder),
            why=error.strerror or str(error),
            hint="choose another --state-dir, or start with --no-plugin",
        ) from error
    return folder
