"""The dashboards as data and as JSON."""

from __future__ import annotations

import json

import pytest

from pdops.cli.dashboards import shipped
from pdops.grafana.dashboards.build import DASHBOARDS, TAG, files, place_of
from pdops.grafana.dashboards.panel import Dashboard, Panel
from pdops.grafana.promlint import known, lint

PANELS = [panel for dashboard in DASHBOARDS for panel in dashboard.panels]


def test_there_are_six_with_fifty_panels_or_more() -> None:
    assert [d.name for d in DASHBOARDS] == ["overview", "prefill", "decode", "kv-transfer", "capacity", "diagnosis"]
    assert len(PANELS) >= 50


def test_panel_ids_are_unique() -> None:
    ids = [p.id for p in PANELS]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", [d.name for d in DASHBOARDS])
def test_shipped_files_are_what_would_be_built(name: str) -> None:
    path = shipped() / f"{name}.json"
    assert path.read_text(encoding="utf-8") == files()[path.name], "run `pdops dashboards build`"


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.id)
def test_queries_read_well(panel: Panel) -> None:
    names = known()
    assert [said for q in panel.queries for said in lint(q.expr, names, fixed_windows=False)] == []


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.id)
def test_every_panel_says_what_to_do_when_it_is_bad(panel: Panel) -> None:
    assert len(panel.bad) > 20
    assert panel.bad.endswith(".")
    assert panel.needs is None or len(panel.needs) > 10


@pytest.mark.parametrize("panel", PANELS, ids=lambda p: p.id)
def test_every_panel_follows_the_dashboards_variables(panel: Panel) -> None:
    for query in panel.queries:
        assert "$cluster" in query.expr or "pdops_gpu_" in query.expr or "pdops_exporter_collect" in query.expr


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.name)
def test_json_is_provisionable(dashboard: Dashboard) -> None:
    document = json.loads(files()[f"{dashboard.name}.json"])
    assert document["uid"] == dashboard.uid
    assert TAG in document["tags"]
    assert document.get("id") is None
    assert {v["name"] for v in document["templating"]["list"]} == {"datasource", "cluster", "model", "pool", "worker"}
    panels = [p for p in document["panels"] if p["type"] != "row"]
    assert [p["title"] for p in panels] == [p.title for p in dashboard.panels]
    assert len({p["id"] for p in document["panels"] if p.get("id")}) == len(panels)
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"].startswith("When it is bad:")


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda d: d.name)
def test_panels_do_not_overlap(dashboard: Dashboard) -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(files()[f"{dashboard.name}.json"])["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + i, place["y"] + j) for i in range(place["w"]) for j in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_a_panels_place_is_its_number_on_its_dashboard() -> None:
    uid, number = place_of("prefill/queue-by-reason")
    document = json.loads(files()["prefill.json"])
    assert uid == document["uid"]
    (found,) = [p for p in document["panels"] if p.get("id") == number and p["type"] != "row"]
    assert found["title"] == "Requests that wait, by reason"
    with pytest.raises(KeyError):
        place_of("nothing/here")


def test_what_only_a_pd_cluster_needs_is_there() -> None:
    ids = {p.id for p in PANELS}
    assert {
        "kv-transfer/matrix",
        "overview/ttft-budget",
        "decode/fetch-stages",
        "decode/local-prefill-share",
        "diagnosis/cold-start",
        "diagnosis/findings",
    } <= ids
