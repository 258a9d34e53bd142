"""`spinimpute panel labels` with tables that are written in unusual ways, or wrong."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

import spinimpute
from tests.conftest import Runner

SAMPLES, SITES = 500, 24  # up to 1,000 labels
HEADER = b"sample\tlocus\tposition\tallele1\tallele2\n"

Labels = Callable[[bytes], list[object]]


@pytest.fixture(scope="module")
def small_panel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A panel with sites at 1000, 2000, ... on chromosome 6."""
    folder = tmp_path_factory.mktemp("small")
    names = [f"p{x}" for x in range(SAMPLES)]
    lines = ["##fileformat=VCFv4.3", "##contig=<ID=6>"]
    lines += ['##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">']
    lines.append("#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT".replace(" ", "\t") + "\t" + "\t".join(names))
    for site in range(1, SITES + 1):
        calls = [f"{x // site % 2}|{(x + site) // 3 % 2}" for x in range(SAMPLES)]
        lines.append("\t".join(["6", str(1000 * site), ".", "A", "C", ".", ".", ".", "GT", *calls]))
    vcf, path = folder / "panel.vcf", folder / "panel.spin"
    vcf.write_text("\n".join(lines) + "\n")
    spinimpute.build_panel(vcf, path).close()
    return path


@pytest.fixture
def labels(small_panel: Path, tmp_path: Path) -> Labels:
    """labels(table): the arguments that add the labels of a table to the panel."""

    def write(table: bytes) -> list[object]:
        types = tmp_path / "types.tsv"
        types.write_bytes(table)
        return ["panel", "labels", "--panel", small_panel, "--types", types, "--out", tmp_path / "out.spin"]

    return write


def rows(*texts: str) -> bytes:
    return "".join(text.replace(" ", "\t") + "\n" for text in texts).encode()


GOOD = rows("p0 HLA-A 9500 01:01 02:01", "p1 HLA-A 9500 01:01 03:01")
BAD = {
    "unknown samples": (
        HEADER + rows("x A 9500 1 2", "y A 9500 1 2"),
        "none of its 2 samples is in the panel (x, y)",
    ),
    "one column of alleles": (
        rows("sample locus position allele1", "p0 A 9500 1"),
        "it has no column allele2. It must be",
    ),
    "contradictory resolutions": (
        HEADER + rows("p0 A 9500 01:01 02", "p0 A 9500 01:02 02:01"),
        "line 3: sample p0 has 01:02 and 02:01 at A, which contradicts 01:01 and 02 in line 2",
    ),
    "position off the panel": (HEADER + rows("p0 A 99000 1 2"), "A at 6:99000 is outside of the panel"),
    "two positions": (
        HEADER + rows("p0 A 9500 1 2", "p1 A 9501 1 2"),
        "line 3: A is at 9501, but at 9500 in line 2. A locus has one position",
    ),
    "two names": (
        HEADER + rows("p0 A 9500 1 2", "p0 HLA-A 9500 1 2"),
        "line 3: HLA-A is the same locus as A. Use one of the two names",
    ),
    "too many alleles": (
        HEADER + rows(*(f"p{x} A 9500 {2 * x + 1} {2 * x + 2}" for x in range(SAMPLES))),
        "A has 1000 alleles; at most 999 are possible",
    ),
    "not UTF-8": (
        HEADER + GOOD + b"p2\tHLA-\xff\t9500\t1\t2\n",
        "it is not valid UTF-8. Save it as UTF-8 text",
    ),
    "empty": (b"", "the file is empty"),
    "only a header": (HEADER, "it has no row"),
    "only comments": (
        b"# a\n\n# b\n",
        "it has no column sample, locus, position, allele1, allele2. It must be",
    ),
    "commas": (HEADER.replace(b"\t", b","), "It must be tab-separated, with a header line and"),
    "line number after comments": (
        b"# a\n" + HEADER + b"\n" + rows("p0 A five 1 2"),
        "line 4: the position is 'five', expected 1 to 2,147,483,647",
    ),
}


@pytest.mark.parametrize(("table", "message"), BAD.values(), ids=BAD)
def test_bad_tables(table: bytes, message: str, labels: Labels, run: Runner, tmp_path: Path) -> None:
    printed = run(*labels(table)).refused(message)
    assert printed.err.startswith("spinimpute: error: table of labels ")
    assert printed.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["types.tsv"]


@pytest.mark.parametrize(
    "table",
    [
        HEADER + GOOD,
        b"# types of the panel\n#\n\n" + HEADER + b"\n" + GOOD + b"\n",
        b"#" + HEADER + GOOD,
        b"\xef\xbb\xbf" + (b"# types\n# " + HEADER.upper() + GOOD).replace(b"\n", b"\r\n"),
        gzip.compress(b"# types\n" + HEADER + GOOD, mtime=0),
        HEADER.replace(b"\n", b"\tnote\n") + GOOD.replace(b"\n", b'\t"see\n'),
        HEADER.replace(b"allele1", b'"allele1"') + GOOD.replace(b"02:01", b'"02:01"'),
    ],
    ids=["plain", "comments", "#sample", "Windows", "gzip", "one quote", "quoted values"],
)
def test_headers_and_comments(table: bytes, labels: Labels, run: Runner, tmp_path: Path) -> None:
    run(*labels(table)).ok("HLA-A: 3 alleles of 2 samples")
    with spinimpute.Panel.open(tmp_path / "out.spin") as panel:
        assert panel.n_sites == SITES + 3


def test_some_samples_are_unknown(labels: Labels, run: Runner) -> None:
    printed = run(*labels(HEADER + GOOD + rows("x HLA-A 9500 1 2"))).ok()
    assert "1 samples of the table are not in the panel (x)" in printed.err


def test_a_locus_that_the_panel_has(labels: Labels, run: Runner, tmp_path: Path) -> None:
    run(*labels(HEADER + GOOD)).ok()
    arguments = labels((HEADER + GOOD).replace(b"HLA-", b""))
    arguments[3], arguments[-1] = tmp_path / "out.spin", tmp_path / "twice.spin"
    run(*arguments).refused("A at 6:9500: the panel", "has labels of this locus already")
