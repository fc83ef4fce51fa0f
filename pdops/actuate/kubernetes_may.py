"""What the account may do, asked of the API server itself, so that a plan knows before anything is tried."""

from __future__ import annotations

from collections.abc import Iterable

from pdops.actuate.kubernetes_api import REVIEWS, Api, Object, Resource, Verb
from pdops.errors import PdopsError

KEEP_S = 60.0
"""An answer is used this long, in seconds: roles change seldom, and every action asks."""
Need = tuple[Verb, Resource, str]
"""A verb on a resource, and the name of one object of it; an empty name is any."""


class Rights:
    """Remembers for a while what the account may do.

    Args:
        api: who is asked.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._known: dict[Need, tuple[float, str | None]] = {}

    def missing(self, needs: Iterable[Need]) -> str | None:
        """Return which of the needs the account has not, or why that is not known; None when it has all."""
        found = [why for need in needs if (why := self._one(need)) is not None]
        return "; ".join(found) if found else None

    def _one(self, need: Need) -> str | None:
        now = self._api.clock.monotonic()
        known = self._known.get(need)
        if known is not None and now - known[0] < KEEP_S:
            return known[1]
        why = self._ask(need)
        self._known[need] = (now, why)
        return why

    def _ask(self, need: Need) -> str | None:
        verb, resource, name = need
        about: Object = {
            "namespace": self._api.namespace, "verb": verb, "group": resource.group, "resource": resource.plural,
            **({"subresource": resource.sub} if resource.sub else {}), **({"name": name} if name else {}),
        }  # fmt: skip
        body = {"apiVersion": REVIEWS.api, "kind": "SelfSubjectAccessReview", "spec": {"resourceAttributes": about}}
        what = f"{verb} {resource}" + (f" {name}" if name else "")
        try:
            status = self._api.call("create", REVIEWS, body=body).get("status") or {}
        except PdopsError as error:
            return f"whether the account may {what} is not known: {error}"
        return None if status.get("allowed") is True else f"the account may not {what}"
