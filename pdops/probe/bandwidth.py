"""Measure what a path carries with a plain TCP copy between two addresses, nothing of an engine in it.

    python -m pdops.probe.bandwidth serve --host ADDRESS
    python -m pdops.probe.bandwidth send --to ADDRESS:PORT --bytes 4000000 --seconds 5

Each end is a process of its own, so that each may run in another network namespace or on another host. `serve` prints
`{"listening": "ADDRESS:PORT"}` and takes one copy; then both print one JSON object on standard output. The rate is the
receiver's: bytes over the time between its first and its last. Both ends stop by themselves.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pdops.clock import Clock, WallClock
from pdops.model.cluster import Pair
from pdops.model.frame import Probe, ProbeKind

MAX_BYTES = 1_000_000_000
MAX_SECONDS = 120.0
FAILED = 3
"""Exit status when no rate can be told."""
_CHUNK = 64 * 1024
_BUFFER = 128 * 1024
"""Small socket buffers: what still lies in them when time is up has to drain through a slow link."""
_GRACE_S = 5.0
_SAID = 4096
_MODULE = "pdops.probe.bandwidth"


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What arrived: `bytes_per_s` None when it cannot be told, with an `error`; `whole` when all that was asked came."""

    bytes: int
    seconds: float
    bytes_per_s: float | None
    whole: bool
    error: str | None = None

    def to_json(self) -> str:
        """Return it as one line of JSON."""
        rate = None if self.bytes_per_s is None else round(self.bytes_per_s, 1)
        return json.dumps(
            {
                "bytes": self.bytes,
                "seconds": round(self.seconds, 6),
                "bytes_per_s": rate,
                "whole": self.whole,
                "error": self.error,
            }
        )

    @classmethod
    def of_json(cls, text: str) -> Copied:
        """Read what an end printed; its last line counts.

        Raises:
            ValueError: it is not such an object.
        """
        lines = text.strip().splitlines()
        try:
            body = json.loads(lines[-1])
            rate, error = body["bytes_per_s"], body["error"]
            return cls(
                bytes=int(body["bytes"]),
                seconds=float(body["seconds"]),
                bytes_per_s=None if rate is None else float(rate),
                whole=bool(body["whole"]),
                error=None if error is None else str(error),
            )
        except (IndexError, KeyError, TypeError, ValueError) as problem:
            raise ValueError(f"not the result of a copy: {text[-200:]!r}") from problem


def serve_command(host: str, *, seconds: float, prefix: Sequence[str] = (), python: str = sys.executable) -> list[str]:
    """Return the command line of the receiving end; `prefix` as `ip netns exec NAME` puts it elsewhere."""
    return [*prefix, python, "-m", _MODULE, "serve", f"--host={host}", f"--seconds={seconds:g}"]


def send_command(
    to: str,
    *,
    count: int,
    seconds: float,
    source: str | None = None,
    prefix: Sequence[str] = (),
    python: str = sys.executable,
) -> list[str]:
    """Return the command line of the sending end: `count` bytes or `seconds`, whichever ends first."""
    line = [*prefix, python, "-m", _MODULE, "send", f"--to={to}", f"--bytes={count}", f"--seconds={seconds:g}"]
    return line if source is None else [*line, f"--from={source}"]


def as_probe(pair: Pair, copied: Copied, *, at_s: float, least_bytes_per_s: float | None = None) -> Probe:
    """Return a copy as the model's probe: `value` in bytes/s; judged only when a least rate is given."""
    rate, least = copied.bytes_per_s, least_bytes_per_s
    ok = None if rate is None or least is None else rate >= least
    return Probe(t_s=at_s, kind=ProbeKind.BANDWIDTH, ok=ok, pair=str(pair), detail=copied.error, value=rate)


def serve(listener: socket.socket, clock: Clock, *, seconds: float, max_bytes: int = MAX_BYTES) -> Copied:
    """Take one copy from a listening socket and tell the sender what came.

    Args:
        listener: from `listen`; it is closed here.
        clock: for limits and durations.
        seconds: from now to the last byte; then it stops.
        max_bytes: no more is taken.
    """
    end = clock.monotonic() + seconds
    try:
        listener.settimeout(max(0.01, seconds))
        connection, _ = listener.accept()
    except TimeoutError:
        return Copied(bytes=0, seconds=0.0, bytes_per_s=None, whole=False, error=f"nobody came within {seconds:g} s")
    finally:
        listener.close()
    with connection:
        copied = _receive(connection, clock, end, max_bytes)
        try:
            connection.settimeout(_GRACE_S)
            connection.sendall(copied.to_json().encode() + b"\n")
        except OSError:
            pass  # the sender has gone; what came is known here
    return copied


def _receive(connection: socket.socket, clock: Clock, end: float, max_bytes: int) -> Copied:
    count, first, last, opening, error = 0, 0.0, 0.0, 0, None
    begin = clock.monotonic()
    whole = False
    while count < max_bytes:
        left = end - clock.monotonic()
        try:
            connection.settimeout(max(0.01, left))
            data = connection.recv(_CHUNK) if left > 0 else None
        except TimeoutError:
            data = None
        except OSError as problem:
            error = f"connection broke off: {problem.strerror or problem}"
            break
        if data is None:
            error = "time was up before the last byte"
            break
        if not data:
            whole = True
            break
        last = clock.monotonic()
        if not count:
            first, opening = last, len(data)
        count += len(data)
    return _rated(count, opening, first, last, begin, whole=whole, error=error)


def _rated(
    count: int, opening: int, first: float, last: float, begin: float, *, whole: bool, error: str | None
) -> Copied:
    """Return the rate; what came with the first read has no time of its own, so it does not count."""
    took = last - first
    if took > 0:
        return Copied(bytes=count, seconds=took, bytes_per_s=(count - opening) / took, whole=whole, error=error)
    if count and whole and last > begin:
        return Copied(bytes=count, seconds=last - begin, bytes_per_s=count / (last - begin), whole=True, error=error)
    return Copied(bytes=count, seconds=0.0, bytes_per_s=None, whole=whole, error=error or "too little came to time it")


def send(to: tuple[str, int], clock: Clock, *, count: int, seconds: float, source: str | None = None) -> Copied:
    """Send `count` bytes, or as many as go in `seconds`, and return what the receiver says came."""
    begin, sent, block = clock.monotonic(), 0, os.urandom(_CHUNK)
    end = begin + seconds
    try:
        with socket.socket(_family(to[0]), socket.SOCK_STREAM) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _BUFFER)
            if source is not None:
                connection.bind((source, 0))
            connection.settimeout(max(0.01, seconds))
            connection.connect(to)
            while sent < count and (left := end - clock.monotonic()) > 0:
                connection.settimeout(left)
                try:
                    sent += connection.send(block[: min(_CHUNK, count - sent)])
                except TimeoutError:
                    break
            connection.shutdown(socket.SHUT_WR)
            connection.settimeout(seconds + _GRACE_S)
            answer = _line(connection)
    except OSError as problem:
        why = str(problem) if isinstance(problem, TimeoutError) else (problem.strerror or str(problem))
        return Copied(bytes=sent, seconds=clock.monotonic() - begin, bytes_per_s=None, whole=False, error=why)
    try:
        copied = Copied.of_json(answer)
    except ValueError:
        why = "the receiver did not say what came"
        return Copied(bytes=sent, seconds=clock.monotonic() - begin, bytes_per_s=None, whole=False, error=why)
    whole = copied.whole and copied.bytes == count
    return Copied(
        bytes=copied.bytes,
        seconds=copied.seconds,
        bytes_per_s=copied.bytes_per_s,
        whole=whole,
        error=copied.error,
    )


def _line(connection: socket.socket) -> str:
    raw = b""
    while b"\n" not in raw and len(raw) < _SAID:
        part = connection.recv(_SAID)
        if not part:
            break
        raw += part
    return raw.decode(errors="replace")


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listen(host: str, port: int = 0) -> socket.socket:
    """Return a socket that listens on one address, with a small buffer; port 0 lets the system choose.

    Raises:
        OSError: the address is not there, or the port is taken.
    """
    listener = socket.socket(_family(host), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        listener.bind((host, port))
        listener.listen(1)
    except OSError:
        listener.close()
        raise
    return listener


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"expected ADDRESS:PORT, got {text!r}")
    return host.strip("[]"), int(port)


def _between(low: float, high: float) -> Any:
    def read(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = float("nan")
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected {low:g} to {high:g}, got {text!r}")
        return value

    return read


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one end; 0 when a rate can be told, 2 for a bad command line, 3 when none can."""
    parser = argparse.ArgumentParser(prog="python -m pdops.probe.bandwidth", description="a bounded plain TCP copy")
    ends = parser.add_subparsers(dest="end", required=True)
    taking = ends.add_parser("serve", help="take one copy")
    taking.add_argument("--host", required=True, metavar="ADDRESS", help="address to listen on")
    taking.add_argument("--port", type=int, default=0, help="default: one that is free")
    giving = ends.add_parser("send", help="send one copy")
    giving.add_argument("--to", type=_address, required=True, metavar="ADDRESS:PORT")
    giving.add_argument("--from", dest="source", metavar="ADDRESS", help="address to send from")
    for end in (taking, giving):
        end.add_argument("--bytes", type=_between(1, MAX_BYTES), default=4e6 if end is giving else MAX_BYTES)
        end.add_argument("--seconds", type=_between(0.1, MAX_SECONDS), default=5.0 if end is giving else 30.0)
    args = parser.parse_args(arguments)
    clock = WallClock()
    if args.end == "send":
        copied = send(args.to, clock, count=int(args.bytes), seconds=args.seconds, source=args.source)
    else:
        try:
            listener = listen(args.host, args.port)
        except OSError as problem:
            why = f"cannot listen on {args.host}: {problem.strerror or problem}"
            _say(Copied(bytes=0, seconds=0.0, bytes_per_s=None, whole=False, error=why).to_json())
            return FAILED
        host, port = listener.getsockname()[:2]
        _say(json.dumps({"listening": f"[{host}]:{port}" if ":" in host else f"{host}:{port}"}))
        copied = serve(listener, clock, seconds=args.seconds, max_bytes=int(args.bytes))
    _say(copied.to_json())
    return 0 if copied.bytes_per_s is not None else FAILED


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
