"""`spinimpute check --gl` and `--bam`: what `impute` would make of likelihoods and reads."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

import spinimpute

Write = Callable[..., Path]
Rows = list[list[str]]
EXCHANGED = range(10, 17)
MOVED = range(20, 25)
SILENT = 2  # the sample of which nothing is known


@pytest.fixture
def damaged(rows: Rows, write_gl: Write, tmp_path: Path) -> Path:
    changed = [list(row) for row in rows]
    for i in EXCHANGED:
        row = changed[i]
        row[3:5] = row[4], row[3]
        for x, text in enumerate(row[9:], 9):
            likelihoods, depth = text.split(":")
            row[x] = f"{','.join(likelihoods.split(',')[::-1])}:{depth}"
    for i in MOVED:
        changed[i][1] = str(int(changed[i][1]) + 1)
    for row in changed:
        row[9 + SILENT] = ".:0"
    return write_gl(tmp_path / "damaged.vcf", changed)


def test_what_impute_would_make_of_likelihoods(run, rows, damaged, small_panel, tmp_path):
    table = tmp_path / "samples.tsv"
    done = run("check", "--gl", damaged, "--panel", small_panel, "--samples-out", table)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    matched = len(rows) - len(MOVED)
    assert f"matched:  {matched} panel sites of {len(rows)} sites in the input" in lines
    assert f"          {len(EXCHANGED)} sites: REF and ALT swapped: exchanged" in lines
    assert f"          {len(MOVED)} position not in panel" in lines
    assert sum(line.startswith("coverage: s") for line in lines) == 5
    (warning,) = [line for line in lines if line.startswith("warning: ")]
    assert "1 of 5 samples (s2) have no data" in warning
    with table.open() as file:
        of_samples = list(csv.DictReader(file, delimiter="\t"))
    assert [row["sample"] for row in of_samples] == [f"s{x}" for x in range(5)]
    assert [row["note"] for row in of_samples] == ["", "", "low", "", ""]
    assert float(of_samples[SILENT]["depth"]) == 0
    assert all(1.8 < float(row["depth"]) < 2.2 for row in of_samples if row["note"] == "")
    run("check", "--gl", damaged, "--panel", small_panel, "--samples-out", table).refused("already exists")
    imputed = run("impute", "--gl", damaged, "--panel", small_panel, "--out", tmp_path / "o.vcf", "-t", 1)
    said = imputed.err.splitlines()
    assert said[0] == f"spinimpute: {warning.replace(':  ', ': ')}"
    assert [line for line in lines if line != warning] == said[1 : len(lines)]


def test_what_impute_refuses(run, rows, write_gl, small_panel, tmp_path):
    elsewhere = write_gl(tmp_path / "other.vcf", [["7", *row[1:]] for row in rows], "7")
    run("check", "--gl", elsewhere, "--panel", small_panel).refused("The file has chromosome 7")


def test_a_folder_of_panels(run, rows, gl, write_gl, small_panel, tmp_path):
    """Chromosomes 20 and 21 have the same data; the samples have none on 22."""
    folder = tmp_path / "panels"
    folder.mkdir()
    (folder / "20.spin").symlink_to(small_panel)
    sites = ["\t".join([*row[:5], ".", ".", ".", "GT", "0|1", "0|0"]) for row in rows]
    head = "#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT p q".replace(" ", "\t")
    for chrom in ("21", "22"):
        lines = [f"{chrom}\t{line.partition(chr(9))[2]}" for line in sites]
        text = tmp_path / f"{chrom}.vcf"
        text.write_text("\n".join(["##fileformat=VCFv4.2", f"##contig=<ID={chrom}>", head, *lines]) + "\n")
        spinimpute.build_panel(text, folder / f"{chrom}.spin").close()
    other = write_gl(tmp_path / "other.vcf", [["21", *row[1:]] for row in rows], "21")
    done = run("check", "--gl", other, "--gl", gl, "--panel", folder).ok()
    assert f"matched:  {2 * len(rows)} panel sites of {2 * len(rows)} sites in the input" in done.out
    assert "warning:  chromosome 22 is left out: no target file contains it\n" in done.out
    done = run("check", "--gl", gl, "--panel", folder).ok()
    assert f"matched:  {len(rows)} panel sites of {len(rows)} sites" in done.out
    assert "warning:  chromosomes 21 and 22 are left out. Chromosome 21: " in done.out


@pytest.mark.parametrize(
    "option",
    [["--vcf", "t.vcf"], ["--bfile", "t"], ["--ambiguous", "drop"], ["--out", "sites.tsv"]],
    ids=" ".join,
)
def test_options_of_arrays(run, gl, small_panel, option):
    run("check", "--gl", gl, "--panel", small_panel, *option).refused(
        f"{option[0]} has no effect on sequenced samples (--gl, --bam)"
    )


def test_without_a_target_check_names_what_it_takes(run, small_panel):
    run("check", "--panel", small_panel).refused(
        "or sequenced samples with --gl FILE, --bam FILE; got none of them"
    )


def test_what_impute_would_make_of_reads(run, truth, write_reads, small_panel, tmp_path):
    """Of two samples, one of which has reads at every second site of the other's."""
    snps = [site for site in truth[1] if len(site[1]) == len(site[2]) == 1]
    whole = write_reads(tmp_path / "whole.bam", snps, "whole")
    half = write_reads(tmp_path / "half.bam", snps[::2], "half")
    listed, table = tmp_path / "list.txt", tmp_path / "samples.tsv"
    listed.write_text(f"{half}\tother\n")
    target = ["--bam", whole, "--bam-list", listed, "--panel", small_panel]
    done = run("check", *target, "--samples-out", table)
    assert (done.code, done.err) == (0, "")
    imputed = run("impute", *target, "--out", tmp_path / "o.vcf", "-t", 1)
    assert done.out.splitlines() == imputed.err.splitlines()[: len(done.out.splitlines())]
    with table.open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["sample"] for row in rows] == ["whole", "other"]
    depth = [float(row["depth"]) for row in rows]
    assert depth[1] == pytest.approx(depth[0] / 2, rel=0.02)
    assert float(rows[1]["without_reads"]) == pytest.approx(1 - depth[1], abs=0.02)
    run("check", *target, "--min-base-quality", 30).refused("no base can be used")


def test_every_file_that_impute_refuses_is_named(run, truth, write_reads, small_panel, tmp_path):
    names = ("good", "bare", "build", "cut")
    files = {name: tmp_path / f"{name}.bam" for name in names}
    for name, path in files.items():
        write_reads(path, truth[1], name)
    moved = [(position + 1, ref, alt) for position, ref, alt in truth[1]]
    write_reads(files["build"], moved, "build", 64_444_167)
    Path(f"{files['bare']}.bai").unlink()
    files["cut"].write_bytes(files["cut"].read_bytes()[:40])
    target = [word for path in files.values() for word in ("--bam", path)]
    done = run("check", *target, "--panel", small_panel, "--samples-out", tmp_path / "samples.tsv").refused(
        "impute refuses 3 of these files: reads "
    )
    said = [line for line in done.out.splitlines() if line.startswith("warning:  reads ")]
    for name, why, line in zip(
        names[1:], ("its index is missing", "another genome build", ""), said, strict=True
    ):
        assert f"{name}.bam: " in line
        assert why in line
    assert "\ncoverage: good: " in done.out
    assert done.out.count("coverage: ") == 1
    assert len((tmp_path / "samples.tsv").read_text().splitlines()) == 2
    alone = run(
        "check", "--bam", files["bare"], "--panel", small_panel, "--samples-out", tmp_path / "none.tsv"
    ).refused()
    assert alone.out.startswith("warning:  reads ")
    assert not (tmp_path / "none.tsv").exists()


def test_options_of_reads(run, gl, small_panel):
    run("check", "--gl", gl, "--panel", small_panel, "--max-depth", 3).refused(
        "--max-depth has no effect on likelihoods without reads"
    )
