"""Following log files without reading too much, and without passing secrets on."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from pdops.model.cluster import Cluster, Role, Worker
from pdops.sources.logs import MAX_LINE_BYTES, MAX_LINES, MAX_READ_BYTES, LogReader, LogTail
from pdops.sources.redact import clean, is_secret, redact


def reader(path: Path, pattern: str | None = None) -> LogReader:
    worker = Worker(id="w", role=Role.DECODE, pool="d", logs=({"file": str(path)},))
    return LogReader(Cluster(name="t", workers=(worker,)), pattern=None if pattern is None else re.compile(pattern))


def add(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def lines(source: LogReader, at_s: float = 5.0) -> list[str]:
    found = await source.read(at_s)
    assert all((line.worker, line.t_s) == ("w", at_s) for line in found)
    return [line.line for line in found]


async def test_only_new_lines_of_some_weight_are_read(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR old\n")
    source = reader(log, r"Releasing expired KV")
    add(log, "INFO one\nWARNING two\nINFO Releasing expired KV blocks\nERROR three")
    assert await lines(source) == ["WARNING two", "INFO Releasing expired KV blocks"]
    assert await lines(source) == []
    add(log, " ends\nCRITICAL four\n")
    assert await lines(source) == ["ERROR three ends", "CRITICAL four"]
    await source.aclose()
    await source.aclose()


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("(EngineCore pid=1) ERROR 11-29 12:00:00 [core.py:1] boom", True),
        ("WARNING:uvicorn: slow", True),
        ("E1129 12:00:00.1 1 file.cc:1] boom", True),
        ("W20261129 12:00:00.1 1 file.cc:1] hm", True),
        ("2026-11-29T12:00:00Z  WARN router: worker is gone", True),
        ('{"level":"error","msg":"x"}', True),
        ("ts=1 level=warn msg=x", True),
        ('{"severity": "CRITICAL"}', True),
        ("INFO 11-29 no ERRORS here", False),
        ("INFO " + "x" * 300 + " ERROR", False),
        ("E11 is a chip", False),
        ("level=info msg=ok", False),
    ],
)
async def test_levels_are_told_from_words(tmp_path: Path, line: str, kept: bool) -> None:
    log = tmp_path / "log"
    log.touch()
    source = reader(log)
    add(log, line + "\n")
    assert await lines(source) == ([line] if kept else [])
    await source.aclose()


async def test_a_file_that_is_rotated_is_read_to_its_end_and_then_from_the_start_of_the_new_one(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    source = reader(log)
    add(log, "ERROR before\n")
    log.rename(tmp_path / "log.1")
    log.write_text("ERROR after\n")
    assert await lines(source) == ["ERROR before", "ERROR after"]
    await source.aclose()


async def test_a_file_that_is_truncated_is_read_from_its_start(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("ERROR a long line that was there\n")
    source = reader(log)
    log.write_text("ERROR new\n")
    assert await lines(source) == ["ERROR new"]
    await source.aclose()


async def test_a_file_that_comes_later_is_read_from_its_start_and_one_that_goes_is_waited_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = reader(log)
    assert await lines(source) == []
    log.write_text("ERROR first\n")
    assert await lines(source) == ["ERROR first"]
    log.unlink()
    assert await lines(source) == []
    log.write_text("ERROR second\n")
    assert await lines(source) == ["ERROR second"]
    await source.aclose()


async def test_a_flood_is_cut_and_said(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    source = reader(log)
    add(log, "".join(f"ERROR {n:020d}\n" for n in range(10_000)))
    found = await lines(source)
    assert re.fullmatch(r"\[\d+ bytes of the log were not read\]", found[0])
    assert re.fullmatch(r"\[\d+ log lines were left out\]", found[1])
    assert len(found) == MAX_LINES + 2
    assert found[-1] == f"ERROR {9_999:020d}"
    assert await lines(source) == []
    await source.aclose()


async def test_long_lines_are_cut_and_endless_ones_left_out(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    source = reader(log)
    add(log, "ERROR " + "x" * 5_000 + "\n")
    (line,) = await lines(source)
    assert len(line) == MAX_LINE_BYTES + 1
    assert line.endswith("…")
    add(log, "ERROR " + "y" * (MAX_READ_BYTES + 10))
    assert await lines(source) == [f"[{MAX_READ_BYTES + 16} bytes of the log were not read]"]
    add(log, " end\nERROR next\n")
    assert (await lines(source))[-1] == "ERROR next"
    await source.aclose()


async def test_lines_the_catalog_knows_are_kept_at_any_level_and_what_users_wrote_is_not(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    source = reader(log)
    add(
        log,
        "INFO Setting UCX_RCACHE_MAX_UNRELEASED to 1024\nINFO Received request, prompt: 'CUDA out of memory'\nINFO x\n",
    )
    assert await lines(source) == ["INFO Setting UCX_RCACHE_MAX_UNRELEASED to 1024"]
    await source.aclose()


async def test_a_file_that_cannot_be_read_is_said_until_it_can(tmp_path: Path) -> None:
    log = tmp_path / "log"
    source = reader(log)
    assert await lines(source) == []
    (note,) = source.notes
    assert (note.worker, note.code) == ("w", "logs/0")
    assert note.why == f"file {log}: no such file or directory"
    assert "permissions" in note.fix
    log.touch()
    assert await lines(source) == []
    assert source.notes == ()
    log.unlink()
    log.mkdir()
    assert await lines(source) == []
    assert [n.why for n in source.notes] == [f"file {log}: it is no plain file"]
    await source.aclose()


def test_what_is_no_file_is_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path):
        tail = LogTail(str(path))
        assert tail.read().lines == []
        tail.close()


async def test_bytes_that_are_no_text_are_shown_safely(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    source = reader(log)
    with log.open("ab") as file:
        file.write(b"\x1b[31mERROR\x1b[0m \xff\x00\x07\x1b]0;title\x07tab\there\r\n")
    assert await lines(source) == ["ERROR \ufffdtab here"]
    await source.aclose()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer abc.def-123", "Authorization: Bearer [redacted]"),
        ("Basic bWU6cHc=", "Basic [redacted]"),
        ("key sk-proj-abcdefgh12345678 used", "key [redacted] used"),
        ("hf_abcdefghijklmnop", "[redacted]"),
        ("'api_key': ['topsecret'], 'port': 8000", "'api_key': ['[redacted]'], 'port': 8000"),
        ("password=hunter2 user=x", "password=[redacted] user=x"),
        ("VLLM_API_KEY=abc", "VLLM_API_KEY=[redacted]"),
        ("http://me:pw@host/x", "http://[redacted]@host/x"),
        ("GET /metrics?token=abc.d~e&job=x HTTP/1.1", "GET /metrics?token=[redacted]&job=x HTTP/1.1"),
        ("http://h/m?a=1&X-Amz-Signature=0f0f#x", "http://h/m?a=1&X-Amz-Signature=[redacted]#x"),
        ("http://h/m?api-key=k;sig=s", "http://h/m?api-key=[redacted];sig=[redacted]"),
        ("http://h/m?accessToken=k", "http://h/m?accessToken=[redacted]"),
        (
            "http://h/m?max_tokens=5&monkey=1&keyword=x&name[]=vllm:token",
            "http://h/m?max_tokens=5&monkey=1&keyword=x&name[]=vllm:token",
        ),
        ("max_num_batched_tokens=2048 token=5", "max_num_batched_tokens=2048 token=5"),
        ("basic idea", "basic idea"),
        ("GET /v1/x?sig=a%2Fb&page=2", "GET /v1/x?sig=[redacted]&page=2"),
        (
            "https://s3/x?X-Amz-Credential=AKIA&X-Amz-Signature=0f",
            "https://s3/x?X-Amz-Credential=[redacted]&X-Amz-Signature=[redacted]",
        ),
        ("POST /x?api_key=abc HTTP/1.1", "POST /x?api_key=[redacted] HTTP/1.1"),
        ("vllm serve m --api-key abc --port 8000", "vllm serve m --api-key [redacted] --port 8000"),
        ("authorization: token-of-mine", "authorization: [redacted]"),
        ("Set-Cookie: a=b; c=d", "Set-Cookie: [redacted]"),
        ("clone with ghp_abcdefghijklmnop", "clone with [redacted]"),
        ("-----BEGIN RSA PRIVATE KEY----- abc", "[redacted]"),
        ("block_key=5 cache_key=7", "block_key=5 cache_key=7"),
        ("exit code=1", "exit code=1"),
        ("Releasing expired KV blocks for request cmpl-1", "Releasing expired KV blocks for request cmpl-1"),
    ],
)
def test_secrets_are_not_passed_on(text: str, shown: str) -> None:
    assert redact(text) == shown
    assert redact(redact(text)) == shown


def test_direction_marks_and_escapes_are_removed() -> None:
    assert clean("a\u202eb\x1b[2Jc\x9bd\u2028e\nf") == "abcdef"


@pytest.mark.parametrize(
    ("key", "value", "secret"),
    [
        ("hf_token", "abc", True),
        ("token", "abc", True),
        ("api_key", "1", True),
        ("aws-secret", "x", True),
        ("db.password", "x", True),
        ("max_num_batched_tokens", "2048", False),
        ("long_prefill_token_threshold", "0", False),
        ("kv_bytes_per_token", "262144", False),
        ("tokenizer", "x/y", False),
        ("token", "null", False),
        ("block_size", "32", False),
    ],
)
def test_secret_options_are_told_from_token_counts(key: str, value: str, secret: bool) -> None:
    assert is_secret(key, value) is secret


def test_the_home_folder_is_not_told() -> None:
    assert redact(f'File "{Path.home()}/engine/core.py", line 7') == 'File "~/engine/core.py", line 7'
