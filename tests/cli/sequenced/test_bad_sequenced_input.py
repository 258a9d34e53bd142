"""What people get wrong with sequenced samples: exit status 2, one clear message, and no file left behind."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pysam
import pytest

import spinimpute

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
Rows = list[list[str]]


@pytest.fixture
def refused(run: Run, small_panel: Path, tmp_path: Path) -> Callable[..., str]:
    """refused(said, *arguments): impute must fail with one message, and leave nothing."""

    def check(said: str, *arguments: object, panel: object = None, out: object = None) -> str:
        folder = tmp_path / "out"
        folder.mkdir(exist_ok=True)
        before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
        output = out or folder / "o.vcf.gz"
        done = run("impute", "--panel", panel or small_panel, "--out", output, *arguments).refused(said)
        ours = [line for line in done.err.splitlines() if "rror: " in line]
        usage = done.err.startswith("Usage: ")  # click's own, of options
        assert len(ours) == 1
        of_htslib = [line for line in done.err.splitlines() if line.startswith(("[E::", "[W::", "bgzf_"))]
        assert usage or len(done.err.splitlines()) == 1 + len(of_htslib)
        assert done.out == ""
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
        return str(done.err)

    return check


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (["--gl", "g.vcf", "--vcf", "t.vcf", "--bfile", "t"], ["--vcf", "--bfile"]),
        (["--bfile", "t", "--pfile", "t"], ["--bfile", "--pfile"]),
        ([], ["give the target with one of", "--gl", "none of them"]),
        (["--gl", ""], ["--gl has an empty name"]),
    ],
    ids=lambda given: " ".join(given) or "nothing",
)
def test_one_kind_of_target(refused, given, named):
    said = refused("", *given)
    for name in named:
        assert name in said


@pytest.mark.parametrize(
    "option",
    [
        ["--loo", "quality"],
        ["--predictor", "haplotype"],
        ["--inducing-points", "8"],
        ["--model", "m.safetensors"],
        ["--phasing", "never"],
        ["--phasing", "auto"],
        ["--keep-unmatched"],
        ["--ambiguous", "drop"],
        ["--min-typed-ratio", "0.1"],
        ["--device", "cpu"],
        ["--window-cm", "3"],
    ],
    ids=" ".join,
)
def test_options_of_arrays(refused, gl, option):
    refused(f"{option[0]} has no effect on sequenced samples", "--gl", gl, *option)


@pytest.mark.parametrize(
    "option",
    [
        ["--reference", "r.fa"],
        ["--max-depth", "40"],
        ["--min-base-quality", "3"],
        ["--min-mapping-quality", "3"],
        ["--indels"],
    ],
    ids=" ".join,
)
def test_options_of_reads(refused, example, option):
    target = example / "target.vcf.gz"
    refused(f"{option[0]} has no effect on targets that are not sequenced", "--vcf", target, *option)


def test_reads_are_not_lifted_over(refused, bam):
    refused("--chain has no effect on reads (--bam without --gl)", "--bam", bam, "--chain", "c.chain")


def test_chain_files_that_cannot_be(refused, gl, tmp_path):
    chain = tmp_path / "c.chain"
    refused("c.chain", "--gl", gl, "--chain", chain)
    chain.write_text("no chain")
    refused("c.chain", "--gl", gl, "--chain", chain)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--max-depth", "0"),
        ("--max-depth", "x"),
        ("--min-base-quality", "-1"),
        ("--min-mapping-quality", "256"),
    ],
)
def test_numbers_out_of_range(refused, bam, option, value):
    assert value in refused(option, "--bam", bam, option, value)


def test_twice(refused, gl, tmp_path):
    refused("both contain chromosome 20", "--gl", gl, "--gl", gl)
    refused("--bam-list is given 2 times", "--bam-list", gl, "--bam-list", gl)
    refused("--reference is given 2 times", "--bam", gl, "--reference", gl, "--reference", gl)


def test_words_without_an_option(refused, bam):
    refused("'b.bam' stands without an option", "--bam", bam, "b.bam")


def no_values(rows: Rows) -> None:
    for row in rows:
        row[8:] = ["DP", *("1" for _ in row[9:])]


def all_missing(rows: Rows) -> None:
    for row in rows:
        row[8:] = ["PL", *("." for _ in row[9:])]


def set_field(field: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        rows[7][9] = field

    return change


def elsewhere(rows: Rows) -> None:
    for row in rows:
        row[1] = str(int(row[1]) + 500_000)


def another_chromosome(rows: Rows) -> None:
    for row in rows:
        row[0] = "7"


def no_samples(rows: Rows) -> None:
    for row in rows:
        del row[8:]


def backwards(rows: Rows) -> None:
    rows[3], rows[9] = rows[9], rows[3]


CHANGES: dict[str, tuple[Callable[[Rows], None], str]] = {
    "no PL, GL or GT": (no_values, "likelihoods (PL or GL) or genotypes (GT)"),
    "all missing": (all_missing, "missing"),
    "two of three": (set_field("0,3,3,3:1"), "s0"),
    "six": (set_field("0,3,3,3,3,3:1"), "s0"),
    "negative": (set_field("-1,3,30:1"), "s0"),
    "no number": (set_field("0,x,30:1"), ""),
    "another region": (elsewhere, ""),
    "another chromosome": (another_chromosome, "The file has chromosome 7"),
    "no samples": (no_samples, "sites without samples"),
    "backwards": (backwards, "backwards"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_likelihoods_that_cannot_be(refused, rows, write_gl, kind, tmp_path):
    change, said = CHANGES[kind]
    changed = [list(row) for row in rows]
    change(changed)
    path = tmp_path / "bad.vcf"
    if kind == "no samples":
        text = write_gl(path, changed).read_text()
        path.write_text(text.replace("INFO\tFORMAT", "INFO"))
    elif kind == "another chromosome":
        write_gl(path, changed, "7")
    else:
        write_gl(path, changed)
    assert "bad.vcf" in refused(said, "--gl", path)


@pytest.mark.parametrize("field", ["-1,3,30:1", "0,3,30,40:1", "0,x,30:1"])
def test_where_a_likelihood_is_wrong(refused, rows, write_gl, field, tmp_path):
    """The message leads to the record."""
    changed = [list(row) for row in rows]
    changed[7][9] = field
    said = refused("", "--gl", write_gl(tmp_path / "bad.vcf", changed))
    assert changed[7][1] in said


@pytest.mark.parametrize("option", ["--gl", "--bam", "--bam-list"])
def test_files_that_are_not_there(refused, option, tmp_path):
    assert "none.file" in refused("", option, tmp_path / "none.file")
    assert str(tmp_path) in refused("", option, tmp_path)


@pytest.mark.parametrize("content", [b"", b"hello\n", b"\x1f\x8b\x08\x04"], ids=["empty", "text", "gzip"])
@pytest.mark.parametrize("option", ["--gl", "--bam"])
def test_files_of_another_form(refused, option, content, tmp_path):
    path = tmp_path / "bad.file"
    path.write_bytes(content)
    assert "bad.file" in refused("", option, path)


def test_likelihoods_that_are_cut(refused, gl, tmp_path):
    content = gzip.compress(gl.read_bytes())
    path = tmp_path / "cut.vcf.gz"
    path.write_bytes(content[: len(content) // 2])
    assert "cut.vcf.gz" in refused("", "--gl", path)


def test_panel_of_inducing_points(refused, gl, small_panel, example, tmp_path):
    with spinimpute.Panel.open(small_panel) as panel:
        points = tmp_path / "p.spip"
        spinimpute.build_inducing_panel(panel, points, example / "array.txt", 8).close()
    assert ".spin" in refused("sequenced samples cannot be imputed from", "--gl", gl, panel=points)


def test_panels_that_are_not_there(refused, gl, tmp_path):
    assert "none.spin" in refused("", "--gl", gl, panel=tmp_path / "none.spin")
    refused("", "--gl", gl, panel=gl)  # has no genotypes


def test_reads_without_index(refused, bam):
    bam.with_name("one.bam.bai").unlink()
    assert "one.bam" in refused("index", "--bam", bam)


def test_reads_that_are_cut(refused, bam):
    content = bam.read_bytes()
    for length in (len(content) - 28, len(content) // 2, 40):
        bam.write_bytes(content[:length])
        assert "one.bam" in refused("", "--bam", bam)


def test_reads_of_another_build(refused, truth, write_reads, tmp_path):
    moved = [(position + 1, ref, alt) for position, ref, alt in truth[1]]
    path = write_reads(tmp_path / "other.bam", moved, length=64_444_167)
    said = refused("another genome build", "--bam", path)
    assert "other.bam" in said
    assert "header says 20 has 64,444,167 bases (GRCh38)" in said


def test_a_cram_without_its_reference(refused, bam, truth, tmp_path):
    """The message leads to the option, and says that another reference is none."""
    letters = np.random.default_rng(1).choice(list("ACGT"), 1_000_000)
    for position, ref, _ in truth[1]:
        letters[position - 1 : position - 1 + len(ref)] = list(ref)
    right, wrong, cram = (tmp_path / name for name in ("right.fa", "wrong.fa", "t.cram"))
    for path, text in ((right, letters), (wrong, letters[::-1])):
        path.write_text(f">20\n{''.join(text)}\n")
        pysam.faidx(str(path))
    pysam.view("-C", "-T", str(right), "-o", str(cram), str(bam), catch_stdout=False)
    pysam.index(str(cram))
    said = refused("its FASTA (--reference)", "--bam", cram)
    assert f"reads {cram}: " in said
    said = refused("its MD5 is ", "--bam", cram, "--reference", wrong)
    assert f"reference {wrong}: " in said


def test_reads_as_text(refused, bam, tmp_path):
    path = tmp_path / "t.sam"
    path.write_text(pysam.view("-h", str(bam)))
    assert "t.sam" in refused("SAM text", "--bam", path)


def test_lists_of_reads(refused, bam, tmp_path):
    listed = tmp_path / "list.txt"
    for content in ("", "\n \n"):
        listed.write_text(content)
        assert "list.txt" in refused("there is no file in it", "--bam-list", listed)
    listed.write_text(f"{bam}\n{tmp_path / 'none.bam'}\n")
    message = refused("none.bam' does not exist", "--bam-list", listed)
    assert "list.txt" in message
    listed.write_bytes(b"\xff\xfe\x00")
    assert "list.txt" in refused("it is not valid UTF-8", "--bam-list", listed)
    listed.write_text(f"# my reads\n#{bam}\n")
    assert "list.txt" in refused("there is no file in it", "--bam-list", listed)
    listed.write_text(f"{bam}\ta\tb\n")
    assert "list.txt" in refused("has 3 columns", "--bam-list", listed)
    listed.write_text(f"{bam}\ta\n{bam}\ta\n")
    assert str(bam) in refused("the file is given twice", "--bam-list", listed)


def test_other_samples_than_the_reads(refused, gl, bam):
    refused("have different samples", "--gl", gl, "--bam", bam)


def test_reads_beside_their_own_likelihoods(
    run, refused, rows, truth, write_gl, write_reads, small_panel, tmp_path
):
    """The same reads would count twice; two libraries of one sample are used together with --force."""
    gl = write_gl(tmp_path / "s0.vcf", [row[:10] for row in rows])
    known = {int(row[1]) for row in rows if not row[9].startswith("0,0,0")}
    snps = [site for site in truth[1] if len(site[1]) == len(site[2]) == 1]
    bam = write_reads(tmp_path / "s0.bam", snps, "s0")
    n_both = sum(position in known for position, _, _ in snps)
    target = ["--gl", gl, "--bam", bam]
    said = refused(f"cover the same {n_both:,} sites of sample s0", *target)
    assert str(gl) in said
    assert str(bam) in said
    assert "--force" in said
    run("check", *target, "--panel", small_panel).refused("sites of sample s0")
    out = tmp_path / "o.vcf"
    run("impute", *target, "--panel", small_panel, "--out", out, "--force", "-t", 1).ok(
        f"warning: target {gl}: its likelihoods and the reads"
    )
    others = write_reads(tmp_path / "o.bam", [site for site in snps if site[0] not in known], "s0")
    beside = run(
        "impute", "--gl", gl, "--bam", others, "--panel", small_panel, "--out", tmp_path / "b.vcf"
    ).ok()
    assert "cover the same" not in beside.err


def test_regions(refused, gl, bam):
    for target in (["--gl", gl], ["--bam", bam]):
        refused("the panel has no site in 20:400000-500000", *target, "--region", "20:400000-500000")
        refused("the panel is of chromosome", *target, "--region", "21:1-300000")
        refused("", *target, "--region", "20:5-x")
        refused("a buffer must have a length", *target, "--region", "20:1-9000", "--buffer", "-1")


def test_a_region_of_which_nothing_is_known(refused, rows, truth, write_gl, write_reads, tmp_path):
    """Neither a record nor a read in it, nor in its buffer."""
    gl = write_gl(tmp_path / "part.vcf", [row for row in rows if int(row[1]) < 100_000])
    bam = write_reads(tmp_path / "part.bam", [site for site in truth[1] if site[0] < 100_000])
    region = ["--region", "20:200000-300000", "--buffer", "0.001"]
    for target, why in ((["--gl", gl], "no record in 20"), (["--bam", bam], "there are no reads")):
        message = refused("no sample has data in 20:200000-300000", *target, *region)
        assert str(target[1]) in message
        assert why in message


def test_outputs(refused, gl, bam, tmp_path):
    """An input is never written over, nor its index, and another file only with --force."""
    index = next(path for path in bam.parent.iterdir() if path.name.startswith(f"{bam.name}."))
    refused("it is also read from", "--bam", bam, "--force", "--output-type", "z", out=index)
    own = tmp_path / "own.vcf"
    own.write_bytes(gl.read_bytes())
    link = tmp_path / "link.vcf"
    link.symlink_to(own)
    for force in ([], ["--force"]):
        refused("own.vcf", "--gl", own, *force, out=own)
        refused("own.vcf", "--gl", link, *force, out=own)
        refused("one.bam", "--bam", bam, *force, out=bam)
    there = tmp_path / "there.vcf"
    there.write_text("old")
    refused("there.vcf", "--gl", gl, out=there)
    refused("o.txt", "--gl", gl, out=tmp_path / "o.txt")
    refused("", "--gl", gl, out=tmp_path / "none" / "o.vcf")


@pytest.mark.parametrize("option", ["--bam-list", "--sex"])
def test_lists_are_not_written_over(refused, bam, tmp_path, option):
    listed = tmp_path / "list.vcf"
    listed.write_text(f"{bam}\n" if option == "--bam-list" else "one M\n")
    target = [] if option == "--bam-list" else ["--bam", bam]
    refused("list.vcf", *target, option, listed, "--force", out=listed)


def test_reads_are_not_written_over_by_name(refused, bam, tmp_path):
    """A BAM may be called anything."""
    other = tmp_path / "reads.vcf.gz"
    other.write_bytes(bam.read_bytes())
    pysam.index(str(other))
    listed = tmp_path / "list"
    listed.write_text(f"{other}\n")
    refused("reads.vcf.gz", "--bam", other, "--force", out=other)
    refused("reads.vcf.gz", "--bam-list", listed, "--force", out=other)
