"""Write the pinned requirement lists from pyproject.toml: every supported Python and platform, with hashes, no index."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

HERE = Path(__file__).parent
LISTS = {"run.txt": ("tui",), "dev.txt": ("tui", "test")}


def main() -> None:
    """Compile both lists with uv, together with what builds an editable install."""
    build = HERE / "build.in"
    uv = Path(sysconfig.get_path("scripts")) / "uv"
    for name, extras in LISTS.items():
        command = [
            str(uv), "pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--generate-hashes",
            "--no-emit-index-url", "--no-emit-find-links", "--no-annotate", "--no-header",
            *(part for extra in extras for part in ("--extra", extra)),
            "pyproject.toml", str(build), "-o", str(HERE / name),
        ]  # fmt: skip
        subprocess.run(command, check=True, cwd=HERE.parent)  # noqa: S603  a fixed command with our own arguments
        sys.stdout.write(f"wrote requirements/{name}\n")


if __name__ == "__main__":
    main()
