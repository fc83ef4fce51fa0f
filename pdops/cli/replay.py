"""`pdops replay`: a recording as text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pdops.cli.style import Number
from pdops.errors import UsageError

if TYPE_CHECKING:
    from pdops.model.frame import Event, Frame, LogLine
    from pdops.model.report import Report
    from pdops.model.series import Reading
    from pdops.model.view import View


@click.command(
    "replay",
    epilog="Examples:\n\n\b\n  pdops replay incident.pdrec\n  pdops replay incident.pdrec --every 1 --from 90 --to 130\n"
    "  pdops replay incident.pdrec --json | jq 'select(.kind==\"event\")'",
)
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@click.option(
    "--every",
    "every_s",
    type=Number(min=0.1),
    default=5.0,
    show_default=True,
    metavar="S",
    help="Seconds between printed frames.",
)
@click.option(
    "--from",
    "from_s",
    type=Number(min=0),
    default=0.0,
    metavar="S",
    help="Start printing here, seconds from the start.",
)
@click.option("--to", "to_s", type=Number(min=0), metavar="S", help="Stop here, seconds from the start.")
@click.option("--no-diagnosis", is_flag=True, help="Print frames and events only.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(file: Path, every_s: float, from_s: float, to_s: float | None, no_diagnosis: bool, as_json: bool) -> int:
    """Play a recording back without a screen: pool lines, events, log lines and changes of the verdict."""
    from pdops.cli.inputs import open_played
    from pdops.cli.style import warn
    from pdops.diagnose.engine import diagnose
    from pdops.history.ring import Ring

    played = open_played(file)
    record = played.record
    length_s = played.end_s - played.start_s
    if from_s > length_s:
        raise UsageError(
            "--from lies behind the end of the recording",
            where=f"{from_s:g} s",
            why=f"it runs {length_s:.0f} s",
            hint="give less than its length",
        )
    if to_s is not None and to_s < from_s:
        raise UsageError(
            "--to lies before --from", where=f"{to_s:g} s and {from_s:g} s", hint="give the later moment as --to"
        )
    ring = Ring(record.cluster, interval_s=record.interval_s)
    show = _json_line if as_json else _text_line
    next_s = played.start_s + from_s
    said: tuple[str, str] | None = None
    for frame in record.iter_frames():
        offset = frame.at_s - played.start_s
        if to_s is not None and offset > to_s:
            break
        ring.add(frame)
        if offset < from_s:
            continue
        for happened in _happened(frame, played.start_s):
            click.echo(show(happened))
        if frame.at_s < next_s:
            continue
        # On a grid of its own, as the distance of frames would add up.
        next_s += every_s * (1.0 + (frame.at_s - next_s) // every_s)
        view = ring.view()
        report = None if no_diagnosis else diagnose(view)
        click.echo(show(_pools(view, offset, report)))
        if report is not None:
            now = (report.verdict.value, report.top.cause if report.top else "")
            if now != said:
                click.echo(show(_verdict(report, offset)))
            said = now
    for warning in record.warnings:
        warn(warning)
    return 0


def _happened(frame: Frame, start_s: float) -> list[dict[str, Any]]:
    items: list[Event | LogLine] = [*frame.events, *frame.logs]
    return [_one(item, item.t_s - start_s) for item in sorted(items, key=lambda i: i.t_s)]


def _one(item: Event | LogLine, offset: float) -> dict[str, Any]:
    from pdops.model.frame import Event

    if isinstance(item, Event):
        where = item.worker or item.pool or ""
        text = f"{item.kind} {where}" + (f": {item.detail}" if item.detail else "")
        return {"kind": "event", "t_s": round(offset, 3), "event": item.kind.value, "where": where, "text": text}
    return {"kind": "log", "t_s": round(offset, 3), "where": item.worker, "text": f"{item.worker}: {item.line}"}


def _pools(view: View, offset: float, report: Report | None) -> dict[str, Any]:
    from pdops.history.pooltable import pool_lines

    pools = []
    for line in pool_lines(view):
        pools.append(
            {
                "pool": line.pool,
                "up": line.up,
                "workers": line.workers,
                "running": _plain(line.running),
                "waiting": _plain(line.waiting),
                "kv_usage_ratio": _plain(line.kv_usage),
                "kv_bytes_per_s": _plain(line.kv_bytes_per_s),
            }
        )
    return {
        "kind": "pools",
        "t_s": round(offset, 3),
        "pools": pools,
        "verdict": report.verdict.value if report else None,
    }


def _verdict(report: Report, offset: float) -> dict[str, Any]:
    top = report.top
    text = f"verdict {report.verdict}"
    if top is not None:
        text += f": {top.cause} {top.confidence:.2f} at {', '.join(str(s) for s in top.scopes) or 'whole cluster'}"
    return {
        "kind": "verdict",
        "t_s": round(offset, 3),
        "verdict": report.verdict.value,
        "cause": top.cause if top else None,
        "text": text,
    }


def _plain(reading: Reading) -> float | None:
    return None if reading.value is None else float(f"{reading.value:.6g}")


def _json_line(item: dict[str, Any]) -> str:
    return json.dumps(item, ensure_ascii=False)


def _text_line(item: dict[str, Any]) -> str:
    from pdops.sources.redact import clean

    # Log lines, details of events and names are whatever the recorded cluster said.
    return clean(_text(item))


def _text(item: dict[str, Any]) -> str:
    stamp = f"{item['t_s']:+9.1f} s  "
    if item["kind"] != "pools":
        return stamp + str(item["text"])
    parts = [
        f"{p['pool']} {p['up']}/{p['workers']} run {_show(p['running'])} wait {_show(p['waiting'])} kv {_share(p['kv_usage_ratio'])}"
        for p in item["pools"]
    ]
    return stamp + " | ".join(parts) + (f" | {item['verdict']}" if item["verdict"] else "")


def _show(value: float | None) -> str:
    return "?" if value is None else f"{value:.1f}"


def _share(value: float | None) -> str:
    return "?" if value is None else f"{value:.0%}"
