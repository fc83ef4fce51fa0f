"""Times as text. Reading the clock is not done here."""

from __future__ import annotations

import datetime as dt

LAST_S = 253_402_300_799.0
"""The last second of the year 9999 in Unix seconds; nothing is later, and calendars end there."""


def rfc3339(at_s: float) -> str:
    """Format Unix seconds as RFC 3339 in UTC, to the second."""
    return dt.datetime.fromtimestamp(at_s, tz=dt.UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def parse_rfc3339(text: str) -> float:
    """Return Unix seconds for an RFC 3339 time; a time without a zone is UTC.

    Raises:
        ValueError: the text is not such a time.
    """
    moment = dt.datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    return moment.timestamp()
