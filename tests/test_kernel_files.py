"""Compiled kernels lie in a folder of the user: nothing is read that another user may have put there."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spinimpute.kernel_files import MOST_DAYS, MOST_FILES, KernelFiles, kernel_files

DAY = 24 * 3600
NOBODY = 65534


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "kernels"


def test_what_is_written_is_read(folder: Path) -> None:
    files = KernelFiles(folder)
    assert files.read("one") is None
    files.write("one", b"1\n2")
    files.write("two", b"")
    files.write("one", b"another")
    assert (files.read("one"), files.read("two")) == (b"another", b"")
    assert KernelFiles(folder).read("one") == b"another"
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]
    files.check_room()
    assert files.unwritable == ""
    assert sorted(path.name for path in folder.iterdir()) == ["one", "two"]


def test_the_folder_is_the_users_alone(folder: Path) -> None:
    files = KernelFiles(folder)
    files.write("one", b"1")
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "one").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(folder: Path, mode: int) -> None:
    KernelFiles(folder).write("one", b"1")
    folder.chmod(mode)
    files = KernelFiles(folder)
    assert files.unwritable == "other users may write to it"
    files.write("two", b"2")
    assert (files.read("one"), files.read("two")) == (None, None)
    assert [path.name for path in folder.iterdir()] == ["one"]


def test_a_file_that_others_may_write_to_is_not_read(folder: Path) -> None:
    files = KernelFiles(folder)
    files.write("one", b"1")
    (folder / "one").chmod(0o620)
    assert files.read("one") is None
    files.write("one", b"1")
    assert files.read("one") == b"1"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files to others")
def test_what_belongs_to_another_user_is_not_used(folder: Path) -> None:
    files = KernelFiles(folder)
    files.write("one", b"1")
    os.chown(folder / "one", NOBODY, NOBODY)
    assert files.read("one") is None
    files.write("two", b"2")
    os.chown(folder, NOBODY, NOBODY)
    files = KernelFiles(folder)
    assert files.unwritable == "it belongs to another user"
    assert files.read("two") is None


@pytest.mark.parametrize("cut", [0, 5, 32, 40, -1])
def test_a_damaged_file_is_not_read(folder: Path, cut: int) -> None:
    files = KernelFiles(folder)
    files.write("one", b"0123456789" * 5)
    content = (folder / "one").read_bytes()
    (folder / "one").write_bytes(content[:cut])
    assert files.read("one") is None
    (folder / "one").write_bytes(content[:50] + b"x" + content[51:])
    assert files.read("one") is None


def test_files_that_nobody_uses_go(folder: Path) -> None:
    files = KernelFiles(folder)
    now = time.time()
    for name, days in (
        ("new", 1),
        ("old", MOST_DAYS + 1),
        ("used", MOST_DAYS - 1),
        (".one.part", MOST_DAYS + 1),
    ):
        files.write(name, b"1")
        os.utime(folder / name, (now, now - days * DAY))
    assert files.read("used") == b"1"
    assert now - (folder / "used").stat().st_mtime < DAY
    KernelFiles(folder).write("one", b"1")
    assert sorted(path.name for path in folder.iterdir()) == ["new", "one", "used"]


def test_the_most_recent_files_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FILES > 500  # several versions, several kinds of processors
    monkeypatch.setattr("spinimpute.kernel_files.MOST_FILES", 3)
    files = KernelFiles(folder)
    now = time.time()
    for hours in range(1, 6):
        files.write(f"before {hours} hours", b"1")
        os.utime(folder / f"before {hours} hours", (now, now - hours * 3600))
    KernelFiles(folder).write("now", b"1")
    assert {path.name for path in folder.iterdir()} == {"now", "before 1 hours", "before 2 hours"}


def test_a_full_disk(small_disk: Callable[[int], Any]) -> None:
    folder = small_disk(64).folder / "kernels"
    files = KernelFiles(folder)
    files.write("small", b"1")
    files.check_room()
    assert files.unwritable == "No space left on device"
    files.write("another", b"2")
    assert files.read("small") == b"1"
    assert [path.name for path in folder.iterdir()] == ["small"]


def test_where_there_can_be_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    files = KernelFiles(tmp_path / "file" / "kernels")
    files.write("one", b"1")
    assert files.read("one") is None
    assert files.unwritable == "Not a directory"


HOME = {"HOME": "/home/someone"}


@pytest.mark.skipif(sys.platform != "linux", reason="the folders of Linux")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        (HOME, "/home/someone/.cache/spinimpute/kernels"),
        (HOME | {"XDG_CACHE_HOME": "/scratch/cache"}, "/scratch/cache/spinimpute/kernels"),
        (HOME | {"XDG_CACHE_HOME": "cache"}, "/home/someone/.cache/spinimpute/kernels"),
        (HOME | {"XDG_CACHE_HOME": "/scratch", "SPINIMPUTE_CACHE": "/mine"}, "/mine/kernels"),
        (HOME | {"SPINIMPUTE_CACHE": ""}, "/home/someone/.cache/spinimpute/kernels"),
    ],
)
def test_where_the_folder_is(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("SPINIMPUTE_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(Path, "mkdir", lambda *_, **__: None)  # /home is not ours
    assert str(kernel_files.__wrapped__().folder) == expected


def test_without_a_home_nothing_is_kept(tmp_path: Path) -> None:
    script = (
        "import os, pwd\n"
        "def unknown(_): raise KeyError\n"
        "pwd.getpwuid = unknown\n"
        "from spinimpute.kernel_files import kernel_files\n"
        "print(kernel_files().unwritable)"
    )
    unset = ("HOME", "SPINIMPUTE_CACHE", "XDG_CACHE_HOME")
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name not in unset},
    )  # fmt: skip
    assert done.stdout == "there is no home folder\n"
    assert list(tmp_path.iterdir()) == []


def test_processes_that_write_the_same_file(folder: Path) -> None:
    """A reader finds one content or another, whole."""
    script = (
        "import sys\n"
        "from pathlib import Path\n"
        "from spinimpute.kernel_files import KernelFiles\n"
        "files = KernelFiles(Path(sys.argv[1]))\n"
        "for _ in range(200): files.write('one', sys.argv[2].encode() * 50_000)\n"
        "print(files.unwritable)"
    )
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(folder), letter], stdout=subprocess.PIPE, text=True
        )
        for letter in "ab"
    ]
    files, found = KernelFiles(folder), set()
    while any(writer.poll() is None for writer in writers):
        found.add(files.read("one"))
    found.discard(None)
    assert [writer.communicate()[0] for writer in writers] == ["\n", "\n"]
    assert found <= {b"a" * 50_000, b"b" * 50_000}
    assert [path.name for path in folder.iterdir()] == ["one"]


def test_only_one_process_is_alone(folder: Path) -> None:
    KernelFiles(folder)
    log = folder.parent / "log"
    script = (
        "import sys, time\n"
        "from pathlib import Path\n"
        "from spinimpute.kernel_files import KernelFiles\n"
        "with KernelFiles(Path(sys.argv[1])).alone(), open(sys.argv[2], 'a') as log:\n"
        "    print('in', file=log, flush=True)\n"
        "    time.sleep(0.2)\n"
        "    print('out', file=log, flush=True)\n"
    )
    command = [sys.executable, "-c", script, str(folder), str(log)]
    for process in [subprocess.Popen(command) for _ in range(3)]:
        assert process.wait() == 0
    assert log.read_text().split() == ["in", "out"] * 3
