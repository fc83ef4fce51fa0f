"""The address at which an engine gives a few families instead of all of them.

vLLM mounts a second page behind the first that filters by sample name. It costs the engine a tenth of the full page.
"""

from __future__ import annotations

from urllib.parse import quote

from yarl import URL

from pdops.catalog.load import catalog
from pdops.catalog.names import fast_names
from pdops.catalog.types import Verified

FAST_ENGINES = frozenset({"vllm"})
MAX_URL_BYTES = 8_000
_SEEN: frozenset[Verified] = frozenset({"fixture", "run"})


def fast_url(url: str, engine: str | None) -> URL | None:
    """Return the address that asks for the fast names only, or None when there is none or it is no plain page.

    The slash before the question mark matters: without it vLLM ignores the filter.
    """
    if engine not in FAST_ENGINES or "?" in url:
        return None
    for names in (fast_names(engine), _seen_names(engine)):
        text = url.rstrip("/") + "/?" + "&".join("name[]=" + quote(name, safe=":_") for name in names)
        if names and len(text) <= MAX_URL_BYTES:
            return URL(text, encoded=True)
    return None


def _seen_names(engine: str) -> tuple[str, ...]:
    """Return the fast names that were seen on a real page."""
    seen = {
        spec.metric
        for signal in catalog().signals.values()
        for spec in signal.sources.get(engine, ())
        if spec.metric is not None and spec.verified in _SEEN
    }
    return tuple(n for n in fast_names(engine) if n in seen or n.rpartition("_")[0] in seen)
