"""A copy between two processes: what came is told, what did not is said, and both ends stop by themselves."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections.abc import Callable

import pytest

from pdops.clock import WallClock
from pdops.model.cluster import Pair
from pdops.probe import bandwidth as b

LOOPBACK = "127.0.0.1"


def _threaded(run: Callable[[], b.Copied]) -> tuple[threading.Thread, list[b.Copied]]:
    found: list[b.Copied] = []
    thread = threading.Thread(target=lambda: found.append(run()))
    thread.start()
    return thread, found


def test_two_processes_tell_the_same_rate() -> None:
    count = 3_000_000
    serve = b.serve_command(LOOPBACK, seconds=20)
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        address = json.loads(server.stdout.readline())["listening"]
        send = b.send_command(address, count=count, seconds=10, source=LOOPBACK)
        sent = subprocess.run(send, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
        took = server.communicate(timeout=60)[0]
    assert server.returncode == 0
    copied = b.Copied.of_json(sent.stdout)
    assert copied == b.Copied.of_json(took)
    assert (copied.bytes, copied.whole, copied.error) == (count, True, None)
    assert copied.bytes_per_s is not None
    assert copied.bytes_per_s > 0


def test_commands_can_be_put_elsewhere() -> None:
    inside = ["ip", "netns", "exec", "pdops-x"]
    assert b.serve_command("10.0.0.1", seconds=5, prefix=inside)[:4] == inside
    assert b.send_command("10.0.0.1:5", count=1, seconds=5, prefix=inside, python="py")[4:7] == [
        "py",
        "-m",
        "pdops.probe.bandwidth",
    ]


def test_nobody_who_comes_is_said() -> None:
    copied = b.serve(b.listen(LOOPBACK), WallClock(), seconds=0.1)
    assert (copied.bytes_per_s, copied.error) == (None, "nobody came within 0.1 s")


def test_no_more_than_asked_is_taken() -> None:
    listener = b.listen(LOOPBACK)
    to = listener.getsockname()
    thread, found = _threaded(lambda: b.serve(listener, WallClock(), seconds=20, max_bytes=100_000))
    b.send(to, WallClock(), count=1_000_000_000, seconds=5)
    thread.join(30)
    assert found[0].bytes < 100_000 + 65_536
    assert not found[0].whole


def test_a_sender_that_stalls_ends_in_a_rate_that_is_not_whole() -> None:
    listener = b.listen(LOOPBACK)
    to = listener.getsockname()
    thread, found = _threaded(lambda: b.serve(listener, WallClock(), seconds=0.5))
    with socket.create_connection(to) as sender:
        sender.sendall(b"x" * 100)
        thread.join(30)
    assert (found[0].bytes, found[0].whole, found[0].error) == (100, False, "time was up before the last byte")


def test_a_closed_port_is_an_error_and_a_status(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as held:
        held.bind((LOOPBACK, 0))
        port = held.getsockname()[1]
        assert b.main(["send", f"--to={LOOPBACK}:{port}", "--seconds=1"]) == b.FAILED
    copied = b.Copied.of_json(capsys.readouterr().out)
    assert (copied.bytes_per_s, copied.error) == (None, "Connection refused")


def test_a_receiver_that_says_nothing_gives_no_rate() -> None:
    with socket.create_server((LOOPBACK, 0)) as listener:
        to = listener.getsockname()[:2]

        def swallow() -> b.Copied:
            connection, _ = listener.accept()
            with connection:
                while connection.recv(65536):
                    pass
            return b.Copied(bytes=0, seconds=0.0, bytes_per_s=None, whole=False)

        thread, _ = _threaded(swallow)
        copied = b.send(to, WallClock(), count=1000, seconds=5)
        thread.join(30)
    assert (copied.bytes_per_s, copied.error) == (None, "the receiver did not say what came")


def test_an_address_that_is_not_here_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert b.main(["serve", "--host=192.0.2.1", "--seconds=1"]) == b.FAILED
    assert "cannot listen on 192.0.2.1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "line",
    [
        ["send", "--to=nowhere"],
        ["send", "--to=a:99999"],
        ["send", "--to=a:1", "--seconds=nan"],
        ["send", "--to=a:1", "--bytes=0"],
        ["serve"],
    ],
    ids=" ".join,
)
def test_a_bad_line_is_usage(line: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        b.main(line)
    assert caught.value.code == 2


@pytest.mark.parametrize(("least", "ok"), [(None, None), (5.0, True), (50.0, False)])
def test_a_copy_is_a_probe_of_the_model(least: float | None, ok: bool | None) -> None:
    copied = b.Copied(bytes=10, seconds=1.0, bytes_per_s=10.0, whole=True)
    probe = b.as_probe(Pair("p", "d"), copied, at_s=3.0, least_bytes_per_s=least)
    assert (probe.kind, probe.ok, probe.pair, probe.value) == ("bandwidth", ok, "p>d", 10.0)
