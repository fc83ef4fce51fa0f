"""Settings that may change while the router runs: how pairs are chosen, limits, and what share is let in or salted.

A restart forgets them: what it is started with holds then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import random
from uuid import uuid4

from pdops.router.body import Prompted
from pdops.router.settings import POLICIES, RouterError, Settings

SHARES = ("admit_ratio", "salt_ratio")
LIMITS = ("queue_limit", "max_inflight_prefill", "max_inflight_decode")
MOST = 1_000_000
"""Of any limit: a number above it is a slip of the hand."""


def changed(settings: Settings, wanted: Mapping[str, object]) -> Settings:
    """Return settings with some of those that may change set anew.

    Raises:
        RouterError: one of them may not change, or cannot be that.
    """
    known = ("policy", *LIMITS, *SHARES)
    if not wanted:
        raise RouterError("nothing is to change", hint=f"give some of {', '.join(known)}")
    for name, value in wanted.items():
        if name not in known:
            raise RouterError(
                f"{name[:60]!r} cannot change while the router runs", hint=f"those that can are {', '.join(known)}"
            )
        if name == "policy":
            fits = value in POLICIES
            why = f"expected one of {', '.join(POLICIES)}"
        elif name in SHARES:
            fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
            why = "expected a share from 0 to 1"
        else:
            least = 0 if name == "queue_limit" else 1
            fits = isinstance(value, int) and not isinstance(value, bool) and least <= value <= MOST
            why = f"expected a whole number from {least} to {MOST}"
        if not fits:
            raise RouterError(f"{name} cannot be {str(value)[:60]!r}", why=why, hint="send a JSON object")
    return replace(settings, **wanted)  # type: ignore[arg-type]


def let_in(settings: Settings, dice: Callable[[], float] = random) -> bool:
    """Return whether a new request is let in."""
    return dice() < settings.admit_ratio


def salted(prompted: Prompted, settings: Settings, dice: Callable[[], float] = random) -> Prompted:
    """Return a request that hits no prefix another one left, for the share of them that is to be so.

    vLLM puts `cache_salt` into the hashes of a request's blocks, in its own cache and in a store's. A client's own salt
    keeps its part: what it set apart stays apart.
    """
    if dice() >= settings.salt_ratio:
        return prompted
    own = prompted.body.get("cache_salt")
    salt = f"{own}-{uuid4().hex}" if isinstance(own, str) and own else uuid4().hex
    return replace(prompted, body={**prompted.body, "cache_salt": salt})
