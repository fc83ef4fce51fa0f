"""What the picture of panels is made of; drawing it needs a browser and is not tested."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.panels import render
from tests.real.stored import RECORDINGS


def test_every_panel_of_the_picture_is_in_a_shipped_dashboard() -> None:
    texts = [panel["description"] for panel in render.shipped()]
    for name in render.SHOWN:
        assert sum(f"`{name}`" in text for text in texts) == 1, name


@pytest.mark.parametrize(
    ("form", "labels", "shown"),
    [
        ("p50 {{cluster}}", {"cluster": "prod"}, "p50 prod"),
        ("{{src}} > {{ dst }}", {"src": "prefill-0", "dst": "decode-0"}, "prefill-0 > decode-0"),
        ("p50 {{worker}}", {}, "p50"),
    ],
)
def test_a_legend_is_filled_with_labels(form: str, labels: dict[str, str], shown: str) -> None:
    assert render.legend(form, labels) == shown


def test_a_value_that_is_not_finite_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    told = [{"metric": {"worker": "w"}, "values": [[1.0, "2.5"], [2.0, "NaN"], [3.0, "+Inf"]]}]
    monkeypatch.setattr(render, "answer", lambda *_: told)
    panel = {
        "title": "t",
        "targets": [{"expr": "x", "legendFormat": "{{worker}}"}],
        "fieldConfig": {"defaults": {"unit": "s"}},
        "options": {"legend": {}},
    }
    assert render.drawn(panel, "http://127.0.0.1:1", (1.0, 3.0))["series"] == [
        {"name": "w", "times": [1000.0, 2000.0, 3000.0], "values": [2.5, None, None]}
    ]


def test_the_make_target_draws_a_recording_that_is_there_into_the_picture_of_the_readme() -> None:
    root = render.ROOT
    found = re.search(r"render\.py (\S+) (\S+)", (root / "Makefile").read_text(encoding="utf-8"))
    assert found is not None
    assert (RECORDINGS / f"{found[1]}.pdrec").exists()
    assert f"({found[2]})" in (root / "README.md").read_text(encoding="utf-8")
    assert (root / found[2]).stat().st_size <= 300_000


def test_packages_are_locked_without_the_address_of_a_registry() -> None:
    lock = json.loads((Path(render.HERE) / "package-lock.json").read_text(encoding="utf-8"))
    wanted = json.loads((Path(render.HERE) / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, version in wanted.items():
        assert lock["packages"][f"node_modules/{name}"]["version"] == version
    packages = {where: entry for where, entry in lock["packages"].items() if where}
    assert all("integrity" in entry and "resolved" not in entry for entry in packages.values())
