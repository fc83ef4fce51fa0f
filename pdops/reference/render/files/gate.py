"""Say when a part of a prefill/decode deployment is ready, wait for others, and let a part drain before it ends.

Needs nothing but Python's standard library (3.9 or newer), because it runs inside images that are not ours.

    gate.py ready --url U --model M [--side-channel HOST:PORT]   an engine serves its model, is counted, takes handshakes
    gate.py http URL... [--contains TEXT]                        these pages answer 200
    gate.py wait --budget S [--http URL] [--tcp HOST:PORT]       wait for others, bounded, saying what is missing
    gate.py drain --url U --deadline S [--linger S]              wait until nothing runs, then as long as a KV lease
    gate.py run [--drain-url U ...] -- COMMAND...                become the command; or start it, and drain on SIGTERM
    gate.py pause S                                              give load balancers time to look away
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial

ANSWER_S = 3.0
LIMIT = 16 << 20
SIDE_CHANNEL = "VLLM_NIXL_SIDE_CHANNEL_HOST"
IN_FLIGHT = re.compile(r"^vllm:num_requests_(running|waiting)(?:\{[^}]*\})? ([0-9.eE+-]+)", re.MULTILINE)
NOT_ANSWERED = (OSError, ValueError, http.client.HTTPException)
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class NobodyThereError(OSError):
    """Nothing listens at that address."""


def main(argv: Sequence[str] | None = None) -> int:
    """Do one verb; the exit status is 0 for yes and 1 for no."""
    words = list(sys.argv[1:] if argv is None else argv)
    split = words.index("--") if "--" in words else len(words)
    given = _parser().parse_args(words[:split])
    given.rest = words[split + 1 :]
    return int(given.do(given))


def _parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = top.add_subparsers(required=True)

    def verb(name: str, do: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
        made = verbs.add_parser(name)
        made.set_defaults(do=do)
        made.add_argument("--times", type=int, default=1, help="successes in a row")
        made.add_argument("--every", type=float, default=1.0, help="seconds between two looks")
        return made

    def cordon(made: argparse.ArgumentParser) -> None:
        made.add_argument("--router")
        made.add_argument("--worker")
        made.add_argument("--token-file")

    ready = verb("ready", _ready)
    ready.add_argument("--url", required=True)
    ready.add_argument("--model", required=True)
    ready.add_argument("--side-channel")
    pages = verb("http", _http)
    pages.add_argument("urls", nargs="+")
    pages.add_argument("--contains", help="text that each page must have, spaces left out")
    wait = verb("wait", _wait)
    wait.add_argument("--budget", type=float, required=True)
    wait.add_argument("--http", action="append", default=[])
    wait.add_argument("--tcp", action="append", default=[])
    drain = verb("drain", _drain)
    drain.add_argument("--url", required=True)
    drain.add_argument("--deadline", type=float, required=True)
    drain.add_argument("--linger", type=float, default=0.0)
    cordon(drain)
    run = verb("run", _run)
    run.add_argument("--drain-url")
    run.add_argument("--drain-deadline", type=float, default=0.0)
    run.add_argument("--drain-linger", type=float, default=0.0)
    cordon(run)
    verb("pause", _pause).add_argument("seconds", type=float)
    return top


def _ready(given: argparse.Namespace) -> int:
    def look() -> None:
        names = [m["id"] for m in json.loads(_page(f"{given.url}/v1/models"))["data"]]
        if given.model not in names:
            raise ValueError(f"serves {', '.join(names) or 'no model'}, not {given.model}")
        if not IN_FLIGHT.search(_page(f"{given.url}/metrics")):
            raise ValueError("its metrics say nothing about requests")
        if given.side_channel:
            host, _, port = given.side_channel.rpartition(":")
            _knock(f"{host or _own_address()}:{port}")

    return _in_a_row(given, look)


def _http(given: argparse.Namespace) -> int:
    def look() -> None:
        for url in given.urls:
            if (given.contains or "") not in "".join(_page(url).split()):
                raise ValueError(f"{url} does not say {given.contains}")

    return _in_a_row(given, look)


def _wait(given: argparse.Namespace) -> int:
    looks: list[tuple[str, Callable[[str], object]]] = [(u, _page) for u in given.http]
    looks += [(a, _knock) for a in given.tcp]
    end = time.monotonic() + given.budget
    for what, ask in looks:
        told, good = None, 0
        while good < given.times:
            why = _failure(partial(ask, what))
            good = good + 1 if why is None else 0
            if why is not None and why != told:
                told = why
                _say(f"waiting for {what}: {why}")
            if good < given.times:
                if time.monotonic() > end:
                    _say(f"gave up after {given.budget:g} s: {what}: {why or 'not ready for long enough'}")
                    return 1
                time.sleep(given.every)
        _say(f"{what} is ready")
    return 0


def _drain(given: argparse.Namespace) -> int:
    _tell_router(given, "cordon")
    _until_idle(given.url, given.deadline, given.linger, given.every)
    return 0


def _pause(given: argparse.Namespace) -> int:
    time.sleep(given.seconds)
    return 0


def _run(given: argparse.Namespace) -> int:
    if not given.rest:
        _say("run needs a command after --")
        return 2
    os.environ.setdefault(SIDE_CHANNEL, _own_address())
    # Whatever drained the worker before has ended with it; until it answers, the router leaves it out anyway.
    _tell_router(given, "uncordon")
    if given.drain_url is None:
        os.execvp(given.rest[0], given.rest)
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda got, _: asked.append(got))
    # A group of its own, so that a Ctrl-C meant for us does not end it before it is drained.
    child = subprocess.Popen(given.rest, start_new_session=True)
    while child.poll() is None and not asked:
        time.sleep(0.2)
    if child.poll() is None:
        _tell_router(given, "cordon")
        _until_idle(
            given.drain_url, given.drain_deadline, given.drain_linger, given.every, lambda: child.poll() is not None
        )
        child.terminate()
    code = child.wait()
    return code if code >= 0 else 128 - code


def _until_idle(
    url: str, deadline_s: float, linger_s: float, every_s: float, gone: Callable[[], bool] = lambda: False
) -> None:
    """Wait until nothing runs or waits in three looks in a row, then `linger_s`; no engine, nothing to wait for."""
    end = time.monotonic() + deadline_s
    idle = 0
    while idle < 3 and not gone():
        count: float | None = None
        try:
            found = IN_FLIGHT.findall(_page(f"{url}/metrics"))
            count = sum(float(value) for _, value in found) if found else None
        except NobodyThereError:
            _say(f"nothing listens at {url} any more")
            return
        except NOT_ANSWERED as error:
            _say(f"cannot tell what runs: {error}")
        idle = idle + 1 if count == 0 else 0
        if idle < 3:
            if time.monotonic() > end:
                many = "an unknown number of" if count is None else f"{count:g}"
                _say(f"not idle after {deadline_s:g} s: {many} requests will be lost")
                break
            time.sleep(every_s)
    end = time.monotonic() + linger_s
    while time.monotonic() < end and not gone():
        time.sleep(0.2)


def _tell_router(given: argparse.Namespace, verb: str) -> None:
    """Cordon or uncordon; when that cannot be done, say so and go on, because no pod may hang on it."""
    if not (given.router and given.worker and given.token_file):
        return
    url = f"{given.router}/admin/workers/{urllib.parse.quote(given.worker)}/{verb}"
    try:
        with open(given.token_file, encoding="utf-8") as file:
            token = file.read().strip()
        request = urllib.request.Request(url, b"", {"Authorization": f"Bearer {token}"}, method="POST")
        with OPENER.open(request, timeout=ANSWER_S):
            _say(f"router was told to {verb} {given.worker}")
    except NOT_ANSWERED as error:
        _say(f"router could not be told to {verb} {given.worker}: {error}")


def _in_a_row(given: argparse.Namespace, look: Callable[[], object]) -> int:
    for number in range(given.times):
        if number:
            time.sleep(given.every)
        why = _failure(look)
        if why is not None:
            _say(f"not ready: {why}")
            return 1
    return 0


def _failure(look: Callable[[], object]) -> str | None:
    try:
        look()
    except (*NOT_ANSWERED, KeyError, TypeError) as error:
        return str(error) or type(error).__name__
    return None


def _page(url: str) -> str:
    try:
        with OPENER.open(url, timeout=ANSWER_S) as answer:
            return str(answer.read(LIMIT).decode("utf-8", "replace"))
    except urllib.error.HTTPError as error:
        error.close()
        raise ValueError(f"{url} answers {error.code}") from None
    except urllib.error.URLError as error:
        kind = NobodyThereError if isinstance(error.reason, ConnectionRefusedError) else OSError
        raise kind(f"{url} does not answer: {error.reason}") from None


def _knock(address: str) -> None:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), ANSWER_S).close()
    except OSError as error:
        raise OSError(f"{address} does not take connections: {error}") from None


def _own_address() -> str:
    """Return what peers reach this container at: what its own name resolves to."""
    return os.environ.get(SIDE_CHANNEL) or socket.gethostbyname(socket.gethostname())


def _say(text: str) -> None:
    sys.stderr.write(f"gate: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())
