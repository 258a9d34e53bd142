"""Panels built by several processes have the same bytes as those built by one."""

import base64
import contextlib
import gzip
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import cyvcf2
import numpy as np
import pytest

from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.sites import LAST_POSITION, Region
from spinimpute.panels import vcf_reading
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.panels.panel import Panel
from spinimpute.panels.vcf_reading import BatchReader, ParallelBatchReader
from spinimpute.runtime.errors import InputError
from spinimpute.vcf import index_reader
from spinimpute.vcf.index_reader import split_by_size
from tests.conftest import NEEDS_PROC, Record, convert, vcf_text

pytestmark = pytest.mark.slow

WriteLarge = Callable[..., Path]
LIMIT = 300  # seconds for a process to do what it should
MAP = GeneticMap.constant(1.3)
NAMES = [f"s{i}" for i in range(20)]


def records(n_sites: int = 2_400) -> list[Record]:
    """Sites over 15 intervals of an index, some with several ALT, some twice, some as long as an interval."""
    rng = np.random.default_rng(1)
    found: list[Record] = []
    for i in range(n_sites):
        calls = [f"{a:d}|{b:d}" for a, b in rng.random((len(NAMES), 2)) < rng.beta(0.2, 1)]
        calls[7] = calls[7][0]
        alt = "C,G" if i % 31 == 0 else "<DEL>" if i % 71 == 0 else "<NON_REF>" if i % 73 == 0 else "C"
        start = 1_000 + 100 * i
        info = [f"END={start + 20_000}"] if alt == "<DEL>" else []
        found.append((start, "ACGT", alt, calls, *info))
        if i % 43 == 0:
            found.append(found[-1])
    return found


def contigs(path: Path) -> list[str]:
    return list(cyvcf2.VCF(str(path)).seqnames)


@pytest.fixture
def small_regions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_reader, "INTERVAL_BYTES", 1_000)


def large_text(sites: list[Record]) -> str:
    """A VCF with random text in INFO: indices do not distinguish intervals of few compressed bytes."""
    rng = np.random.default_rng(2)
    head, *rows = vcf_text(sites, NAMES).replace(".\tPASS\t.\tGT", ".\tPASS\tX=*\tGT").split("*")
    noise = (base64.b64encode(rng.bytes(600)).decode() for _ in rows)
    text = head + "".join(word + row for word, row in zip(noise, rows, strict=True))
    return text.replace("##FORMAT", '##INFO=<ID=X,Number=1,Type=String,Description="x">\n##FORMAT', 1)


@pytest.fixture
def write_large(tmp_path: Path, index: Callable) -> WriteLarge:
    """write_large(text, name): a VCF as a .vcf.gz or .bcf file, with an index."""

    def write(text: str, name: str = "t.bcf") -> Path:
        (tmp_path / "source.txt").write_text(text)
        path = convert(tmp_path / "source.txt", tmp_path / name)
        index(path)
        return path

    return write


@pytest.fixture
def vcf(write_large: WriteLarge) -> Path:
    return write_large(large_text(records()))


@pytest.fixture(params=["bcf csi", "vcf.gz csi", "vcf.gz tbi"])
def indexed(request: pytest.FixtureRequest, write_large: WriteLarge) -> Path:
    form, kind = request.param.split()
    path = write_large(large_text(records()), f"t.{form}")
    if kind == "tbi":
        path.with_name(f"{path.name}.csi").unlink()
        subprocess.run(["bcftools", "index", "-t", path], check=True)
    return path


@pytest.mark.parametrize("region", [None, Region("chr20", 40_001, 160_002)])
def test_regions_are_consecutive(indexed: Path, small_regions: None, region: Region | None) -> None:
    vcf = indexed
    found = split_by_size(vcf, contigs(vcf), region)
    assert len(found) >= 4
    assert {region.chrom for region in found} == {"20"}
    assert all(one.start <= one.end == other.start - 1 for one, other in pairwise(found))
    assert (found[0].start, found[-1].end) == (
        (1, LAST_POSITION) if region is None else (region.start, region.end)
    )
    assert split_by_size(vcf, contigs(vcf), Region("21")) == []
    assert split_by_size(vcf, contigs(vcf), Region("20", 1, 900)) == []
    assert split_by_size(vcf, [*contigs(vcf), "chr20"], region) == []
    for kind in (".csi", ".tbi"):
        vcf.with_name(vcf.name + kind).unlink(missing_ok=True)
    assert split_by_size(vcf, contigs(vcf), region) == []


@pytest.mark.parametrize("damage", ["old", "cut", "garbage", "other"])
def test_unusable_indexes_are_ignored(vcf: Path, small_regions: None, damage: str) -> None:
    csi = vcf.with_name("t.bcf.csi")
    assert split_by_size(vcf, contigs(vcf), None)
    names = contigs(vcf)
    if damage == "old":
        os.utime(csi, (0, 0))
    else:
        contents = {"cut": csi.read_bytes()[:60], "garbage": b"garbage", "other": gzip.compress(b"other")}
        csi.write_bytes(contents[damage])
    assert split_by_size(vcf, names, None) == []


@pytest.mark.parametrize("part", [{}, {"region": Region("chr20", 40_002, 160_003), "samples": ["s9", "s7"]}])
def test_same_bytes(indexed: Path, small_regions: None, tmp_path: Path, part: dict) -> None:
    vcf = indexed
    assert len(split_by_size(vcf, contigs(vcf), part.get("region"))) >= 4
    one = compile_panel(BuildJob(vcf, tmp_path / "1.spin", MAP, **part))
    assert set(one.provenance["skipped"]) == {"duplicate of an earlier record", "symbolic ALT"}
    compile_panel(BuildJob(vcf, tmp_path / "2.spin", MAP, threads=2, **part)).close()
    assert (tmp_path / "1.spin").read_bytes() == (tmp_path / "2.spin").read_bytes()
    assert one.n_haplotypes == (39 if not part else 3)


def test_regions_without_records(
    write_large: WriteLarge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    vcf = write_large(large_text(records(300)))
    ends = [500, 1_000, 9_999, 10_000, 20_000, 2_000_000, LAST_POSITION]
    cut = [Region("20", start + 1, end) for start, end in pairwise([0, *ends])]
    monkeypatch.setattr("spinimpute.panels.formats.detection.split_by_size", lambda *_: cut)
    for threads in (1, 2):
        compile_panel(BuildJob(vcf, tmp_path / f"{threads}.spin", MAP, threads=threads)).close()
    assert (tmp_path / "1.spin").read_bytes() == (tmp_path / "2.spin").read_bytes()


@pytest.mark.parametrize(
    ("sample", "call", "message"),
    [
        (3, "1|.", "sample s3 has, at 20:196700, a missing genotype"),
        (3, "0/1", "sample s3 has, at 20:196700, an unphased heterozygote"),
        (3, "1", "sample s3 is haploid at 20:196700 but diploid before"),
        (7, "0|0", "sample s7 is diploid at 20:196700 but haploid before"),
    ],
)
def test_errors_are_the_same(
    write_large: WriteLarge, small_regions: None, tmp_path: Path, sample: int, call: str, message: str
) -> None:
    changed = records()
    for position, _, _, calls, *_ in changed:
        if position >= 196_700 and (position == 196_700 or len(call) == 1 or sample == 7):
            calls[sample] = call
    vcf = write_large(large_text(changed))
    assert 196_609 in [region.start for region in split_by_size(vcf, contigs(vcf), None)]
    before = sorted(tmp_path.iterdir())
    messages = []
    for threads in (1, 2):
        with pytest.raises(InputError, match=message) as error:
            compile_panel(BuildJob(vcf, tmp_path / "p.spin", MAP, threads=threads))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert sorted(tmp_path.iterdir()) == before


@NEEDS_PROC
def test_only_the_processes_hold_the_file(
    vcf: Path, small_regions: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[BatchReader] = []
    close = BatchReader.close
    monkeypatch.setattr(BatchReader, "close", lambda self: (closed.append(self), close(self)))
    regions = split_by_size(vcf, contigs(vcf), None)
    reader = ParallelBatchReader(vcf, None, None, regions, 2)
    assert len(closed) == 1
    assert reader.samples == NAMES
    assert str(vcf) not in [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_process_that_dies(
    vcf: Path, small_regions: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(vcf_reading, "_read_region", die)
    with pytest.raises(InputError, match="memory ran out"):
        compile_panel(BuildJob(vcf, tmp_path / "p.spin", MAP, threads=2))
    assert not list(tmp_path.glob("*.spin*"))
    assert not multiprocessing.active_children()


class Building(NamedTuple):
    """A program that builds `out`, and the processes that read for it."""

    process: "subprocess.Popen[str]"
    readers: list[int]
    out: Path


@pytest.fixture
def building(vcf: Path, tmp_path: Path) -> Building:
    out = tmp_path / "made" / "p.spin"
    out.parent.mkdir()
    script = tmp_path / "build.py"
    script.write_text(
        "import time\n"
        "from spinimpute.runtime.partial_files import PartialFile\n"
        "from spinimpute.vcf import index_reader\n"
        "index_reader.INTERVAL_BYTES = 1_000\n"
        "PartialFile.complete = lambda _: time.sleep(1000)  # it does not end by itself\n"
        "from spinimpute.cli.main import main\n"
        "if __name__ == '__main__':\n"
        f"    main('panel build --vcf {vcf} --out {out} --threads 2'.split())\n"
    )
    process = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}, start_new_session=True,
        # a test run in the background may ignore SIGINT, and children inherit that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    until = time.monotonic() + LIMIT
    while len(readers := readers_of(process.pid)) < 2:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.002)
    return Building(process, readers, out)


@NEEDS_PROC
@pytest.mark.parametrize("after", [0, 0.2])
def test_interrupt(building: Building, after: float) -> None:
    """Ctrl-C reaches all processes of a terminal's group."""
    process, readers, out = building
    time.sleep(after)
    os.killpg(process.pid, signal.SIGINT)
    out_text, err = process.communicate(timeout=LIMIT)
    assert process.returncode == 130
    assert out_text == ""
    lines = [line for line in err.splitlines() if line and "no genetic map" not in line]
    assert lines == ["spinimpute: interrupted"]
    assert not list(out.parent.iterdir())
    wait_for_end(readers)


@NEEDS_PROC
def test_a_program_that_is_killed_leaves_no_process(building: Building) -> None:
    building.process.kill()
    building.process.communicate()
    wait_for_end(building.readers)


def wait_for_end(processes: list[int]) -> None:
    until = time.monotonic() + LIMIT
    while any(Path(f"/proc/{process}").exists() for process in processes):
        assert time.monotonic() < until
        time.sleep(0.05)


def readers_of(parent: int) -> list[int]:
    """The processes that read for a command, which runs in the child of its watcher."""
    found = []
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        with contextlib.suppress(FileNotFoundError):  # it has ended
            is_reader = b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()
            found += [int(child)] if is_reader else readers_of(int(child))
    return found


def test_several_chromosomes(write_large: WriteLarge, small_regions: None, tmp_path: Path) -> None:
    """A file of several chromosomes needs a region."""
    first = large_text(records())
    lines = [line for line in first.splitlines() if not line.startswith("#")]
    vcf = write_large(first + "".join(f"21{line[2:]}\n" for line in lines))
    region = Region.parse("21:30000-220000")
    assert len(split_by_size(vcf, contigs(vcf), region)) >= 3
    assert split_by_size(vcf, contigs(vcf), None) == []
    for threads in (1, 2):
        compile_panel(BuildJob(vcf, tmp_path / f"{threads}.spin", MAP, region, threads=threads)).close()
    assert (tmp_path / "1.spin").read_bytes() == (tmp_path / "2.spin").read_bytes()
    with Panel.open(tmp_path / "2.spin") as panel:
        assert panel.chrom == "21"
    with pytest.raises(InputError, match="more than one chromosome, 20 and 21"):
        compile_panel(BuildJob(vcf, tmp_path / "p.spin", MAP, threads=2))
