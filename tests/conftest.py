"""What every test may use."""

from __future__ import annotations

import collections
import gzip
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# Whoever starts this in the background has it ignore these; what tests start would inherit that, and never end by them.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, signal.default_int_handler if _number is signal.SIGINT else signal.SIG_DFL)

TESTS = Path(__file__).resolve().parent
FIXTURES = TESTS.parent / "fixtures"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Refuse a test on real components outside the folder that `make test-real` reads: nobody would run it.

    Files that are shared out to several processes begin with those that take longest.
    """
    astray = [i.nodeid for i in items if i.get_closest_marker("real") and TESTS / "real" not in i.path.parents]
    if astray:
        raise pytest.UsageError(f"tests on real components belong into tests/real: {', '.join(astray[:5])}")
    if hasattr(config, "workerinput"):
        many = collections.Counter(i.path for i in items)
        items.sort(key=lambda i: (i.get_closest_marker("first") is None, -many[i.path], str(i.path)))


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of recorded and written cluster states."""
    return FIXTURES


@pytest.fixture(scope="session")
def page() -> Callable[[str], bytes]:
    """Read a recorded page by `SET/NAME`, packed or not."""

    def read(name: str) -> bytes:
        path = FIXTURES / "expositions" / name
        packed = path.with_name(path.name + ".gz")
        return gzip.decompress(packed.read_bytes()) if packed.exists() else path.read_bytes()

    return read


@pytest.fixture(scope="session")
def pages(page: Callable[[str], bytes]) -> dict[str, bytes]:
    """Every recorded page of an engine that answered, by `SET/NAME`."""
    root = FIXTURES / "expositions"
    names = sorted(str(p.relative_to(root)).removesuffix(".gz") for p in root.glob("*/*.prom*"))
    found = {name: page(name) for name in names}
    return {name: body for name, body in found.items() if not body.startswith(b"# scrape failed")}
