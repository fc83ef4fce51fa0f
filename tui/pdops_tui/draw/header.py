"""Draw the header: at most six lines, the most important first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pdops.model.report import Verdict
from pdops_tui.draw.line import Line, Span, cut, ends, fit, span, width_of
from pdops_tui.draw.plot import spark
from pdops_tui.models.format import VERDICT_STYLE, Cell, moment
from pdops_tui.models.header import Flow, Header
from pdops_tui.models.promise import Promise
from pdops_tui.models.screen import Screen
from pdops_tui.models.text import cells, clip
from pdops_tui.models.ttft import SHORT, Split, Stage
from pdops_tui.places import START, Place, crumbs
from pdops_tui.snapshot import Position

_FILLS = "█▒▓░█▒"
_BAR_LEAST = 8


def header_lines(screen: Screen, width: int, rows: int, *, frozen: bool = False) -> list[Line]:
    """Return the header in at most `rows` lines of at most `width` cells; trouble and replay lines come on top of them.

    From five lines on the promises stand on one of their own, with what is kept of them and how they moved.
    """
    header = screen.header
    top = _top(header, width, frozen=frozen)
    verdict = fit([(0, _cell(header.verdict, lead=" ")), (1, span(_roomy(header, width)))], width)
    if rows >= 5:
        lines = [top, verdict, _kept(screen, width), _flows(header, width), _split(screen.split, width)][:rows]
    else:
        lines = [top, verdict, _promises(header, width), _split(screen.split, width)][: max(2, rows)]
    if header.trouble:
        lines.insert(1, cut(span(f" [!] {header.trouble}", "bad"), width))
    if header.position is not None:
        lines.append(replay_line(header.position, width, relative=header.relative))
    return lines


def place_head(
    places: Sequence[Place], screen: Screen | None, width: int, *, frozen: bool = False, starting: bool = False
) -> Line:
    """Return the first line of a place: breadcrumbs, the verdict, and when that is.

    While a start goes on, its place has none: workers that are not started yet would be called down.
    """
    way = span(f" {crumbs(places)}", "title")
    if screen is None:
        return cut((*way, ("  no data yet", "unknown")), width)
    top = screen.header
    right: Line = ((f" {top.time} ", "title"),)
    if not starting or not places or places[-1].kind != START:
        right = ((f"{top.verdict.text} ", top.verdict.style), *right)
    if top.position is not None or frozen:
        state = "PAUSED" if frozen or (top.position is not None and top.position.paused) else "REPLAY"
        right = ((f" {state} ", "cursor"), (" ", ""), *right)
    if top.taping.text:
        right = (*_cell(top.taping, tail=" "), *right)
    return ends(way, right, width)


def _roomy(header: Header, width: int) -> str:
    return clip(header.cause, max(8, width - cells(header.verdict.text) - 3))


def _cell(cell: Cell, lead: str = "", tail: str = "") -> Line:
    return ((f"{lead}{cell.text}{tail}", cell.style),)


def _top(header: Header, width: int, *, frozen: bool) -> Line:
    clock = span(f"{header.time} ", "title")
    parts = [
        (3, span(" pdops top", "title")),
        (0, span(f" {header.cluster}" if width < 60 else header.cluster)),
        (2, span(header.shape)),
        (0, _cell(header.up)),
        (1, _cell(header.age)),
        (0, span("PAUSED", "cursor") if frozen else ()),
        (0, _cell(header.taping) if header.taping.text else ()),
        (1, span(header.which, "cursor") if header.which else ()),
        (1, span("SLO: yours", "cursor") if header.own_slo else ()),
        (5, span(header.engines)),
        (6, span(header.source, "dim")),
    ]
    return ends(fit(parts, max(0, width - width_of(clock) - 1)), clock, width)


def _promises(header: Header, width: int) -> Line:
    parts = [(order, _promise(promise, first=order == 0)) for order, promise in enumerate(header.promises)]
    parts += [(order, _flow(flow)) for order, flow in enumerate(header.flows, start=2)]
    return fit(parts, width, "   " if width >= 110 else "  ")


def _flows(header: Header, width: int) -> Line:
    parts = [(order, _flow(flow)) for order, flow in enumerate(header.flows)]
    lead, *rest = parts
    return fit([(lead[0], ((" ", ""), *lead[1])), *rest], width, "   " if width >= 110 else "  ")


def _promise(promise: Promise, *, first: bool) -> Line:
    return (
        (f"{' ' if first else ''}{promise.label} ", ""),
        (promise.value.text, promise.value.style),
        (f"{promise.target} ", ""),
        (promise.state.text, promise.state.style),
    )


def _flow(flow: Flow) -> Line:
    label = f"{flow.label} " if flow.label else ""
    blank = "" if flow.unit in ("%", "/s") or not flow.unit else " "
    mark = f" {flow.value.mark}" if flow.value.mark else ""
    return ((label, ""), (f"{flow.value.text}{blank}{flow.unit}{mark}", flow.value.style))


def _kept(screen: Screen, width: int) -> Line:
    """Return each promise with its sparkline and the share that kept it, then goodput."""
    attained = dict(screen.kept.attained)
    moved = {line.label.partition(" ")[0]: line for line in screen.trends}
    parts: list[tuple[int, Line]] = []
    for order, promise in enumerate(screen.header.promises):
        name = promise.label.partition(" ")[0]
        parts.append((order, _promise(promise, first=order == 0)))
        line = moved.get(name)
        if line is not None and line.over.known:
            parts.append((8 + order, spark(line.over, 16 if width >= 110 else 8, limit=line.limit)))
        if name in attained:
            cell = attained[name]
            mark = f" {cell.mark}" if cell.mark else ""
            target = f"/{screen.kept.target}" if width >= 110 and cell.sort is not None else ""
            parts.append((4 + order, (("within ", "dim"), (f"{cell.text}{target}{mark}", cell.style))))
    good = screen.kept.goodput
    parts.append(
        (
            2,
            (
                ("goodput " if width >= 110 else "good ", ""),
                (good.text, good.style),
                (" req/s" if good.sort is not None else "", ""),
            ),
        )
    )
    return fit(parts, width, "  ")


def _split(split: Split, width: int) -> Line:
    head: Line = ((" TTFT mean " if width >= 90 else " TTFT ", ""), (split.total.text, split.total.style), (" ", ""))
    if not split.stages:
        return cut((*head, (f"({split.reason})", "unknown")), width)
    shares = all(s.share is not None for s in split.stages)
    words = [_words(s, shares=shares) for s in split.stages]
    gap = " | " if width >= 100 else " "
    used = _used(head, words, gap)
    if used > width:
        words = [_words(replace(s, label=SHORT.get(s.label, s.label)), shares=shares) for s in split.stages]
        used = _used(head, words, gap)
    bar = width - used - len(words) - 1
    out: list[Span] = list(head)
    for index, (stage, word) in enumerate(zip(split.stages, words, strict=True)):
        if index:
            out.append((gap, "dim"))
        out.extend(word)
        if shares and bar >= _BAR_LEAST and stage.share is not None:
            blocks = round(stage.share * bar)
            out.append((" " + _FILLS[index % len(_FILLS)] * blocks if blocks else "", "key"))
    if split.reason and used + 12 < width:
        out.append((clip(f"  ({split.reason})", width - used), "unknown"))
    return cut(tuple(out), width)


def _used(head: Line, words: list[Line], gap: str) -> int:
    return width_of(head) + sum(width_of(w) for w in words) + len(gap) * (len(words) - 1)


def _words(stage: Stage, *, shares: bool) -> Line:
    if shares and stage.share is not None:
        return ((f"{stage.label} {stage.share:.0%}", ""),)
    return ((f"{stage.label} ", ""), (stage.time.text, stage.time.style))


def replay_line(position: Position, width: int, *, relative: bool = False) -> Line:
    """Return where a replay stands: frame, bar, time, speed, and a gap in words."""
    state = "seeking" if position.seeking else "end" if position.ended else "paused" if position.paused else "playing"
    total = "?" if position.total is None else str(position.total)
    left: Line = ((" REPLAY ", "cursor"), (f" {state} x{position.speed:g}  frame {position.index}/{total}  ", ""))
    right = span(f" {moment(position.at_s, relative=relative)} ")
    if position.gap_s is not None:
        right = ((f" no data for {position.gap_s:.0f} s before this", "warn"), *right)
    room = width - width_of(left) - width_of(right) - 1
    middle: Line = ()
    if position.end_s is not None and position.end_s > position.start_s and room >= 12:
        middle = (("│", "key"), *_track(position, room - 2), ("│", "key"))
    return ends((*left, *middle), right, width)


def _track(position: Position, room: int) -> Line:
    """Return the way of a recording: where it stands █, events ▲, changes to X ! ? +, marks M, ┄ not searched yet."""
    assert position.end_s is not None
    length = position.end_s - position.start_s

    def place(at_s: float) -> int:
        return min(room - 1, max(0, round((at_s - position.start_s) / length * (room - 1))))

    searched = -1 if position.searched_to_s is None else place(position.searched_to_s)
    track: list[Span] = [("─" if i <= searched else "┄", "dim") for i in range(room)]
    for mark in position.landmarks:
        if mark.kind == "event":
            track[place(mark.t_s)] = ("▲", "warn")
    for mark in position.landmarks:
        if mark.kind == "change" and mark.verdict is not None:
            track[place(mark.t_s)] = (_TURNS[mark.verdict], VERDICT_STYLE[mark.verdict])
    for at_s in position.marks:
        track[place(at_s)] = ("M", "title")
    track[place(position.at_s)] = ("█", "key")
    return tuple(track)


_TURNS = {Verdict.FAULT: "X", Verdict.OVERLOAD: "!", Verdict.UNKNOWN: "?", Verdict.HEALTHY: "+"}
