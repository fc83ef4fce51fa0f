"""Turn dashboards as data into Grafana's classic JSON (schema of Grafana 10.4 and later)."""

from __future__ import annotations

import json
import warnings
from typing import Any

from pdops.errors import UsageError
from pdops.grafana.dashboards import capacity, diagnosis, overview, pools, transfer
from pdops.grafana.dashboards.panel import Dashboard, Panel

DASHBOARDS: tuple[Dashboard, ...] = (
    overview.DASHBOARD,
    pools.PREFILL_DASHBOARD,
    pools.DECODE_DASHBOARD,
    transfer.DASHBOARD,
    capacity.DASHBOARD,
    diagnosis.DASHBOARD,
)
TAG = "pdops"
"""Every dashboard of ours carries it; what does not is not touched."""
SOURCE = "${datasource}"
_COLUMNS = 24
_ANNOTATIONS = (
    ("Alerts", 'ALERTS{alertname=~"PD.*",alertstate="firing"}', "{{alertname}} {{worker}}", "red"),
    (
        "Findings",
        'max by (cause, scope) (pdops_finding{cluster=~"$cluster",model=~"$model"}) > 0.5',
        "{{cause}} {{scope}}",
        "orange",
    ),
    (
        "Restarts",
        'changes(pdops_process_start_seconds{cluster=~"$cluster",model=~"$model"}[$__rate_interval]) > 0',
        "restart {{worker}}",
        "blue",
    ),
)
"""Name, query, what is shown, colour."""


def files() -> dict[str, str]:
    """Return the JSON of every dashboard by file name.

    Raises:
        UsageError: grafana-foundation-sdk is not installed.
    """
    return {f"{dashboard.name}.json": encode(dashboard) for dashboard in DASHBOARDS}


def place_of(panel_id: str) -> tuple[str, int]:
    """Return the uid of the dashboard a panel stands on, and its number there.

    Raises:
        KeyError: there is no such panel.
    """
    for dashboard in DASHBOARDS:
        for number, panel in enumerate(dashboard.panels, start=1):
            if panel.id == panel_id:
                return dashboard.uid, number
    raise KeyError(panel_id)


def encode(dashboard: Dashboard) -> str:
    """Return a dashboard as JSON text, the same bytes for the same data.

    Raises:
        UsageError: grafana-foundation-sdk is not installed.
    """
    try:
        from grafana_foundation_sdk.builders import dashboard as make
        from grafana_foundation_sdk.cog.encoder import JSONEncoder
        from grafana_foundation_sdk.models import dashboard as model
    except ImportError as error:
        raise UsageError(
            "dashboards cannot be built",
            why="grafana-foundation-sdk is not installed",
            hint="pip install 'pdops[grafana]'",
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        built = make.Dashboard(dashboard.title)
    built = (
        built.uid(dashboard.uid)
        .description(dashboard.description)
        .tags([TAG])
        .readonly()
        .timezone("browser")
        .refresh("10s")
        .time("now-30m", "now")
        .tooltip(model.DashboardCursorSync.CROSSHAIR)
    )
    for variable in _variables():
        built = built.with_variable(variable)
    for annotation in _annotations():
        built = built.annotation(annotation)
    link = make.DashboardLink("pdops").type(model.DashboardLinkType.DASHBOARDS).tags([TAG])
    built = built.link(link.as_dropdown(True).keep_time(True).include_vars(True))
    number, y = 1, 0
    for row in dashboard.rows:
        built = built.with_row(make.Row(row.title).grid_pos(model.GridPos(h=1, w=_COLUMNS, x=0, y=y)))
        x, y, tall = 0, y + 1, 0
        for panel in row.panels:
            if x + panel.width > _COLUMNS:
                x, y, tall = 0, y + tall, 0
            place = model.GridPos(h=panel.height, w=panel.width, x=x, y=y)
            built = built.with_panel(_panel(panel).id(number).grid_pos(place))
            x, tall, number = x + panel.width, max(tall, panel.height), number + 1
        y += tall
    with warnings.catch_warnings():
        # The newer schema needs Grafana 12; classic JSON loads from 10.4 on.
        warnings.simplefilter("ignore", DeprecationWarning)
        document = json.loads(JSONEncoder().encode(built.build()))
    # The SDK has no field for what an annotation shows.
    for annotation, (_, _, title, _) in zip(document["annotations"]["list"], _ANNOTATIONS, strict=True):
        annotation["titleFormat"] = title
    return json.dumps(document, sort_keys=True, indent=1) + "\n"


def _variables() -> list[Any]:
    from grafana_foundation_sdk.builders import dashboard as make
    from grafana_foundation_sdk.models import dashboard as model

    source = model.DataSourceRef(type_val="prometheus", uid=SOURCE)
    found: list[Any] = [make.DatasourceVariable("datasource").label("Data source").type("prometheus")]
    asked = {
        "cluster": "label_values(pdops_worker_up, cluster)",
        "model": 'label_values(pdops_worker_up{cluster=~"$cluster"}, model)',
        "pool": 'label_values(pdops_worker_up{cluster=~"$cluster",model=~"$model"}, pool)',
        "worker": 'label_values(pdops_worker_up{cluster=~"$cluster",model=~"$model",pool=~"$pool"}, worker)',
    }
    for name, query in asked.items():
        found.append(
            make.QueryVariable(name)
            .label(name.capitalize())
            .datasource(source)
            .query(query)
            .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
            .sort(model.VariableSort.ALPHABETICAL_ASC)
            .multi(True)
            .include_all(True)
            .all_value(".*")
            .current(model.VariableOption(text="All", value="$__all", selected=True))
        )
    return found


def _annotations() -> list[Any]:
    from grafana_foundation_sdk.builders import dashboard as make
    from grafana_foundation_sdk.models import dashboard as model

    source = model.DataSourceRef(type_val="prometheus", uid=SOURCE)
    return [
        make.AnnotationQuery().name(name).datasource(source).enable(True).icon_color(colour).expr(expr)
        for name, expr, _, colour in _ANNOTATIONS
    ]


def _panel(panel: Panel) -> Any:
    from grafana_foundation_sdk.builders import common, heatmap, prometheus, stat, statetimeline, table, timeseries
    from grafana_foundation_sdk.builders import dashboard as make
    from grafana_foundation_sdk.models import common as kinds
    from grafana_foundation_sdk.models import dashboard as model
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

    if panel.kind == "table":
        built: Any = table.Panel()
    elif panel.kind == "stat":
        built = stat.Panel().text_mode(kinds.BigValueTextMode.NAME)
    elif panel.kind == "heat":
        built = heatmap.Panel().calculate(False)
    elif panel.kind == "states":
        built = statetimeline.Panel().show_value(kinds.VisibilityMode.AUTO)
    else:
        legend = common.VizLegendOptions().display_mode(kinds.LegendDisplayMode.LIST)
        built = (
            timeseries.Panel().line_width(1).legend(legend.placement(kinds.LegendPlacement.BOTTOM).show_legend(True))
        )
        built = built.fill_opacity(60 if panel.kind == "stack" else 5).show_points(kinds.VisibilityMode.NEVER)
        # A gap is a gap: nothing is drawn over what was not measured.
        built = built.span_nulls(False)
        if panel.kind == "stack":
            built = built.stacking(common.StackingConfig().mode(kinds.StackingMode.NORMAL))
    source = model.DataSourceRef(type_val="prometheus", uid=SOURCE)
    built = built.title(panel.title).description(_description(panel)).unit(panel.unit).datasource(source)
    if panel.kind not in ("table", "heat"):
        built = built.min(0.0)
    if panel.max is not None:
        built = built.max(panel.max)
    if panel.steps:
        first, *rest = panel.steps
        steps = [model.Threshold(value=None, color=first[1]), *(model.Threshold(value=v, color=c) for v, c in rest)]
        built = built.thresholds(make.ThresholdsConfig().mode(model.ThresholdsMode.ABSOLUTE).steps(steps))
    for letter, query in zip("ABCDEFGHIJ", panel.queries, strict=False):
        asked = prometheus.Dataquery().expr(query.expr).ref_id(letter).datasource(source)
        asked = asked.legend_format(query.legend or "__auto")
        if query.instant:
            asked = asked.instant().format(PromQueryFormat.TABLE)
        elif panel.kind == "heat":
            asked = asked.format(PromQueryFormat.HEATMAP)
        built = built.with_target(asked)
    if panel.id == "kv-transfer/matrix":
        matrix = {"columnField": "dst", "rowField": "src", "valueField": "Value", "emptyValue": "null"}
        built = built.with_transformation(model.DataTransformerConfig(id_val="groupingToMatrix", options=matrix))
    elif panel.kind == "table":
        hidden = {"excludeByName": {"Time": True}}
        built = built.with_transformation(model.DataTransformerConfig(id_val="organize", options=hidden))
    return built


def _description(panel: Panel) -> str:
    needs = f"\n\nWithout data: {panel.needs}." if panel.needs else ""
    return f"When it is bad: {panel.bad}\n\n`{panel.id}`{needs}"
