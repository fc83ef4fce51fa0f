"""Who is let in: names, roles, rotation, and files that are wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pdops.errors import UsageError
from pdops.respond.tokens import Person, Role, Tokens

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.write_text(f"# people\n\nada:approver:{ONE}\nalertmanager:operator:{TWO}\n")
    return path


def _write(path: Path, text: str) -> None:
    """Replace the file, with a time of its own whatever the clock's resolution."""
    stamp = path.stat().st_mtime_ns if path.exists() else 0
    path.write_text(text)
    os.utime(path, ns=(stamp + 1_000_000, stamp + 1_000_000))


def test_a_token_says_who_and_what_they_may(file: Path) -> None:
    tokens = Tokens(file)
    assert tokens.who(f"Bearer {ONE}") == Person("ada", Role.APPROVER)
    assert tokens.who(f"bearer {TWO}") == Person("alertmanager", Role.OPERATOR)
    assert tokens.role_of("ada") is Role.APPROVER
    assert tokens.role_of("eve") is None


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", f"Bearer {THREE}", f"Basic {ONE}", ONE, "Bearer \udcff", f"Bearer {ONE}x"]
)
def test_anything_else_is_nobody(header: str | None, file: Path) -> None:
    assert Tokens(file).who(header) is None


def test_roles_include_those_below() -> None:
    assert [Role.OPERATOR.may(needed) for needed in Role] == [True, True, False, False]
    assert all(Role.ADMIN.may(needed) for needed in Role)


def test_two_lines_of_a_name_are_two_tokens_and_dropping_one_ends_it(file: Path) -> None:
    tokens = Tokens(file)
    _write(file, f"ada:approver:{ONE}\nada:approver:{THREE}\n")
    assert {tokens.who(f"Bearer {t}") for t in (ONE, THREE)} == {Person("ada", Role.APPROVER)}
    assert tokens.who(f"Bearer {TWO}") is None
    _write(file, f"ada:approver:{THREE}\n")
    assert tokens.who(f"Bearer {ONE}") is None
    assert tokens.who(f"Bearer {THREE}") == Person("ada", Role.APPROVER)


def test_a_file_that_becomes_unreadable_keeps_who_was_let_in_and_says_so(file: Path) -> None:
    tokens = Tokens(file)
    _write(file, "ada:appr")
    assert tokens.who(f"Bearer {ONE}") is not None
    assert tokens.problem is not None
    assert "still valid" in tokens.problem
    _write(file, f"ada:approver:{THREE}\n")
    assert tokens.who(f"Bearer {ONE}") is None
    assert tokens.problem is None


def test_a_file_that_is_gone_lets_nobody_in(file: Path) -> None:
    tokens = Tokens(file)
    file.unlink()
    assert tokens.who(f"Bearer {ONE}") is None
    assert tokens.problem is not None
    _write(file, f"ada:approver:{ONE}\n")
    assert tokens.who(f"Bearer {ONE}") is not None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "names nobody"),
        ("# only a comment\n", "names nobody"),
        (f"{ONE}\n", "not a name, a role"),
        (f"ada:boss:{ONE}\n", "no such role"),
        ("ada:viewer:short\n", "16 to 512"),
        (f"ada:viewer:{ONE} x\n", "16 to 512"),
        (f"respond:admin:{ONE}\n", "no name"),
        (f"ada:viewer:{ONE}\nada:admin:{TWO}\n", "two roles"),
        (f"ada:viewer:{ONE}\nbob:admin:{ONE}\n", "same token as in line 1"),
        (f"{'a' * 70000}", "larger than"),
    ],
)
def test_a_wrong_file_is_refused_without_showing_tokens(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text(text)
    with pytest.raises(UsageError, match=why) as raised:
        Tokens(path)
    assert ONE not in str(raised.value)


def test_a_file_that_is_not_there_or_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        Tokens(tmp_path / "none")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        Tokens(tmp_path / "bytes")


def test_what_is_no_regular_file_is_not_waited_for(file: Path) -> None:
    tokens = Tokens(file)
    for make in (os.mkfifo, os.mkdir, lambda path: os.symlink("/dev/zero", path)):
        file.unlink() if not file.is_dir() else file.rmdir()
        make(file)
        assert tokens.who(f"Bearer {ONE}") is not None
        assert tokens.problem is not None
        assert "not a regular file; the tokens from before are still valid" in tokens.problem
        with pytest.raises(UsageError, match="not a regular file"):
            Tokens(file)


def test_others_who_may_read_it_are_noticed(file: Path) -> None:
    file.chmod(0o644)
    assert Tokens(file).readable_by_others()
    file.chmod(0o600)
    assert not Tokens(file).readable_by_others()
