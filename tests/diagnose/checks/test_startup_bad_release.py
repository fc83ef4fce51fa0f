"""startup/bad-release: entries of the list of bad releases, while there is a symptom to explain."""

from __future__ import annotations

import pytest

from pdops.model.report import Verdict
from tests.diagnose.build import Given, ask, but, causes, golden, one, sound, view

ID = "startup/bad-release"
SLOW: Given = {"client": {"request_timeouts": (0, 9)}}


def facts(nixl: str = "1.3.0", backends: str = '["LIBFABRIC"]') -> dict[str, dict[str, str]]:
    both = {"kv_connector": "NixlConnector", "nixl_version": nixl, "backends": backends}
    return {"prefill-0": both, "decode-0": both}


def test_an_entry_that_fits_is_named_with_its_cure() -> None:
    found = ask(ID, view(series=but(sound(), SLOW), facts=facts()))
    assert "transport-error" in causes(found)
    assert all(f.cap < 0.5 for f in found)
    assert any("descriptors" in step for f in found for step in f.next)


def test_without_a_symptom_it_is_silent() -> None:
    assert ask(ID, view(series=sound(), facts=facts())) == ()


@pytest.mark.parametrize("given", [facts(nixl="1.5.1"), {"prefill-0": {}, "decode-0": {}}])
def test_other_releases_and_unread_ones_are_not_named(given: dict[str, dict[str, str]]) -> None:
    assert ask(ID, view(series=but(sound(), SLOW), facts=given)) == ()


def test_an_entry_of_another_backend_does_not_fit() -> None:
    libfabric = "transfers with few descriptors"
    seen = view(series=but(sound(), SLOW), facts=facts(backends='["UCX"]'))
    assert not any(libfabric in step for f in ask(ID, seen) for step in f.next)


def test_report() -> None:
    report = golden(ID, view(series=but(sound(), SLOW), facts=facts()))
    assert report.verdict is Verdict.UNKNOWN
    assert report.top is not None
    assert report.top.check == ID
    assert one(ask(ID, view(series=but(sound(), SLOW), facts=facts(nixl="0.10.0"))), cause="transport-config")
