"""Pages of our own components: whole, or not at all."""

from __future__ import annotations

import pytest

from pdops.reference import pages
from tests.actuate.api_doubles import ApiDouble, serving


def test_a_page_that_is_too_large_is_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from its beginning, three requests of five would be in the engine."""
    double = ApiDouble()
    double.answers["GET /metrics"] = (200, "running 3\n" * 2)
    with serving(double):
        monkeypatch.setattr(pages, "_LIMIT", 20)
        assert pages.total(pages.get(f"{double.url}/metrics"), "running") == 6.0
        monkeypatch.setattr(pages, "_LIMIT", 19)
        with pytest.raises(OSError, match="more than"):
            pages.get(f"{double.url}/metrics")
