"""Run programs of the system by argument list: bounded in time and output, without a shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from pdops.errors import ActionError
from pdops.sources.redact import clean, redact

LOOK_S, CHANGE_S = 10.0, 300.0
"""How long a question and a change may take, in seconds; an engine that stops may finish its requests first."""
_SAID = 400


def missing(program: str) -> str | None:
    """Return why a program cannot be run, or None."""
    return None if shutil.which(program) is not None else f"{program} is not installed here"


def run(command: Sequence[str], timeout_s: float) -> str:
    """Return what a program wrote to standard output.

    Raises:
        ActionError: it is not there, takes too long, or ends with a status other than 0.
    """
    program = command[0]
    try:
        done = subprocess.run(
            list(command), stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False, text=True,
            errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise ActionError(
            f"{program} did not end",
            where=" ".join(command),
            why=f"not within {timeout_s:.0f} s",
            hint="look at it by hand",
        ) from error
    except OSError as error:
        raise ActionError(
            f"{program} cannot be run", where=program, why=error.strerror or str(error), hint="install it, or fix PATH"
        ) from error
    if done.returncode != 0:
        said = clean(redact(" ".join(done.stderr.split())))[:_SAID] or f"status {done.returncode}"
        raise ActionError(f"{program} failed", where=" ".join(command), why=said, hint="run it by hand to see more")
    return done.stdout
