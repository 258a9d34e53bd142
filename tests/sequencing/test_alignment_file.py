"""Opening BAM and CRAM files: every defect gives one message, and nothing else is printed."""

import gzip
import os
import random
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pysam
import pytest

from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.alignment_file import AlignmentFile

PanelOf = Callable[..., SimpleNamespace]
WriteReads = Callable[..., Path]
PANEL = [(103, "A", "C"), (105, "G", "T")]
REFERENCE = "ACGT" * 500


@pytest.fixture(autouse=True)
def nothing_is_printed(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> object:
    verbosity = pysam.get_verbosity()
    monkeypatch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # in place of the hook of pytest
    yield
    # htslib prints this for a CRAM's empty reference, whatever its verbosity
    assert capfd.readouterr().err.replace("bgzf_read() on reference file: Success\n", "") == ""
    assert pysam.get_verbosity() == verbosity


@pytest.fixture
def fasta(tmp_path: Path) -> Path:
    path = tmp_path / "reference.fa"
    path.write_text(f">20\n{REFERENCE}\n")
    pysam.faidx(str(path))
    return path


@pytest.fixture
def reads() -> list:
    return [(f"r{i}", 101 + i, "8M", REFERENCE[100 + i : 108 + i], "5" * 8) for i in range(20)]


def names(path: Path, panel: SimpleNamespace, reference: Path | None = None) -> list[str]:
    with AlignmentFile(path, panel, reference) as file:
        return [file.fragment(read).split()[0] for read in file.reads(103, 105)]


def opening_fails(path: Path, panel: SimpleNamespace, message: str, reference: Path | None = None) -> None:
    with pytest.raises(InputError, match=message) as error:
        names(path, panel, reference)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("contig", ["20", "chr20"])
def test_reads_of_an_interval(write_reads: WriteReads, reads: list, panel_of: PanelOf, contig: str) -> None:
    path = write_reads(reads, contigs=[(contig, 2000), ("20_alt", 9)])
    panel = panel_of(PANEL, length=2000)
    with AlignmentFile(path, panel) as file:
        assert (file.sample, file.contig) == ("NA1", contig)
    for known in (panel, panel_of(PANEL, length=None)):
        assert names(path, known) == ["r0", "r1", "r2", "r3", "r4"]


@pytest.mark.parametrize("index", ["t.bam.bai", "t.bai", "t.bam.csi", "t.csi"])
def test_every_name_of_an_index(write_reads: WriteReads, reads: list, panel_of: PanelOf, index: str) -> None:
    path = write_reads(reads, index=False)
    pysam.index(*(["-c"] if index.endswith("csi") else []), "-o", str(path.with_name(index)), str(path))
    assert len(names(path, panel_of(PANEL))) == 5


def test_index_missing_damaged_or_old(write_reads: WriteReads, reads: list, panel_of: PanelOf) -> None:
    path, panel = write_reads(reads), panel_of(PANEL)
    index = Path(f"{path}.bai")
    os.utime(index, (0, 0))
    with pytest.warns(UserWarning, match=r"index .*t\.bam\.bai is older than its file"):
        assert len(names(path, panel)) == 5
    index.write_bytes(b"BAI\2")
    opening_fails(path, panel, r"its index .*t\.bam\.bai cannot be read. Write it again: samtools index")
    index.unlink()
    opening_fails(path, panel, r"its index is missing. Write it: samtools index .*t\.bam$")


@pytest.mark.parametrize("index", ["t.bam.bai", "t.bam.csi"])
def test_damaged_bins_of_an_index(write_reads, reads, panel_of, index) -> None:
    """htslib loops forever with a bin that does not exist, and crashes with a truncated index."""
    path, panel = write_reads(reads, index=False), panel_of(PANEL)
    place = path.with_name(index)
    pysam.index(*(["-c"] if index.endswith("csi") else []), "-o", str(place), str(path))
    is_csi = index.endswith("csi")
    content = gzip.decompress(place.read_bytes()) if is_csi else place.read_bytes()
    depth = struct.unpack_from("<i", content, 8)[0] if is_csi else 5
    n_bins = (8 ** (depth + 1) - 1) // 7
    counting_bin = struct.pack("<I", n_bins + 1)
    assert counting_bin in content
    end = len(content) - 8  # the number of reads without a place may be missing
    place.write_bytes(content[:end])
    assert len(names(path, panel)) == 5
    damaged = [content[:cut] for cut in range(end)]
    numbers = (struct.pack("<I", number) for number in (n_bins, 10**6, 2**31, 2**32 - 7))
    damaged += [content.replace(counting_bin, number) for number in numbers]
    for wrong in damaged:
        place.write_bytes(wrong)
        opening_fails(path, panel, rf"its index .*{index} cannot be read. Write it again: samtools .*t\.bam$")


@pytest.mark.parametrize("kind", ["bai", "csi"])
def test_the_index_of_another_file(write_reads: WriteReads, panel_of: PanelOf, kind: str) -> None:
    """The other BAM is shorter, empty or longer, with equal or different blocks."""
    rng, panel = random.Random(2), panel_of(PANEL)
    letters = ("".join(rng.choices("ACGT", k=60)) for _ in range(4000))
    reads = [(f"r{i}", 101 + i // 20, "60M", text, "5" * 60) for i, text in enumerate(letters)]
    unplaced = [(f"u{i}", 0, "", "ACGT", "5555", 4, 60, None, -1) for i in range(2000)]
    whole = write_reads([*reads, *unplaced], index=False)
    index = Path(f"{whole}.{kind}")
    options = ["-c"] * (kind == "csi")
    for own in ([*reads, *unplaced], reads, reads[:3], unplaced, unplaced[:3], []):
        path = write_reads(own, name="own.bam", index=False)
        pysam.index(*options, str(path))
        with AlignmentFile(path, panel) as file:
            assert sum(1 for _ in file.reads(1, 10_000)) == sum(read[1] > 0 for read in own)
    for others in (reads[:2400], reads[:3999], reads[1:], reads[:1], unplaced, [], [*reads, *reads]):
        other = write_reads(others, name="other.bam", index=False)
        pysam.index(*options, "-o", str(index), str(other))
        opening_fails(whole, panel, rf"its index .*t\.bam\.{kind} is of another file.*: samtools .*t\.bam$")


def test_files_of_another_format(tmp_path: Path, panel_of: PanelOf) -> None:
    panel, path = panel_of(PANEL), tmp_path / "x.bam"
    opening_fails(path, panel, "there is no such file")
    opening_fails(tmp_path, panel, "it is a folder")
    path.write_text("hello\n" * 30)
    opening_fails(path, panel, "cannot be read as BAM or CRAM")
    path.write_bytes(b"")
    opening_fails(path, panel, "cannot be read as BAM or CRAM")
    path.write_text("@HD\tVN:1.6\n@SQ\tSN:20\tLN:2000\nr\t0\t20\t1\t60\t3M\t*\t0\t0\tACG\tIII\n")
    opening_fails(path, panel, r"it is SAM text\. Convert it to BAM")


def test_damaged_and_gzipped_headers(write_reads: WriteReads, reads: list, panel_of: PanelOf) -> None:
    """pysam fails again when it closes a BAM with a damaged first block."""
    path, panel = write_reads(reads), panel_of(PANEL)
    content = path.read_bytes()
    end = int.from_bytes(content[16:18], "little") + 1
    path.write_bytes(content[: end - 8] + b"\0" * 4 + content[end - 4 :])  # its checksum
    opening_fails(path, panel, "cannot be read as BAM or CRAM")
    path.write_bytes(gzip.compress(gzip.decompress(content)))
    opening_fails(path, panel, r"it is compressed by gzip, not in blocks \(BGZF\)\. .*samtools view -b")


@pytest.mark.parametrize("name", ["t.bam", "t.cram"])
def test_truncated_and_damaged(write_reads: WriteReads, panel_of: PanelOf, fasta: Path, name: str) -> None:
    many = [(f"r{i}", 101 + i // 20, "8M", "ACGTACGT", "5" * 8) for i in range(9_000)]
    path = write_reads(many, name=name, contigs=[("20", 2000)], reference=fasta)
    panel, content = panel_of(PANEL, length=2000), path.read_bytes()
    path.write_bytes(content[:-40])
    os.utime(path, (0, 0))
    opening_fails(path, panel, "truncated|damaged|cannot be read", fasta)
    middle = len(content) // 3
    path.write_bytes(content[:middle] + b"\x55" * 2000 + content[middle + 2000 :])
    os.utime(path, (0, 0))
    with (
        pytest.raises(
            InputError,
            match=rf"file is damaged.*cannot be read from 20:.*quickcheck.*: samtools index .*{name}$",
        ),
        AlignmentFile(path, panel, fasta) as file,
    ):
        list(file.reads(1, 2000))


def with_header(path: Path, old: str, new: str) -> Path:
    """Replace text of a BAM's header, whatever pysam would accept."""
    with pysam.BGZFile(str(path)) as file:
        content = file.read()
    (length,) = struct.unpack_from("<i", content, 4)
    text = content[8 : 8 + length].replace(old.encode(), new.encode())
    assert text != content[8 : 8 + length]
    with pysam.BGZFile(str(path), "w") as file:
        file.write(content[:4] + struct.pack("<i", len(text)) + text + content[8 + length :])
    pysam.index(str(path))
    return path


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("SM:NA1", "SM:NA1\t"),
        ("LN:2000", "LN:2000\t"),
        ("ID:one\t", "ID:one\t\t"),
        ("ID:one\t", "ID:one\tplatform\t"),
        ("ID:one\t", ""),
        ("LN:2000", "LN:2e3"),
        ("\tLN:2000", ""),
        ("SM:NA1\n", "SM:NA1\n@CO\n"),
        ("SM:NA1\n", "SM:NA1\n@HD\tVN:1.5\n"),
        ("SM:NA1\n", "SM:NA1\n@ZZ\tAA:b\n"),
        ("SM:NA1\n", "SM:NA1\n@rg\tID:two\tSM:other\n"),
        ("SM:NA1\n", "SM:NA1\n@co by hand\n"),
        ("SM:NA1\n", "SM:NA1\n@PG\tPN:bwa\tlong:3\n"),
        ("SM:NA1\n", "SM:NA1\r\n"),
        ("@HD", "@hd"),
    ],
    ids=repr,
)
def test_headers_that_violate_the_specification(write_reads, reads, panel_of, old, new) -> None:
    path = with_header(write_reads(reads, contigs=[("20", 2000)]), old, new)
    panel = panel_of(PANEL, length=2000)
    with AlignmentFile(path, panel) as file:
        assert file.sample == "NA1"
    assert len(names(path, panel)) == 5


def test_a_file_name_with_invalid_utf8(write_reads, reads, panel_of, tmp_path) -> None:
    """The file name is the sample's name if no read group has one."""
    path, panel = tmp_path / os.fsdecode(b"caf\xe9.bam"), panel_of(PANEL)
    written = write_reads(reads, groups=[])
    os.rename(f"{written}.bai", f"{path}.bai")
    os.rename(written, path)
    with AlignmentFile(path, panel) as file:
        assert file.sample == r"caf\xe9"


def test_samples(write_reads: WriteReads, reads: list, panel_of: PanelOf) -> None:
    panel = panel_of(PANEL)
    two = [{"ID": "a", "SM": "NA1"}, {"ID": "b", "SM": "NA2"}, {"ID": "c", "SM": "NA1"}]
    opening_fails(write_reads(reads, groups=two), panel, r"reads of 2 samples \(NA1, NA2\)\. Give a file")
    many = [{"ID": f"{i}", "SM": f"s{i}"} for i in range(12)]
    opening_fails(write_reads(reads, groups=many), panel, r"12 samples \(s0, .*, s9 and 2 more\)")
    for groups in ([], [{"ID": "a"}], [{"ID": "a", "SM": " "}]):
        with AlignmentFile(write_reads(reads, name="NA7.x.bam", groups=groups), panel) as file:
            assert file.sample == "NA7.x"


@pytest.mark.parametrize(
    ("contigs", "length", "message"),
    [
        ([("21", 63025520)], 63025520, "its header has no 20. Its chromosomes are 21. Align"),
        ([("20", 9), ("chr20", 9)], 9, "its header has several names of 20, 20, chr20"),
        ([("20", 64444167)], 63025520, r"64,444,167 bases \(GRCh38\), but the panel's .* 63,025,520 \(GR"),
        ([("20", 2000)], 1999, r"panel's header line \(##contig=<ID=20,length=1999>\) says 1,999\. Align"),
        ([("20", 104)], None, "20 has 104 bases, but the panel reaches position 105"),
    ],
)  # fmt: skip
def test_other_chromosomes_and_builds(write_reads, panel_of, contigs, length, message) -> None:
    opening_fails(write_reads([], contigs=contigs), panel_of(PANEL, length=length), message)


@pytest.mark.parametrize(
    ("shifted", "errors"),
    [((3600, 4000), 0), ((1600, 2000), 0), ((400, 4000), 0), ((0, 4000), 0), (None, 0), (None, 0.05)],
    ids=["end", "middle", "all but the start", "everything", "nothing", "errors"],
)
def test_a_header_line_of_another_build(write_reads, panel_of, shifted, errors) -> None:
    """Reads that show the panel's alleles everywhere are of its build, whatever the length in the header."""
    random_ = random.Random(2)
    letters = random_.choices("ACGT", k=4200)
    others = str.maketrans("ACGT", "CATG")
    sites = [(101 + i, letters[i], letters[i].translate(others)) for i in range(0, 4000, 8)]
    lines = []
    for start in range(0, 3980, 10):
        text = list(letters[start : start + 20])
        for place in range(20):
            if random_.random() < errors:
                text[place] = random_.choice("ACGT")
        shift = 30 if shifted and shifted[0] <= start < shifted[1] else 0
        lines.append((f"r{start}", 101 + start + shift, "20M", "".join(text), "5" * 20))
    path = write_reads(lines, contigs=[("20", 5000)])
    panel = panel_of(sites, length=5500)
    if shifted:
        text = r"another genome build: .*panel's header line .* says 5,500; .*have panel alleles at \d"
        opening_fails(path, panel, text)
        return
    with pytest.warns(
        UserWarning, match=r"t\.bam: .*##contig=<ID=20,length=5500>.* seems to be wrong: the reads"
    ):
        assert names(path, panel)


def test_reads_beside_the_sites(write_reads: WriteReads, panel_of: PanelOf) -> None:
    """If many reads cover no site, they are of another build, even if the first reads agree."""
    sites = [(101 + 100 * i, "A", "G") for i in range(3000)]
    starts = (96 + 100 * i + (0 if i < 300 else 50) for i in range(3000))
    lines = [(f"r{i}", start, "10M", "CCCCCACCCC", "5" * 10) for i, start in enumerate(starts)]
    path = write_reads(lines, contigs=[("20", 350_000)])
    panel = panel_of(sites, length=355_000)
    opening_fails(path, panel, "another genome build: .*, at 0 of 0 between positions 30,101 and 60,001")
    path = write_reads(lines[:450], contigs=[("20", 350_000)])  # few reads are no evidence
    with pytest.warns(UserWarning, match="seems to be wrong"):
        assert names(path, panel)


def test_references_of_a_cram(write_reads: WriteReads, reads: list, panel_of: PanelOf, fasta: Path) -> None:
    path = write_reads(reads, name="t.cram", contigs=[("20", 2000)], reference=fasta)
    panel = panel_of(PANEL, length=2000)
    assert names(path, panel, fasta) == ["r0", "r1", "r2", "r3", "r4"]
    opening_fails(path, panel, r"differences from a reference genome. Give its FASTA \(reference=\.\.\.\)")
    reference_fails(path, panel, fasta.with_name("none.fa"), "there is no such file")
    other = fasta.with_name("other.fa")
    other.write_text(f">20\n{REFERENCE[::-1]}\n")
    reference_fails(path, panel, other, r"its index other\.fa\.fai cannot be read .* samtools faidx")
    assert not other.with_name("other.fa.fai").exists()
    pysam.faidx(str(other))
    reference_fails(path, panel, other, r"its 20 is not that of .*t\.cram: its MD5 is [0-9a-f]{32}, and")
    for line in ("", "\t2000\t4\t60\t2", "\t2000\t4\t60\t60", "\t2000\t4\t0\t1", "\t2000\t-4\t60\t61"):
        other.with_name("other.fa.fai").write_text(f"20{line}\n")
        reference_fails(path, panel, other, r"other\.fa\.fai is not its index")
    texts = {f">20\n{REFERENCE}A\n": "20 has 2,001 bases in it", ">21\nA\n": "20 is missing in it"}
    for text, message in texts.items():
        other.write_text(text)
        pysam.faidx(str(other))
        reference_fails(path, panel, other, f"{message}, and has 2,000 in .*t.cram")
    Path(f"{path}.crai").unlink()
    opening_fails(path, panel, "its index is missing. Write it: samtools index", fasta)


@pytest.mark.parametrize("option", ["no_ref=1", "embed_ref=1"])
def test_crams_that_need_no_reference(write_reads, reads, panel_of, fasta, option) -> None:
    """They contain all bases; a missing reference that the header names is not needed."""
    bam = write_reads(reads, contigs=[("20", 2000)])
    path, panel = bam.with_name("t.cram"), panel_of(PANEL, length=2000)
    options = ["-C", "-T", str(fasta), "--output-fmt-option", option, "-o", str(path)]
    pysam.view(*options, str(bam), catch_stdout=False)
    pysam.index(str(path))
    assert names(path, panel, fasta) == ["r0", "r1", "r2", "r3", "r4"]
    fasta.unlink()
    assert names(path, panel) == ["r0", "r1", "r2", "r3", "r4"]
    assert [one.name for one in path.parent.glob("*reference*")] == ["reference.fa.fai"]


def test_no_reference_is_searched(write_reads, reads, panel_of, fasta, monkeypatch, tmp_path) -> None:
    """It is searched neither at the header's path nor in REF_PATH."""
    path = write_reads(reads, name="t.cram", contigs=[("20", 2000)], reference=fasta)
    with pysam.AlignmentFile(str(path)) as file:
        (line,) = file.header.to_dict()["SQ"]
    assert line["UR"].endswith("reference.fa")
    fasta.with_name("reference.fa.fai").unlink()
    (tmp_path / line["M5"]).write_text(REFERENCE)
    monkeypatch.setenv("REF_PATH", str(tmp_path))
    opening_fails(path, panel_of(PANEL, length=2000), "differences from a reference genome")
    assert not fasta.with_name("reference.fa.fai").exists()


def reference_fails(path: Path, panel: SimpleNamespace, reference: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as error:
        names(path, panel, reference)
    assert str(error.value).startswith(f"reference {reference}: ")


def test_names_with_invalid_utf8(write_reads: WriteReads, reads: list, panel_of: PanelOf) -> None:
    path, panel = write_reads(reads, contigs=[("20", 2000)]), panel_of(PANEL, length=2000)
    with pysam.BGZFile(str(path)) as file:
        content = file.read()
    for message, old, new in (
        ("the name of a read at 20:103 is not valid UTF-8", b"r2\0", b"\xffz\0"),
        ("its header is not valid UTF-8", b"SM:NA1", b"SM:\xff\xfe1"),
    ):
        assert old in content
        with pysam.BGZFile(str(path), "w") as file:
            file.write(content.replace(old, new))
        pysam.index(str(path))
        opening_fails(path, panel, message)
