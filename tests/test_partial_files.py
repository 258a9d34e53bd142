"""Temporary files that are locked while they are written."""

import os
from pathlib import Path

import pytest

from spinimpute import partial_files
from spinimpute.errors import InputError
from spinimpute.partial_files import PartialFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_name_when_it_is_complete(tmp_path: Path) -> None:
    final = tmp_path / "o.txt"
    partial = PartialFile(final)
    partial.path.write_text("whole")
    assert not final.exists()
    partial.complete()
    partial.discard()  # nothing happens
    assert names(tmp_path) == ["o.txt"]
    assert final.read_text() == "whole"


def test_what_is_discarded_is_gone(tmp_path: Path) -> None:
    PartialFile(tmp_path / "o.txt").discard()
    assert not names(tmp_path)


def test_left_files_of_the_same_name_are_removed(tmp_path: Path) -> None:
    others = [
        ".o.txt.abcd.part",
        ".o.txt.0123456g.part",
        ".p.txt.01234567.part",
        ".o.txt.01234567.bak",
        "x.part",
    ]
    for name in [".o.txt.01234567.part", *others]:
        (tmp_path / name).write_text("left")
    PartialFile(tmp_path / "o.txt").discard()
    assert names(tmp_path) == sorted(others)


def test_a_file_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    first = PartialFile(tmp_path / "o.txt")
    with pytest.raises(InputError, match="another run is writing it"):
        PartialFile(tmp_path / "o.txt")
    PartialFile(tmp_path / "o.txt.tbi").discard()
    assert names(tmp_path) == [first.path.name]
    first.complete()
    PartialFile(tmp_path / "o.txt").complete()


def test_a_file_that_was_taken_for_a_left_one_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its locking another run may look."""
    taken: list[Path] = []

    def locked_late(descriptor: int) -> bool:
        if not taken:
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        return True

    monkeypatch.setattr(partial_files, "_locked", locked_late)
    partial = PartialFile(tmp_path / "o.txt")
    assert partial.path.exists()
    assert os.fstat(partial.descriptor).st_nlink == 1
    partial.discard()


def test_where_files_cannot_be_locked_none_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".o.txt.01234567.part").write_text("left")
    monkeypatch.setattr(partial_files, "_locked", lambda descriptor: None)
    PartialFile(tmp_path / "o.txt").complete()
    assert names(tmp_path) == [".o.txt.01234567.part", "o.txt"]
