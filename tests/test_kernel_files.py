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
    assert folder.parent.stat().st_mode & 0o777 == 0o700
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


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_in_one_that_others_may_write_to_is_not_used(folder: Path, mode: int) -> None:
    KernelFiles(folder).write("one", b"1")
    folder.parent.chmod(mode)
    files = KernelFiles(folder)
    assert files.unwritable == f"other users may write to {folder.parent}"
    assert files.read("one") is None


def test_it_may_be_made_in_a_folder_for_all(folder: Path, tmp_path: Path) -> None:
    """As in /tmp: what is made there nobody else can move away."""
    tmp_path.chmod(0o1777)
    files = KernelFiles(folder)
    files.write("one", b"1")
    assert (files.unwritable, files.read("one")) == ("", b"1")


@pytest.mark.parametrize("linked", ["cache", "cache/kernels"])
def test_a_link_is_not_followed(folder: Path, tmp_path: Path, linked: str) -> None:
    KernelFiles(tmp_path / "elsewhere" / "kernels").write("one", b"1")
    link = tmp_path / linked
    link.parent.mkdir(mode=0o700, exist_ok=True)
    link.symlink_to(tmp_path / "elsewhere" / ("kernels" if link == folder else ""))
    assert (folder / "one").exists()
    files = KernelFiles(folder)
    assert files.unwritable == ("it is a link" if link == folder else f"{link} is a link")
    files.write("two", b"2")
    assert files.read("one") is None
    assert not (folder / "two").exists()


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
    os.chown(folder, 0, 0)
    os.chown(folder.parent, NOBODY, NOBODY)
    files = KernelFiles(folder)
    assert files.unwritable == f"{folder.parent} belongs to another user"
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


def of_kernel(name: str) -> str:
    """A file's name as kernels have it."""
    return f"{name}-{'0a' * 16}"


def test_files_that_nobody_uses_go(folder: Path) -> None:
    files = KernelFiles(folder)
    now = time.time()
    new, old, used, partial = *map(of_kernel, ("new", "old", "used")), f".{of_kernel('one')}.{'0a' * 8}.part"
    for name, days in ((new, 1), (old, MOST_DAYS + 1), (used, MOST_DAYS - 1), (partial, MOST_DAYS + 1)):
        files.write(name, b"1")
        os.utime(folder / name, (now, now - days * DAY))
    assert files.read(used) == b"1"
    assert now - (folder / used).stat().st_mtime < DAY
    KernelFiles(folder).write("one", b"1")
    assert sorted(path.name for path in folder.iterdir()) == [new, "one", used]


def test_only_what_was_written_here_is_removed(folder: Path) -> None:
    """Not files of others, nor folders, nor the lock, whose name a waiting process has open."""
    files = KernelFiles(folder)
    long_ago = time.time() - 10 * MOST_DAYS * DAY
    with files.alone():
        pass
    foreign = ["thesis.txt", "results-2024", ".hidden", "data.part", f"{'0a' * 16}"]
    for name in foreign:
        (folder / name).write_text("of somebody")
    (folder / of_kernel("folder")).mkdir()
    (folder / of_kernel("linked")).symlink_to(folder / "nowhere")
    files.write(of_kernel("old"), b"1")
    for path in folder.iterdir():
        os.utime(path, (long_ago, long_ago), follow_symlinks=False)
    KernelFiles(folder).write(of_kernel("new"), b"1")
    kept = [*foreign, "lock", of_kernel("folder"), of_kernel("linked"), of_kernel("new")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(kept)


def test_a_file_that_cannot_be_removed_does_not_keep_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = KernelFiles(folder)
    long_ago = time.time() - 10 * MOST_DAYS * DAY
    for name in map(of_kernel, ("first", "odd", "last")):
        files.write(name, b"1")
        os.utime(folder / name, (long_ago, long_ago))
    unlink = Path.unlink

    def unlink_others(path: Path, missing_ok: bool = False) -> None:
        if path.name.startswith("odd"):
            raise PermissionError(path)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", unlink_others)
    KernelFiles(folder).write(of_kernel("new"), b"1")
    assert {path.name for path in folder.iterdir()} == {of_kernel("new"), of_kernel("odd")}


def test_the_most_recent_files_stay(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FILES > 500  # several versions, several kinds of processors
    monkeypatch.setattr("spinimpute.kernel_files.MOST_FILES", 3)
    files = KernelFiles(folder)
    now = time.time()
    for hours in range(1, 6):
        name = of_kernel(f"before_{hours}_hours")
        files.write(name, b"1")
        os.utime(folder / name, (now, now - hours * 3600))
    KernelFiles(folder).write(of_kernel("now"), b"1")
    assert {path.name for path in folder.iterdir()} == set(
        map(of_kernel, ("now", "before_1_hours", "before_2_hours"))
    )


def test_a_full_disk(small_disk: Callable[[int], Any]) -> None:
    folder = small_disk(64).folder / "cache" / "kernels"
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
