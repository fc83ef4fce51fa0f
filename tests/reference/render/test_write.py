"""Rendered files go where nobody else's are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pdops.errors import UsageError
from pdops.reference.render import write
from pdops.reference.render.write import MANIFEST

FILES = {"a.yaml": "a: 1\n", "sub/b.yaml": "b: 1\n"}


def test_says_what_it_wrote(tmp_path: Path) -> None:
    first = write(FILES, tmp_path / "new")
    assert first.new == ("a.yaml", "sub/b.yaml")
    again = write({**FILES, "a.yaml": "a: 2\n"}, tmp_path / "new")
    assert (again.new, again.changed, again.same) == ((), ("a.yaml",), ("sub/b.yaml",))
    assert (tmp_path / "new/a.yaml").read_text() == "a: 2\n"
    assert (tmp_path / "new/a.yaml").stat().st_mode & 0o777 == 0o644
    assert not list(tmp_path.rglob(".*.yaml.*"))


def test_what_is_no_longer_part_is_left_and_named(tmp_path: Path) -> None:
    write(FILES, tmp_path)
    for _ in range(2):
        assert write({"a.yaml": "a: 1\n"}, tmp_path).left == ("sub/b.yaml",)
    # It is still known as ours, so it may come back.
    assert write({**FILES, "sub/b.yaml": "b: 2\n"}, tmp_path).changed == ("sub/b.yaml",)


@pytest.mark.parametrize("rendered_before", [False, True])
def test_files_of_others_stay_and_nothing_is_written(tmp_path: Path, rendered_before: bool) -> None:
    if rendered_before:
        write(FILES, tmp_path)
    (tmp_path / "a.yaml").write_text("mine\n")
    with pytest.raises(UsageError, match="overwritten") as caught:
        write({**FILES, "a.yaml": "a: 3\n", "c.yaml": "c"}, tmp_path)
    assert "a.yaml" in caught.value.why
    assert (tmp_path / "a.yaml").read_text() == "mine\n"
    assert not (tmp_path / "c.yaml").exists()


def test_a_file_of_the_same_content_is_no_conflict(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(FILES["a.yaml"])
    assert write(FILES, tmp_path).same == ("a.yaml",)


def test_no_way_out_of_the_folder(tmp_path: Path) -> None:
    outside, folder = tmp_path / "outside", tmp_path / "in"
    outside.mkdir()
    folder.mkdir()
    for path in ("../x", str(outside / "x"), MANIFEST):
        with pytest.raises(UsageError, match="outside"):
            write({path: "x"}, folder)
    (folder / "sub").symlink_to(outside)
    with pytest.raises(UsageError, match="outside"):
        write(FILES, folder)
    (folder / "sub").unlink()
    (folder / "a.yaml").symlink_to(outside / "target")
    with pytest.raises(UsageError, match="overwritten"):
        write(FILES, folder)
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"schema": "other/v1", "files": {}}', '{"schema": 1, "files": 2}']
)
def test_a_manifest_that_cannot_be_read_is_said(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content)
    with pytest.raises(UsageError, match="cannot tell which files") as caught:
        write(FILES, tmp_path)
    assert caught.value.hint


def test_the_manifest_names_every_file(tmp_path: Path) -> None:
    write(FILES, tmp_path)
    content = json.loads((tmp_path / MANIFEST).read_text())
    assert content["schema"] == "pdops/rendered/v1"
    assert set(content["files"]) == set(FILES)


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"):
        write(FILES, tmp_path / "file")
    (tmp_path / "sub").write_text("")
    with pytest.raises(UsageError, match=r"cannot be written|overwritten"):
        write(FILES, tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UsageError, match="cannot be written"):
        write(FILES, tmp_path)
