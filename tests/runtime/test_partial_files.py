"""Temporary files that are locked while they are written."""

import multiprocessing
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from spinimpute.runtime import partial_files
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.partial_files import PartialFile, locked_folder, temporary_folder_in

LIMIT = 300  # seconds


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_file_gets_its_name_when_it_is_complete(tmp_path):
    final = tmp_path / "o.txt"
    partial = PartialFile(final)
    partial.path.write_text("whole")
    assert not final.exists()
    partial.complete()
    partial.discard()  # nothing happens
    assert names(tmp_path) == ["o.txt"]
    assert final.read_text() == "whole"


def test_left_files_of_the_same_name_are_removed(tmp_path):
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


def test_a_file_that_is_being_written_is_left_alone(tmp_path):
    first = PartialFile(tmp_path / "o.txt")
    with pytest.raises(InputError, match="another run is writing it"):
        PartialFile(tmp_path / "o.txt")
    PartialFile(tmp_path / "o.txt.tbi").discard()
    assert names(tmp_path) == [first.path.name]
    first.complete()
    PartialFile(tmp_path / "o.txt").complete()


def test_a_file_that_was_taken_for_a_left_one_is_made_again(tmp_path, monkeypatch):
    """Between its making and its locking another run may look."""
    taken: list[Path] = []

    def locked_late(descriptor: int) -> bool:
        if not taken and names(tmp_path):  # not when the folder itself is locked
            taken.extend(tmp_path.iterdir())
            taken[0].unlink()
        return True

    monkeypatch.setattr(partial_files, "_lock", locked_late)
    partial = PartialFile(tmp_path / "o.txt")
    assert partial.path.exists()
    assert os.fstat(partial._descriptor).st_nlink == 1
    partial.discard()


def test_where_files_cannot_be_locked_none_is_removed(tmp_path, monkeypatch):
    (tmp_path / ".o.txt.01234567.part").write_text("left")
    monkeypatch.setattr(partial_files, "_lock", lambda descriptor: None)
    PartialFile(tmp_path / "o.txt").complete()
    assert names(tmp_path) == [".o.txt.01234567.part", "o.txt"]


def test_folders_that_dead_processes_left_are_removed(tmp_path):
    left = tmp_path / "x-01234567.parts"
    (left / "deep").mkdir(parents=True)
    for other in ("x-0123456.parts", "y-01234567.parts", "x-01234567.other"):
        (tmp_path / other).mkdir()
    with temporary_folder_in(tmp_path, "x-") as first, temporary_folder_in(tmp_path, "x-") as second:
        assert not left.exists()
        (first / "file").write_text("of a living process")
        assert second.is_dir()
        assert (first / "file").exists()
    assert names(tmp_path) == ["x-0123456.parts", "x-01234567.other", "y-01234567.parts"]


def test_nothing_waits_in_a_folder_of_its_own(tmp_path, monkeypatch):
    """The folder is locked by the very process that writes there."""
    monkeypatch.setattr(partial_files.time, "sleep", lambda _: pytest.fail("it waits for itself"))
    with temporary_folder_in(tmp_path, ".o.") as folder, temporary_folder_in(folder, ".p."):
        PartialFile(folder / "o.txt").complete()
        assert names(folder)[-1] == "o.txt"


def test_a_link_is_not_followed(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("kept")
    (tmp_path / "x-01234567.parts").symlink_to(elsewhere)
    with temporary_folder_in(tmp_path, "x-"):
        pass
    assert (elsewhere / "file").exists()


def _write_together(final: Path, together: Any, refused: Any) -> None:
    together.wait(LIMIT)
    partial = None
    with suppress(InputError):
        partial = PartialFile(final)
    refused.put(partial is None)
    together.wait(LIMIT)  # until all have tried
    if partial is not None:
        partial.complete()


def test_runs_wait_for_each_other_where_the_folder_is_a_link(tmp_path):
    folder, link = tmp_path / "folder", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(folder)
    locks = []
    for path in (folder, link):
        with partial_files._folder_lock(path):
            descriptor = os.open(folder, os.O_RDONLY)
            locks.append(partial_files._lock(descriptor))
            os.close(descriptor)
    assert locks == [False, False]


@pytest.mark.parametrize("number", range(5))
def test_of_two_that_start_together_one_writes(number, tmp_path):
    context = multiprocessing.get_context("fork")
    together, refused = context.Barrier(3), context.Queue()
    arguments = (tmp_path / "o.txt", together, refused)
    processes = [context.Process(target=_write_together, args=arguments) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert sorted(refused.get() for _ in processes) == [False, True, True]
    assert names(tmp_path) == ["o.txt"]


def test_runs_that_lock_a_folder_at_the_same_time(tmp_path: Path) -> None:
    """Each run has the folder alone or is refused, also if another run has just removed the folder."""
    folder = tmp_path / "out" / "work"
    outcomes: list[str] = []

    def lock_often() -> None:
        for _ in range(200):
            try:
                with locked_folder(folder):
                    os.close(os.open(folder / "file", os.O_CREAT | os.O_EXCL))
                    (folder / "file").unlink()
                outcomes.append("locked")
            except InputError as error:
                outcomes.append("refused" if "another run is using it" in str(error) else str(error))
            except OSError as error:
                outcomes.append(str(error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=lock_often) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert set(outcomes) == {"locked", "refused"}
    assert not folder.exists()


def test_only_new_and_empty_folders_are_removed(tmp_path: Path) -> None:
    old = tmp_path / "old"
    old.mkdir()
    with locked_folder(old / "a" / "b"):
        assert (old / "a" / "b").is_dir()
    assert list(old.iterdir()) == []
    with locked_folder(old / "a" / "b"):
        (old / "a" / "file").write_text("")
    assert [path.name for path in old.rglob("*")] == ["a", "file"]
