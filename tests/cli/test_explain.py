"""`pdops explain` with pasted text, and its completion."""

from __future__ import annotations

import os
import subprocess
import sys


def run(*args: str, given: bytes = b"", **env: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "pdops", *args], input=given, capture_output=True, timeout=60, env={**os.environ, **env}
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_log_is_read_from_standard_input_line_by_line() -> None:
    text = b"INFO fine\n\x1b[31mERROR\x1b[0m work request flushed error\nFailed to modify QP to RTR\n\xff\n"
    status, out, _ = run("explain", "-", given=text * 2)
    assert status == 0
    assert out.startswith("# log/mooncake-qp-rtr\n\nFound 2 times")
    assert "- log/rdma-flushed: " in out


def test_what_of_a_log_is_not_looked_at_is_said() -> None:
    status, out, err = run(
        "explain", "-", given=b"x" * 5000 + b"\n" + b"fine\n" * 20_001 + b"work request flushed error\n"
    )
    assert status == 2
    assert "only the first 4 MiB and 20000 lines are looked at" in err
    assert "of 1 lines only the first 4096 characters" in err
    assert out == ""


def test_nothing_given_is_said() -> None:
    status, _, err = run("explain", "-")
    assert status == 2
    assert "no id or text is given" in err


def test_words_need_no_quotes() -> None:
    assert run("explain", "local", "protection", "error")[1].startswith("# log/rdma-local-protection")


def test_ids_are_completed() -> None:
    _, out, _ = run(_PDOPS_COMPLETE="bash_complete", COMP_WORDS="pdops explain log/nixl-rem", COMP_CWORD="2")
    assert out.split() == ["plain,log/nixl-remote-engine-changed", "plain,log/nixl-remote-disconnect"]
