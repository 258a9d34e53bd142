"""Panels built from the haplotypes of IMPUTE equal those built from a VCF of the same haplotypes."""

import gzip
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from spinimpute.genotypes.sites import NoRecord, Region
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.panels.formats import text_panel
from spinimpute.panels.formats.hap_legend import HapLegend
from spinimpute.runtime.errors import InputError
from tests.panels.panel_formats import (
    MAP,
    assert_equal,
    first_sites,
    read_vcf,
    source_panel,
    write_hap_legend,
    write_vcf_text,
)

pytestmark = pytest.mark.slow

SMALL = source_panel(
    (10, "A", "C", ["0|1", "1|0", "0|0"]),
    (20, "AT", "A", ["0|1", "1|1", "0|1"]),
    (30, "G", "T", ["0|0", "1|0", "0|0"]),
)
MALES = source_panel(
    (5_000_000, "A", "C", ["0|1", "1", "0", "0|0"]),
    (5_000_010, "A", "C", ["0|1", "0", "1", "1|0"]),
    (5_000_020, "A", "C", ["1|1", "1", "1", "1|0"]),
    chrom="X",
)


@pytest.fixture(scope="module")
def small(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 biallelic sites of the example's panel."""
    panel = first_sites(example / "panel.vcf.gz", 300)
    return write_vcf_text(tmp_path_factory.mktemp("small") / "small.vcf", panel)


@pytest.mark.parametrize("end", ["", ".gz"])
@pytest.mark.parametrize("block_bytes", [1, text_panel.BLOCK_BYTES])
def test_the_panel_of_the_vcf(
    small: Path, tmp_path: Path, end: str, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_panel, "BLOCK_BYTES", block_bytes)
    panel = read_vcf(small)
    positions = [record.position for record in panel.records]
    files = write_hap_legend(tmp_path, panel, end)
    assert_equal(files, small)
    region = Region("chr20", positions[90] + 1, positions[211])
    assert_equal(files, small, region=region, samples=[panel.samples[i] for i in (7, 3, 149)])


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_files_of_bcftools(small: Path, tmp_path: Path) -> None:
    named = MALES._replace(records=[one._replace(name=f"rs{one.position}") for one in MALES.records])
    for vcf, chrom in ((small, "20"), (write_vcf_text(tmp_path / "x.vcf", named), "X")):
        prefix = tmp_path / vcf.stem
        subprocess.run(["bcftools", "convert", "--vcf-ids", "--haplegendsample", prefix, vcf], check=True)
        files = [f"{prefix}{end}" for end in (".hap.gz", ".legend.gz", ".samples")]
        assert_equal(HapLegend(*files, chrom), vcf)


def test_other_separators_and_line_ends(small: Path, tmp_path: Path) -> None:
    files = write_hap_legend(tmp_path, read_vcf(small), "")
    for number, path in enumerate((files.hap, files.legend, files.sample)):
        lines = Path(path).read_text().splitlines()
        lines[3::2] = [line.replace(" ", "  " if number else "\t") + " " for line in lines[3::2]]
        # as programs on Windows write text, with a byte-order mark
        Path(path).write_text("".join(f"{line}\r\n" for line in lines), encoding="utf-8-sig")
    assert_equal(files, small)


@pytest.mark.parametrize("layout", ["dashes", "columns"])
def test_haploid_males(tmp_path: Path, layout: str) -> None:
    """The second column of a male has dashes, or it is absent, and the .sample file has the sexes."""
    vcf = write_vcf_text(tmp_path / "p.vcf", MALES)
    files = write_hap_legend(tmp_path, MALES)
    if layout == "columns":
        Path(files.hap).write_text(Path(files.hap).read_text().replace(" -", ""))
    for samples in (None, ["s2", "s0"]):
        assert_equal(files, vcf, samples=samples)


def test_regions_of_x_with_other_ploidies(tmp_path: Path) -> None:
    """Each part of X can be built, although males are diploid in one and haploid in the other."""
    par1 = source_panel(
        (1_000_000, "A", "C", ["0|1", "0|0", "0|1", "1|0"]),
        (1_000_010, "A", "C", ["0|1", "1|0", "1|1", "0|0"]),
        chrom="X",
    )
    whole = MALES._replace(records=par1.records + MALES.records)
    files, vcf = write_hap_legend(tmp_path, whole), write_vcf_text(tmp_path / "p.vcf", whole)
    for region in (Region("X", 1, 2_000_000), Region("X", 5_000_000)):
        assert_equal(files, vcf, region=region)
    with pytest.raises(InputError, match=r"line 3: column 4 has '-' in some lines and an allele in others"):
        compile_panel(BuildJob(files, tmp_path / "q.spin", MAP))


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("ID POP GROUP SEX\n", "{name} GBR EUR {sex}\n"),
        ("sample population group sex\n", "{name} {name} {name} {number}\n"),
        ("ID_1 ID_2 missing sex\n0 0 0 D\n", "family {name} 0 {number}\n"),
    ],
)
def test_sample_files(tmp_path: Path, header: str, row: str) -> None:
    vcf = write_vcf_text(tmp_path / "p.vcf", MALES)
    files = write_hap_legend(tmp_path, MALES)
    Path(files.hap).write_text(Path(files.hap).read_text().replace(" -", ""))
    sexes = [("female", 2), ("male", 1), ("male", 1), ("NA", 0)]
    rows = [
        row.format(name=name, sex=sex, number=number)
        for name, (sex, number) in zip(MALES.samples, sexes, strict=True)
    ]
    Path(files.sample).write_text(header + "".join(rows))
    assert_equal(files, vcf)


def test_unusable_and_repeated_sites_are_skipped_as_in_a_vcf(tmp_path: Path) -> None:
    panel = source_panel(
        (0, "A", "C", ["0|1", "1|0"]),
        (10, "A", "<NON_REF>", ["0|1", "1|0"]),
        (10, "A", "A", ["0|1", "1|0"]),
        (20, ".", "T", ["0|1", "1|1"]),
        (30, "G", "T", ["1|0", "0|0"]),
        (30, "A", "T", ["1|0", "0|0"]),
        (30, "G", "T", ["1|0", "0|0"]),
        (30, "A", "T", ["1|0", "0|1"]),
    )
    vcf = write_vcf_text(tmp_path / "p.vcf", panel)
    found = assert_equal(write_hap_legend(tmp_path, panel), vcf)
    assert found["skipped"] == {
        "at position 0, the telomere": 1,
        "symbolic ALT": 1,
        "ALT equals REF": 1,
        "REF is not a sequence of bases": 1,
        "duplicate of an earlier record": 1,
        "contradicts another record of the same site": 2,
    }


def test_further_columns_of_the_legend_are_ignored(small: Path, tmp_path: Path) -> None:
    files = write_hap_legend(tmp_path, read_vcf(small))
    lines = Path(files.legend).read_text().splitlines()
    Path(files.legend).write_text("".join(f"{line} Biallelic_SNP 0.5 0\n" for line in lines))
    assert_equal(files, small)


def test_no_site_in_the_region(tmp_path: Path) -> None:
    files = write_hap_legend(tmp_path, SMALL)
    with pytest.raises(NoRecord, match="no usable record in 20:40-50"):
        compile_panel(BuildJob(files, tmp_path / "p.spin", MAP, Region("20", 40, 50)))
    with pytest.raises(InputError, match="the region 21 is not on chromosome 20"):
        compile_panel(BuildJob(files, tmp_path / "p.spin", MAP, Region("21")))
    with pytest.raises(InputError, match="1 of the requested samples are not in the file: x"):
        compile_panel(BuildJob(files, tmp_path / "p.spin", MAP, samples=["s0", "x"]))


# file, a text of the good file, what replaces it, the line of the defect, and a part of the message
DEFECTS = [
    ("hap", "0 1 1 0 0 0", "0 1 1 0 0", 1, "expected 6 columns for the 3 samples of .*p.sample, got 5"),
    ("hap", "0 1 1 1 0 1", "0 1 1 1 0", 2, "expected 6 columns as in the first line, got 5"),
    ("hap", "0 1 1 1 0 1", "0 1 1 1 0 1 1", 2, "expected 6 columns as in the first line, got 7"),
    ("hap", "0 1 1 1 0 1", "0 1 1 11 0 1", 2, "expected alleles 0 and 1, got '11'"),
    ("hap", "0 1 1 1 0 1", "0* 1* 1 1 0 1", 2, r"expected alleles 0 and 1, got '0\*'. Phase the file"),
    ("hap", "0 1 1 1 0 1", "0 1 1 ? 0 1", 2, "column 4 has a missing allele. Fill or remove"),
    ("hap", "0 1 1 1 0 1", "0 1 1 . 0 1", 2, "column 4 has a missing allele. Fill or remove"),
    ("hap", "0 1 1 1 0 1", "0 1 1 2 0 1", 2, "column 4 has '2', but alleles are 0 and 1"),
    ("hap", "0 1 1 1 0 1", "0 1 1 - 0 1", 2, "column 4 has '-' in some lines and an allele in others"),
    ("hap", "0 1 1 0 0 0", "0 1 1 - 0 0", 2, "column 4 has '-' in some lines and an allele in others"),
    ("hap", "0 1 1 0 0 0", "- 1 1 0 0 0", 1, "column 1 has '-' in some lines and an allele in others"),
    ("hap", "0 1 1 1 0 1\n", "", None, "it has fewer lines than .*p.legend has sites"),
    ("hap", "0 1 1 1 0 1\n", "0 1 1 1 0 1\n0 1 1 1 0 1\n", None, "it has more lines than .*p.legend has"),
    ("hap", "0 0 1 0 0 0\n", "0 0 1 0 0 0", 3, "truncated: its last line has no newline"),
    ("legend", "id position a0 a1\n", "", 1, "expected a header, such as 'id position a0 a1', got '. 10"),
    ("legend", ". 20 AT A", ". 20 AT", 3, "expected ID, position and two alleles, got '. 20 AT"),
    ("legend", ". 20 AT A", ". 2x AT A", 3, "the position '2x' is not a whole number"),
    ("legend", ". 20 AT A", ". 5 AT A", 3, "the positions go backwards, 5 after 10. Sort the panel"),
    ("legend", ". 20 AT A", ". 20 \udcff A", 3, "is not valid UTF-8. Is the file damaged"),
    ("sample", "sample population group sex\n", "", 1, "expected a header, such as 'sample population"),
    ("sample", "s1 s1", "s0 s1", 4, "two samples are named s0. Rename one of them"),
    ("sample", "s1 s1 s1 2", "s1 s1", 3, "expected 4 columns as in the header, got 2"),
]


@pytest.mark.parametrize(("end", "good", "bad", "line", "said"), DEFECTS)
def test_defects(tmp_path: Path, end: str, good: str, bad: str, line: int | None, said: str) -> None:
    files = write_hap_legend(tmp_path, SMALL)
    path = tmp_path / f"p.{end}"
    text = path.read_text()
    assert good in text, text
    path.write_bytes(text.replace(good, bad, 1).encode(errors="surrogateescape"))
    where = f", line {line}" if line else ""
    with pytest.raises(InputError, match=re.escape(f"panel {path}") + f"{where}: .*{said}"):
        compile_panel(BuildJob(files, tmp_path / "p.spin", MAP))
    assert sorted(one.suffix for one in tmp_path.iterdir()) == [".hap", ".legend", ".sample"]


def test_damaged_and_absent_files(tmp_path: Path) -> None:
    files = write_hap_legend(tmp_path, SMALL, ".gz")
    for name in ("hap", "legend", "sample"):
        path = Path(getattr(files, name))
        content = path.read_bytes()
        for damaged, said in (
            (content[:-10], "the compressed file is damaged"),
            (subprocess.check_output(["bgzip"], input=gzip.decompress(content))[:-28], "is truncated"),
            (b"", "the file is empty"),
            (None, "there is no such file"),
        ):
            path.unlink()
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(InputError, match=re.escape(f"panel {path}") + f".*{said}"):
                compile_panel(BuildJob(files, tmp_path / "p.spin", MAP))
        path.write_bytes(content)


def test_command(run, small: Path, tmp_path: Path) -> None:
    files = write_hap_legend(tmp_path, read_vcf(small), ".gz")
    given = ["--hap", files.hap, "--legend", files.legend, "--sample", files.sample, "--chromosome", "20"]
    build = ["panel", "build", "-t", "1", "-q", "-f", "-o", tmp_path / "p.spin"]
    assert run(*build, *given).code == 0
    assert run(*build[:-1], tmp_path / "v.spin", "--vcf", small).code == 0
    shown = [run("panel", "info", tmp_path / name).out for name in ("p.spin", "v.spin")]
    checksums = [re.findall("checksum .*", text) for text in shown]
    assert checksums[0] == checksums[1]
    assert "hap.gz" in shown[0]
    for words, said in (
        (given[:4], "--hap needs all of --hap, --legend, --sample, --chromosome. Add --sample and --chromo"),
        (given[2:], "Add --hap"),
        ([*given, "--vcf", small], "--vcf and --hap exclude each other"),
        ([], "there is no panel: give --vcf FILE, or --hap FILE"),
    ):
        done = run(*build, *words)
        assert (done.code, done.out) == (2, "")
        assert said in done.err


def test_haplotypes_of_many_samples_are_read_in_blocks(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    calls = rng.integers(0, 2, (40, 700, 2))
    panel = source_panel(
        *((10 * i, "A", "C", [f"{a}|{b}" for a, b in row]) for i, row in enumerate(calls, 1))
    )
    assert_equal(write_hap_legend(tmp_path, panel), write_vcf_text(tmp_path / "p.vcf", panel))


def test_structural_variants_are_skipped(tmp_path: Path) -> None:
    """The format does not say where they end. In a VCF, the panel would have them."""
    rows = [(10, "A", "C", ["0|1", "1|0"]), (15, "A", "<DEL>", ["0|1", "1|1"])]
    vcf = write_vcf_text(tmp_path / "p.vcf", source_panel(rows[0]))
    found = assert_equal(write_hap_legend(tmp_path, source_panel(*rows)), vcf)
    assert found["skipped"] == {"symbolic ALT": 1}
