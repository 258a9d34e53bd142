"""Fixtures that every test may ask for."""

import gzip
import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_genotypes() -> Path:
    """The folder of real genotypes kept beside the checkout (or named by SPINIMPUTE_SHARED)."""
    folder = Path(os.environ.get("SPINIMPUTE_SHARED", REPOSITORY.parent / "shared")) / "data" / "genotypes"
    if not folder.is_dir():
        pytest.skip(f"real genotypes are not at {folder}: set SPINIMPUTE_SHARED to the folder of data/")
    return folder


@pytest.fixture(scope="session")
def dense_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six of the example's targets; every other site of the panel is typed (2,227): they make nine chunks."""
    truth = gzip.decompress((REPOSITORY / "data" / "example" / "truth.vcf.gz").read_bytes())
    lines = truth.decode().splitlines(keepends=True)
    head = sum(line[0] == "#" for line in lines)
    path = tmp_path_factory.mktemp("dense") / "dense.vcf"
    few = ["\t".join(line.split("\t")[:15]).rstrip() + "\n" for line in lines[head - 1 :]]
    path.write_text("".join([*lines[: head - 1], few[0], *few[1::2]]))
    return path


@dataclass(frozen=True)
class Disk:
    """A file system of its own in a folder; it has room for some KiB."""

    folder: Path

    def resize(self, kib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kib}k", self.folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Disk]]:
    """small_disk(kib): a tmpfs of so many KiB, in a folder of its own."""
    mounted: list[Path] = []

    def mount(kib: int) -> Disk:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here")
        if done.returncode:
            pytest.skip(f"a tmpfs may not be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return Disk(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)
