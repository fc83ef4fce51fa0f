"""Rows and columns of a matrix that would be too large: workers go together by node, by zone, or as they stand in the inventory."""

from __future__ import annotations

from pdops.model.cluster import Worker


def groups(
    senders: tuple[Worker, ...], receivers: tuple[Worker, ...], most: int
) -> tuple[str, dict[str, list[str]], dict[str, list[str]]]:
    """Return what the table is grouped by, and the workers of each row and column."""
    if len(senders) <= most and len(receivers) <= most:
        return "", {w.id: [w.id] for w in senders}, {w.id: [w.id] for w in receivers}
    for by in ("node", "zone"):
        rows, columns = _by(senders, by), _by(receivers, by)
        one = len(rows) == 1 and len(columns) == 1
        if rows and columns and not one and len(rows) <= most and len(columns) <= most:
            return by, rows, columns
    # Nothing says where they stand, or all stand in one place: neighbours in the inventory go together.
    return "inventory order", _chunks(senders, most), _chunks(receivers, most)


def _by(workers: tuple[Worker, ...], by: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for worker in workers:
        place = worker.node if by == "node" else worker.zone
        found.setdefault(place if place is not None else f"{by} ?", []).append(worker.id)
    return found if f"{by} ?" not in found or len(found) > 1 else {}


def _chunks(workers: tuple[Worker, ...], most: int) -> dict[str, list[str]]:
    ids = [w.id for w in workers]
    long = -(-len(ids) // most)
    parts = [ids[i : i + long] for i in range(0, len(ids), long)]
    return {_range(p[0], p[-1]): p for p in parts}


def _range(first: str, last: str) -> str:
    if first == last:
        return first
    stem, dash, number = last.rpartition("-")
    return f"{first}..{number}" if dash and first.startswith(f"{stem}-") else f"{first}..{last}"
