"""Panels built from M3VCF equal those built from a VCF of the same haplotypes."""

import gzip
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from spinimpute.genotypes.sites import NoRecord, Region
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.panels.formats.text_lines import TextLines
from spinimpute.panels.spin_files import compile_panel_file, open_spin_file
from spinimpute.runtime.errors import InputError
from tests.panels.panel_formats import (
    MAP,
    assert_equal,
    first_sites,
    read_vcf,
    source_panel,
    write_m3vcf,
    write_text,
    write_vcf_text,
)

pytestmark = pytest.mark.slow

# version, whether blocks share records, whether version 2 has alleles like version 1
VERSIONS = [(1, True, False), (2, True, False), (2, True, True), (3, False, False), (3, True, False)]
GRCH38 = "##contig=<ID=X,length=156040895>"
needs_minimac4 = pytest.mark.skipif(shutil.which("minimac4") is None, reason="minimac4 is not installed")


SMALL = source_panel(
    (10, "A", "C", ["0|1", "1|0", "0|0"]),
    (20, "AT", "A", ["0|1", "1|1", "0|1"]),
    (30, "G", "T", ["0|0", "1|0", "0|0"]),
    (40, "G", "T", ["1|1", "1|1", "0|1"]),
)


@pytest.fixture(scope="module")
def small(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 biallelic sites of the example's panel, with the contig line that M3VCF has."""
    panel = first_sites(example / "panel.vcf.gz", 300)
    return write_vcf_text(tmp_path_factory.mktemp("small") / "small.vcf", panel)


@pytest.mark.parametrize(("version", "overlap", "dense"), VERSIONS)
@pytest.mark.parametrize("name", ["p.m3vcf.gz", "panel"])
def test_each_version_gives_the_panel_of_the_vcf(
    small: Path, tmp_path: Path, version: int, overlap: bool, dense: bool, name: str
) -> None:
    path = write_m3vcf(tmp_path / name, read_vcf(small), version, 40, overlap, dense)
    assert_equal(path, small)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("block", [2, 41, 1_000])
def test_regions_and_samples(small: Path, tmp_path: Path, version: int, block: int) -> None:
    panel = read_vcf(small)
    path = write_m3vcf(tmp_path / "p.m3vcf", panel, version, block)
    positions = [record.position for record in panel.records]
    region = Region("chr20", positions[90] + 1, positions[211])
    assert_equal(path, small, region=region, samples=[panel.samples[i] for i in (7, 3, 149)])


@pytest.mark.parametrize("version", [1, 2, 3])
def test_large_blocks_are_expanded_in_pieces(
    small: Path, tmp_path: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spinimpute.panels.formats.text_panel.BLOCK_BYTES", 1)
    assert_equal(write_m3vcf(tmp_path / "p.m3vcf", read_vcf(small), version, 100), small)


@needs_minimac4
@pytest.mark.parametrize("option", ["--update-m3vcf", "--compress-reference"])
def test_minimac4_reads_these_files_and_its_panels_are_read(
    small: Path, tmp_path: Path, option: str, index: Callable[[Path], None]
) -> None:
    """Minimac4 converts M3VCF of version 1, or a VCF, to version 3."""
    if option == "--update-m3vcf":
        source = write_m3vcf(tmp_path / "p.m3vcf.gz", read_vcf(small), 1, 40)
    else:
        source = tmp_path / "p.bcf"
        subprocess.run(["bcftools", "view", small, "-o", source], check=True)
        index(source)
    converted = tmp_path / "converted.bcf"
    subprocess.run(["minimac4", option, source, "-o", converted], check=True)
    text = subprocess.check_output(["bcftools", "view", converted], text=True)
    assert "<BLOCK>" in text
    assert_equal(write_text(tmp_path / "exported.vcf.gz", text), small)


@pytest.mark.parametrize("version", [1, 3])
def test_several_alt_alleles(tmp_path: Path, version: int) -> None:
    panel = source_panel(
        (10, "A", "C,G", ["0|1", "2|0", "0|0"]),
        (10, "A", "AT,<NON_REF>,*", ["3|1", "2|0", "0|0"]),
        (20, "C", "T", ["0|1", "1|1", "0|1"]),
        (20, "C", "G", ["0|0", "0|0", "1|0"]),
    )
    vcf = write_vcf_text(tmp_path / "p.vcf", panel)
    found = assert_equal(write_m3vcf(tmp_path / "p.m3vcf", panel, version, 2), vcf)
    assert found["skipped"] == {"symbolic ALT": 1}


def test_other_alt_alleles_of_minimac4_are_not_the_named_one(tmp_path: Path) -> None:
    """From a record with two ALT alleles, Minimac4 writes the first ALT, and the number 2 for the other."""
    calls = ["0|1", "2|0", "0|0"]
    path = write_m3vcf(tmp_path / "p.m3vcf", source_panel((10, "A", "C", calls)), 3)
    vcf = write_vcf_text(tmp_path / "p.vcf", source_panel((10, "A", "C", ["0|1", "0|0", "0|0"])))
    assert_equal(path, vcf)


@pytest.mark.parametrize("version", [1, 2, 3])
def test_unusable_and_repeated_records_are_skipped_as_in_a_vcf(tmp_path: Path, version: int) -> None:
    panel = source_panel(
        (0, "A", "C", ["0|1", "1|0", "0|0"]),
        (10, "A", "a", ["0|1", "1|0", "0|0"]),
        (20, "N", "T", ["0|1", "1|1", "0|1"]),
        (20, ".", "T", ["0|1", "1|1", "0|1"]),
        (30, "G", "T", ["1|0", "0|0", "0|0"]),
        (30, "A", "T", ["1|0", "0|0", "0|0"]),
        (30, "G", "T", ["1|0", "0|0", "0|0"]),
        (30, "A", "T", ["1|0", "0|1", "0|0"]),
        (40, "A", ".", ["0|0", "0|0", "0|0"]),
        (2**31, "A", "C", ["0|1", "1|0", "0|0"]),
    )
    last = panel.records.pop()  # bcftools does not write this position
    vcf = write_vcf_text(tmp_path / "p.vcf", panel)
    path = write_m3vcf(tmp_path / "p.m3vcf", panel, version, 3)
    found = assert_equal(path, vcf)
    assert found["skipped"] == {
        "at position 0, the telomere": 1,
        "ALT equals REF": 1,
        "REF is not a sequence of bases": 1,
        "duplicate of an earlier record": 1,
        "contradicts another record of the same site": 2,
        "no ALT allele": 1,
    }
    panel.records.append(last)
    found = assert_equal(write_m3vcf(tmp_path / "p.m3vcf", panel, version, 3), vcf)
    assert found["skipped"]["at a position beyond 2,147,483,647"] == 1


@pytest.mark.parametrize("version", [1, 2, 3])
def test_haploid_males(tmp_path: Path, version: int) -> None:
    panel = source_panel(
        (5_000_000, "A", "C", ["0|1", "1", "0"]),
        (5_000_010, "A", "C", ["0|1", "0", "1"]),
        (5_000_020, "A", "C", ["1|1", "1", "1"]),
        chrom="X",
    )
    vcf = write_vcf_text(tmp_path / "p.vcf", panel)
    assert_equal(write_m3vcf(tmp_path / "p.m3vcf", panel, version, 2), vcf, samples=["s2", "s0"])


@pytest.mark.parametrize("version", [2, 3])
def test_x_is_split_if_the_header_has_its_length(tmp_path: Path, version: int) -> None:
    par1 = source_panel(
        (1_000_000, "A", "C", ["0|1", "1|0", "0|0"]),
        (1_000_020, "A", "C", ["0|1", "1|0", "1|0"]),
        (1_000_030, "A", "C", ["0|0", "1|1", "1|0"]),
        chrom="X",
    )
    rest = source_panel(
        (5_000_000, "A", "C", ["0|1", "1", "0"]), (5_000_010, "A", "C", ["0|1", "1", "1"]), chrom="X"
    )
    whole = par1._replace(contig_lines=[GRCH38], records=par1.records + rest.records)
    vcf = write_vcf_text(tmp_path / "p.vcf", whole)
    first = write_m3vcf(tmp_path / "1.m3vcf", par1._replace(contig_lines=[GRCH38]), version, 2).read_text()
    second = write_m3vcf(tmp_path / "2.m3vcf", rest, version, 2).read_text()
    blocks = [line for line in second.splitlines(keepends=True) if not line.startswith("#")]
    path = write_text(tmp_path / "p.m3vcf", first + "".join(blocks))
    for source in (path, vcf):
        compile_panel_file(BuildJob(source, tmp_path / f"{source.name}.spin", MAP))
    with (
        open_spin_file(tmp_path / "p.vcf.spin") as expected,
        open_spin_file(tmp_path / "p.m3vcf.spin") as parts,
    ):
        assert [(part.n_sites, part.n_haplotypes) for part in parts] == [(3, 6), (2, 4)]
        assert [part.checksum for part in parts] == [part.checksum for part in expected]
    with pytest.raises(InputError, match=r"line \d+: the columns of the block differ .* in number or ploidy"):
        compile_panel(BuildJob(path, tmp_path / "q.spin", MAP))


def test_no_record_in_the_region(tmp_path: Path) -> None:
    path = write_m3vcf(tmp_path / "p.m3vcf", SMALL)
    for region in (Region("21"), Region("20", 50, 60), Region("20", 11, 12)):
        with pytest.raises(NoRecord, match="record in"):
            compile_panel(BuildJob(path, tmp_path / "q.spin", MAP, region))


def test_a_panel_of_m3vcf_imputes_the_records_of_its_vcf(run, example: Path, tmp_path: Path) -> None:
    vcf = write_vcf_text(tmp_path / "p.vcf", first_sites(example / "panel.vcf.gz", 2_000))
    path = write_m3vcf(tmp_path / "p.m3vcf.gz", read_vcf(vcf), 1, 90)
    for panel, out in ((vcf, "a.vcf"), (path, "b.vcf")):
        done = run(
            "impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "-o", tmp_path / out,
            "-q", "-t", 1, "--force",
        )  # fmt: skip
        assert done.code == 0, done.err
    records = [
        [line for line in (tmp_path / out).read_text().splitlines() if not line.startswith("##")]
        for out in ("a.vcf", "b.vcf")
    ]
    assert len(records[0]) == 2_001
    assert records[0] == records[1]


# version, a text of the good file, what replaces it, the line of the defect and a part of the message
DEFECTS = [
    (1, "n_blocks=2", "n_blocks=7", None, "the file has 2 blocks, its header says 7"),
    (1, "s1_HAP_2", "s1", 8, "expected columns named SAMPLE_HAP_1 and SAMPLE_HAP_2, got 's1'"),
    (1, "s1_HAP_2", "s9_HAP_2", 8, "the column s9_HAP_2 does not follow s9_HAP_1"),
    (1, "s2_HAP_1\ts2_HAP_2", "s0_HAP_1\ts0_HAP_2", 8, "two samples are named s0"),
    (1, "#CHROM\t", "CHROM\t", 8, "expected the line #CHROM with the names of the samples, got 'CHROM"),
    (1, "<BLOCK:1>", "rs1", 9, "expected the first line of a block, with <BLOCK>, got '20"),
    (1, "VARIANTS=3", "VARIANTS=0", 9, "expected VARIANTS=NUMBER in INFO, got 'B1;VARIANTS=0"),
    (1, "REPS=4", "REP=4", 9, "expected REPS=NUMBER in INFO"),
    (1, "REPS=4", "REPS=3", 9, r"the numbers of the 3 distinct haplotypes \(REPS\) are not 0 to 2"),
    (1, "REPS=4", "REPS=7", 9, "the numbers of the 7 distinct haplotypes"),
    (1, "VARIANTS=3", "VARIANTS=4", 13, "expected a record of 9 columns, got '20"),
    (1, "VARIANTS=3", "VARIANTS=2", 12, "expected the first line of a block, with <BLOCK>, got '20"),
    (1, "VARIANTS=2", "VARIANTS=3", 15, "expected a record of 9 columns, got the end of the file"),
    (1, "\t0111\n", "\t011\n", 11, "an allele .* each of the 4 distinct haplotypes, got '011'"),
    (1, "\t0111\n", "\t0112\n", 11, "an allele of the record .*, got '0112'"),
    (1, "\t0111\n", "\t011.\n", 11, "a missing allele. Fill or remove missing calls first"),
    (1, "\t0111\n", "\t0111\textra\n", 11, "expected a record of 9 columns, got '20"),
    (1, "20\t20\t", "20\t2x\t", 11, "the position '2x' is not a whole number"),
    (1, "20\t20\t", "20\t5\t", 11, "the positions go backwards, 5 after 10. Sort the panel"),
    (1, "20\t20\t", "21\t20\t", 11, "the chromosome is 21, but 20 before. Choose one with region="),
    (1, "\t0\t2\t", "\t0\t", 9, "expected numbers for 6 columns, got 5"),
    (1, "\t0\t2\t", "\t0\tx2\t", 9, "expected numbers of distinct haplotypes, got 'x'"),
    (2, "\t3|1\t", "\t3|-1\t", 4, "expected numbers of distinct haplotypes, got '-'"),
    (1, "\t1\t1\t", "\t1\t", 13, "the columns of the block differ from those of the first block"),
    (1, "\t1\t1\t", "\t1\t\t", 13, "the numbers of the 3 distinct haplotypes"),
    (1, "\t1\t1\t", "\t1\t1111111111\t", 13, "the numbers of the 3 distinct haplotypes"),
    (1, "\t011\n", "\t011", 15, "truncated: its last line has no newline"),
    (2, "0|2", "0|2|1", 4, "sample s0 has 3 haplotypes. Only haploid and diploid"),
    (2, "\t2,1\n", "\t2,0\n", 5, "an allele of the record for each"),
    (2, "\t2,1\n", "\t2,2\n", 5, "an allele of the record for each"),
    (2, "\t2,1\n", "\t2,\n", 5, "an allele of the record for each"),
    (2, "\t2,1\n", "\t2,1111111111\n", 5, "an allele of the record for each"),
    (2, "\tA\tC\t", "\tA\tC,G\t", 5, "cannot show which of several ALT alleles"),
    (2, "M3VCFv2.0", "M3VCFv7.0", None, "M3VCF of version 7 cannot be read"),
    (3, "UHA=0,0,1,1", "UHA=0,0,1", 7, "an allele of the record for each"),
    (3, "UHA=0,0,1,1", "UHA=0,0,1,10", 7, "an allele of the record for each"),
    (3, "UHA=0,0,1,1", "UHA=0,0,1,", 7, "an allele of the record for each"),
    (3, "UHA=0,0,1,1", "AF=1", 7, "an allele of the record for each"),
]


@pytest.mark.parametrize(("version", "good", "bad", "line", "said"), DEFECTS)
def test_defects(tmp_path: Path, version: int, good: str, bad: str, line: int | None, said: str) -> None:
    path = write_m3vcf(tmp_path / "p.m3vcf", SMALL, version, 3)
    text = path.read_text()
    assert good in text, text
    path.write_text(text.replace(good, bad, 1))
    where = f", line {line}" if line else "[^:]*"
    with pytest.raises(InputError, match=re.escape(f"panel {path}") + f"{where}: .*{said}"):
        compile_panel(BuildJob(path, tmp_path / "p.spin", MAP))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["p.m3vcf"]


def test_damaged_compression(tmp_path: Path) -> None:
    path = write_m3vcf(tmp_path / "p.m3vcf.gz", SMALL)
    content = path.read_bytes()
    bgzf = subprocess.check_output(["bgzip", "-c"], input=gzip.decompress(content))
    for damaged, said in (
        (content[:-30], "the compressed file is damaged"),
        (content[:-8] + b"12345678", "the compressed file is damaged"),
        (bgzf[:-28], "the block that ends a BGZF file is missing"),
    ):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match=said):
            compile_panel(BuildJob(path, tmp_path / "p.spin", MAP))


def test_an_endless_line_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TextLines.__init__, "__defaults__", (300,))
    path = write_m3vcf(tmp_path / "p.m3vcf", SMALL, 1, 3)
    path.write_text(path.read_text().replace("\t0111\n", "\t" + 400 * "0" + "\n"))
    with pytest.raises(InputError, match="line 11: the line is longer than 300 bytes"):
        compile_panel(BuildJob(path, tmp_path / "p.spin", MAP))


@pytest.mark.parametrize("name", ["p.vcf", "p.m3vcf"])
def test_too_many_records_of_one_position(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spinimpute.panels.vcf_reading.MOST_AT_POSITION", 20)
    panel = source_panel(*[(10, "A", "C", ["0|1", "1|0"])] * 21)
    path = (write_vcf_text if name == "p.vcf" else write_m3vcf)(tmp_path / name, panel)
    with pytest.raises(InputError, match=f"panel {path}.*: more than 20 records at 20:10"):
        compile_panel(BuildJob(path, tmp_path / "p.spin", MAP))


def test_structural_variants_are_skipped(tmp_path: Path) -> None:
    """The format does not say where they end. In a VCF, the panel would have them."""
    rows = [(10, "A", "C", ["0|1", "1|0"]), (15, "A", "<DEL>", ["0|1", "1|1"])]
    vcf = write_vcf_text(tmp_path / "p.vcf", source_panel(rows[0]))
    found = assert_equal(write_m3vcf(tmp_path / "p.m3vcf", source_panel(*rows), 3), vcf)
    assert found["skipped"] == {"symbolic ALT": 1}
