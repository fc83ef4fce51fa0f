"""A Report as one HTML page that needs nothing else: no network, no script, light and dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from pdops.diagnose.report_cells import EVIDENCE, evidence_rows, gathered, place, when
from pdops.diagnose.report_curves import Curve, curves
from pdops.diagnose.report_svg import draw, safe
from pdops.diagnose.text_number import number
from pdops.model.report import Hypothesis, Missing, Report
from pdops.model.times import rfc3339
from pdops.model.view import View

_LINES = 60
"""Log lines shown, the newest."""


def render(view: View, report: Report) -> str:
    """Return the page. The same View and Report give the same bytes."""
    style = resources.files("pdops.diagnose").joinpath("report.css").read_text(encoding="utf-8")
    title = f"{report.verdict.upper()} {report.cluster} {when(report)}"
    drawn = curves(view, report)
    body = [
        *_head(report),
        *_ttft(report),
        *_hops(report),
        *_hypotheses(report, drawn),
        *_ruled_out(report),
        *_missing(report),
        *_events(view),
        *_logs(view),
        *_workers(view),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        # Names and log lines come from outside; whatever they smuggle in must not run or call home.
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f'<meta name="color-scheme" content="light dark">\n<title>{safe(title)}</title>\n<style>\n{style}</style>\n'
        "</head>\n<body>\n<main>\n" + "\n".join(body) + "\n</main>\n</body>\n</html>\n"
    )


def _head(report: Report) -> Iterator[str]:
    yield (
        f'<header class="{report.verdict}"><p class="verdict">{report.verdict.upper()}</p>'
        f"<div><h1>{safe(report.cluster)}</h1><p>{safe(when(report))}</p></div></header>"
    )
    top = report.top
    if top is not None:
        yield (
            f'<p class="top"><strong>{safe(top.cause)}</strong> in layer {safe(top.layer)} at '
            f"<strong>{safe(place(top.scopes))}</strong>, confidence {top.confidence:.2f}</p>"
        )
    if report.symptoms:
        yield f"<p>Symptoms: {safe(', '.join(report.symptoms))}</p>"


def _ttft(report: Report) -> Iterator[str]:
    if not report.ttft:
        return
    rows = []
    for stage in report.ttft:
        share = "" if stage.share is None else f"{stage.share:.0%}"
        bar = "" if stage.share is None else f"{_bar(stage.share)} {share}"
        why = safe(stage.why or "") if stage.seconds is None else bar
        rows.append(
            f"<tr><td>{safe(stage.stage)}</td><td>{safe(number(stage.seconds, 'seconds'))}</td><td>{why}</td></tr>"
        )
    yield _section("TTFT, mean by stage", _table(("stage", "time", "share, or why it is not known"), rows))


def _hops(report: Report) -> Iterator[str]:
    if report.hops:
        items = "".join(f"<li>{safe(h.question)} <strong>{safe(h.answer)}</strong></li>" for h in report.hops)
        yield _section("How it was found", f"<ol>{items}</ol>")


def _hypotheses(report: Report, drawn: Sequence[Curve]) -> Iterator[str]:
    """Yield the likeliest of each fault, what is plotted of them, and the alternatives folded."""
    first: dict[int, Hypothesis] = {}
    for item in report.hypotheses:
        first.setdefault(item.fault, item)
    for item in first.values():
        yield _section(f"Fault {item.fault}: {item.cause}", _hypothesis(item))
    yield from _plots(drawn)
    for item in report.hypotheses:
        if item is not first[item.fault]:
            title = f"Also weighed for fault {item.fault}: {item.cause}, {item.confidence:.2f}"
            yield _folded(title, _hypothesis(item))


def _hypothesis(item: Hypothesis) -> str:
    rows = []
    for row in evidence_rows(item):
        look = "for" if row[0] == "+" else "against"
        rows.append(f'<tr class="{look}"><td>{look}</td>{"".join(f"<td>{safe(cell)}</td>" for cell in row[1:])}</tr>')
    parts = [
        f"<p>Layer {safe(item.layer)}, at {safe(place(item.scopes))}, confidence "
        f"{_bar(item.confidence)} {item.confidence:.2f}, "
        f"check <code>{safe(item.check)}</code></p>",
        _table(("", *EVIDENCE[1:]), rows) if rows else "",
        _list("Not known", map(_lack, gathered(item.missing))),
        _list("Next", item.next, ordered=True),
        _list("Runbooks", item.runbooks),
        _list("Do not", (f"{bad.action}: {bad.why}" for bad in item.do_not), look="donot"),
    ]
    return "".join(parts)


def _lack(item: tuple[Missing, str]) -> str:
    missing, where = item
    several = f" ({where})" if missing.scope is None and where else ""
    return f"{missing.signal}{several}: {missing.why}" + (f" ({missing.fix})" if missing.fix else "")


def _plots(drawn: Sequence[Curve]) -> Iterator[str]:
    if not drawn:
        return
    figures = "".join(
        f"<figure><figcaption><strong>{safe(c.signal)}</strong> {safe(c.where)}, {safe(c.unit)}</figcaption>{draw(c)}</figure>"
        for c in drawn
    )
    key = (
        '<p class="key"><span class="now">judged window</span> <span class="base">compared with</span> '
        '<span class="expected">expected</span> <span class="mark">event</span>; a gap is where nothing is known</p>'
    )
    yield _section("Evidence over time", f'{key}<div class="plots">{figures}</div>')


def _ruled_out(report: Report) -> Iterator[str]:
    if report.ruled_out:
        rows = [
            f"<tr><td>{safe(r.cause)}</td><td>{safe(str(r.scope or ''))}</td><td>{safe(r.because)}</td></tr>"
            for r in report.ruled_out
        ]
        yield _folded(f"Ruled out ({len(rows)})", _table(("cause", "where", "because"), rows))


def _missing(report: Report) -> Iterator[str]:
    if report.missing:
        rows = [
            f"<tr><td>{safe(m.signal)}</td><td>{safe(where)}</td><td>{safe(m.why)}</td><td>{safe(m.fix)}</td></tr>"
            for m, where in gathered(report.missing)
        ]
        yield _section(f"Missing ({len(rows)})", _table(("what", "where", "why", "how to get it"), rows))


def _events(view: View) -> Iterator[str]:
    if view.events:
        rows = [
            f"<tr><td>{safe(_time(view, e.t_s))}</td><td>{safe(e.worker or e.pool or '')}</td><td>{safe(e.kind)}</td>"
            f"<td>{safe(e.detail or e.revision or '')}</td></tr>"
            for e in sorted(view.events, key=lambda e: -e.t_s)
        ]
        yield _folded(f"Events ({len(rows)})", _table(("time", "who", "what", "detail"), rows))


def _logs(view: View) -> Iterator[str]:
    if view.logs:
        newest = sorted(view.logs, key=lambda line: -line.t_s)[:_LINES]
        rows = [
            f"<tr><td>{safe(_time(view, n.t_s))}</td><td>{safe(n.worker)}</td><td><code>{safe(n.line)}</code></td></tr>"
            for n in newest
        ]
        count = f"{len(newest)} of {len(view.logs)}" if len(view.logs) > len(newest) else str(len(newest))
        yield _folded(f"Log lines ({count})", _table(("time", "worker", "line"), rows))


def _workers(view: View) -> Iterator[str]:
    rows = []
    for worker in view.cluster.workers:
        health = view.health.get(worker.id)
        state = "" if health is None else health.presence + (f": {health.why}" if health.why else "")
        cells = (worker.id, worker.role, worker.pool, worker.engine or "", worker.node or "", worker.zone or "", state)
        rows.append(f"<tr>{''.join(f'<td>{safe(cell)}</td>' for cell in cells)}</tr>")
    if rows:
        head = ("worker", "role", "pool", "engine", "node", "zone", "data")
        yield _folded(f"Workers ({len(rows)})", _table(head, rows))


def _bar(share: float) -> str:
    return f'<span class="bar"><i style="width:{100 * min(1.0, max(0.0, share)):.1f}%"></i></span>'


def _time(view: View, t_s: float) -> str:
    return f"{t_s - view.at_s:+.0f} s" if view.relative else rfc3339(t_s)


def _section(title: str, body: str) -> str:
    return f"<section><h2>{safe(title)}</h2>{body}</section>"


def _folded(title: str, body: str) -> str:
    return f"<details><summary>{safe(title)}</summary>{body}</details>"


def _table(head: Sequence[str], rows: Iterable[str]) -> str:
    cells = "".join(f'<th scope="col">{safe(cell)}</th>' for cell in head)
    return f'<div class="wide"><table><thead><tr>{cells}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def _list(title: str, items: Iterable[str], *, ordered: bool = False, look: str = "") -> str:
    found = [f"<li>{safe(item)}</li>" for item in items]
    kind = "ol" if ordered else "ul"
    dressed = f' class="{look}"' if look else ""
    return f"<h3>{safe(title)}</h3><{kind}{dressed}>{''.join(found)}</{kind}>" if found else ""
