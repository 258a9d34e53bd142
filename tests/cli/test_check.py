"""`spinimpute check`, and that `impute` repairs what it finds."""

import csv
import gzip
import subprocess
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.builds import infer_build
from spinimpute.genotypes.sites import DUPLICATE
from spinimpute.targets.repair import OTHER_STRAND, SWAPPED

from .conftest import dosages

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "data" / "example"
OTHER = str.maketrans("ACGT", "TGCA")
EXCHANGED = str.maketrans("01", "10")


def damage(
    lines: list[str], rng: np.random.Generator, part: float, duplicates: int
) -> tuple[list[str], dict[int, str]]:
    """VCF lines with known damage, and what was planted where: strand flips, swaps, duplicates, "chr"."""
    head = [line for line in lines if line.startswith("#")]
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    usable = [
        i for i, row in enumerate(rows) if row[3].translate(OTHER) != row[4] and len(row[3] + row[4]) == 2
    ]
    chosen = rng.permutation(usable)
    n = int(part * len(rows))
    flips, swaps, twice = chosen[:n], chosen[n : 2 * n], set(chosen[2 * n : 2 * n + duplicates].tolist())
    planted = {}
    for i in flips:
        rows[i][3:5] = [allele.translate(OTHER) for allele in rows[i][3:5]]
        planted[int(rows[i][1])] = OTHER_STRAND
    for i in swaps:
        rows[i][3:5] = rows[i][4:2:-1]
        rows[i][9:] = [call[:3].translate(EXCHANGED) + call[3:] for call in rows[i][9:]]
        planted[int(rows[i][1])] = SWAPPED
    planted |= {int(rows[i][1]): DUPLICATE for i in twice}
    out = [line.replace("##contig=<ID=", "##contig=<ID=chr") for line in head]
    for i, row in enumerate(rows):
        out += ["\t".join(["chr" + row[0], *row[1:]])] * (2 if i in twice else 1)
    return out, planted


def read_table(path: Path) -> list[tuple[int, str]]:
    with path.open() as file:
        return [(int(row["position"]), row["what"]) for row in csv.DictReader(file, delimiter="\t")]


def of_kinds(found: list[tuple[int, str]], planted: dict[int, str]) -> list[tuple[int, str]]:
    return sorted(note for note in found if note[1] in set(planted.values()))


def test_planted_damage_is_found_and_repaired(run, panel, tmp_path):
    lines = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
    damaged, planted = damage(lines, np.random.default_rng(3), 0.05, 6)
    target = tmp_path / "damaged.vcf"
    target.write_text("\n".join(damaged) + "\n")
    done = run(
        "check", "--vcf", target, "--panel", panel, "--out", tmp_path / "sites.tsv", "--ambiguous", "keep"
    ).ok()
    assert of_kinds(read_table(tmp_path / "sites.tsv"), planted) == sorted(planted.items())
    assert f"12 sites: {OTHER_STRAND}" in done.out
    assert f"12 sites: {SWAPPED}" in done.out
    assert f"6 sites: {DUPLICATE}" in done.out
    for name, vcf in (("whole", EXAMPLE / "target.vcf.gz"), ("damaged", target)):
        out = tmp_path / f"{name}.vcf.gz"
        run.impute(vcf, panel, out, "--ambiguous", "keep").ok()
    np.testing.assert_array_equal(dosages(tmp_path / "whole.vcf.gz"), dosages(tmp_path / "damaged.vcf.gz"))


def test_a_sound_target_has_an_empty_table(run, panel, tmp_path):
    done = run(
        "check", "--vcf", EXAMPLE / "target.vcf.gz", "--panel", panel, "--out", tmp_path / "t.tsv"
    ).ok()
    assert "matched:  246 of 246" in done.out
    assert "0 unphased heterozygotes, 0.00% missing" in done.out
    rows = (tmp_path / "t.tsv").read_text().splitlines()
    assert rows[0] == "chrom\tposition\tid\tref\talt\tpanel_ref\tpanel_alt\twhat"
    assert all("one allele only in the target" in row for row in rows[1:])


def test_missing_calls_and_odd_frequencies_are_named(run, panel, tmp_path):
    lines = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
    rows = [i for i, line in enumerate(lines) if not line.startswith("#")]
    empty, odd = (
        rows[4],
        next(i for i in rows[10:] if lines[i].count("1|1") < 2 and lines[i].count("0|0") > 15),
    )
    for i in rows:
        fields = lines[i].split("\t")
        fields[9] = ".|." if i % 2 else fields[9]
        if i == empty:
            fields[9:] = [".|."] * 20
        if i == odd:
            fields[10:] = ["1|1"] * 19
        lines[i] = "\t".join(fields)
    target = tmp_path / "t.vcf"
    target.write_text("\n".join(lines) + "\n")
    done = run("check", "--vcf", target, "--panel", panel, "-o", tmp_path / "t.tsv").ok()
    found = read_table(tmp_path / "t.tsv")
    assert (int(lines[empty].split("\t")[1]), "more than 10% of the calls missing") in found
    assert (int(lines[odd].split("\t")[1]), "allele frequency differs from the panel") in found
    assert f"sample {lines[rows[0] - 1].split(chr(9))[9]}: 5" in done.out


def shifted(fields: list[str]) -> list[str]:
    """As on another build: sites are panel sites by chance alone."""
    position = int(fields[1])
    return [fields[0], str(position + (position % 20 > 0)), *fields[2:]]


def exchanged(fields: list[str]) -> list[str]:
    return [*fields[:9], *(call.translate(EXCHANGED) for call in fields[9:])]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (shifted, "of the 246 target sites in the panel's region are panel sites"),
        (exchanged, "typed sites ALT is as common as REF is in the panel"),
    ],
)
def test_check_refuses_what_impute_refuses(run, panel, tmp_path, edited_target, change, said):
    def edit(text: str) -> str:
        lines = text.splitlines()
        rows = [line if line[0] == "#" else "\t".join(change(line.split("\t"))) for line in lines]
        return "\n".join(rows) + "\n"

    target = edited_target(edit)
    checked = run("check", "--vcf", target, "--panel", panel, "--out", tmp_path / "t.tsv").refused()
    assert "matched: " in checked.out
    assert len(read_table(tmp_path / "t.tsv")) > 100
    refused = run.impute(target, panel, tmp_path / "o.bcf").refused()
    assert not (tmp_path / "o.bcf").exists()
    for message in (checked.err, refused.err):
        assert said in message
    assert checked.err.replace("impute refuses this target: ", "") == refused.err
    run.impute(target, panel, tmp_path / "o.bcf", "--force", "-q").ok("spinimpute: warning: ", said)


def on_chromosome(text: str, chrom: str) -> str:
    return text.replace("ID=20,", f"ID={chrom},").replace("\n20\t", f"\n{chrom}\t")


@pytest.fixture(scope="module")
def genome_panels(panel, tmp_path_factory):
    """A folder with the example's panel as chromosomes 20, 21 and 22."""
    folder = tmp_path_factory.mktemp("panels")
    (folder / "20.spin").symlink_to(panel)
    text = gzip.decompress((EXAMPLE / "panel.vcf.gz").read_bytes()).decode()
    for chrom in ("21", "22"):
        (folder / f"{chrom}.vcf").write_text(on_chromosome(text, chrom))
        spinimpute.build_panel(folder / f"{chrom}.vcf", folder / f"{chrom}.spin").close()
    return folder


def test_a_genome_has_one_report(run, genome_panels, tmp_path):
    """Chromosome 20 is sound, 21 is on another build, 22 is absent, and no panel contains 19."""
    text = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode()
    lines = text.splitlines(keepends=True)
    rows = [line.split("\t") for line in lines if line[0] != "#"]
    target, sites, samples = tmp_path / "t.vcf", tmp_path / "sites.tsv", tmp_path / "samples.tsv"
    head = "".join(line for line in lines if line[0] == "#")
    others = "".join(f"##contig=<ID={chrom}>\n" for chrom in ("19", "21"))
    body = ["\t".join(["19", *rows[0][1:]])]
    body += ["\t".join(row) for row in rows]
    body += ["\t".join(shifted(["21", *row[1:]])) for row in rows]
    target.write_text(head.replace("#CHROM", f"{others}#CHROM") + "".join(body))
    subprocess.run(["bcftools", "view", "-Ob", "-o", target.with_suffix(".bcf"), target], check=True)
    subprocess.run(["bcftools", "index", target.with_suffix(".bcf")], check=True)
    given = ("check", "--panel", genome_panels)
    tables = ("--out", sites, "--samples-out", samples)
    done = run(*given, "--vcf", target.with_suffix(".bcf"), *tables).refused(
        "impute refuses this target: only"
    )
    n_matched = 246 + sum(int(row[1]) % 20 == 0 for row in rows)
    said = done.out.splitlines()
    assert f"matched:  {n_matched} of 492 typed sites are panel sites" in said
    assert any(line.endswith("% (21) to 100.0% (20)") for line in said)
    assert "warning:  chromosome 19 is left out: no panel contains it" in said
    assert sum(line.startswith("warning:  chromosome 22 is left out: target ") for line in said) == 1
    assert sum("of the 246 target sites in the panel's region" in line for line in said) == 1
    with sites.open() as file:
        found = [(row["chrom"], row["what"]) for row in csv.DictReader(file, delimiter="\t")]
    assert found.count(("21", "position not in panel")) == 492 - n_matched
    assert not any(what == "position not in panel" for chrom, what in found if chrom != "21")
    assert len(samples.read_text().splitlines()) == 21


def test_a_genome_without_a_match_on_one_chromosome(run, genome_panels, tmp_path):
    text = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode()
    files = []
    for chrom, move in (("20", 0), ("21", 9_000_000), ("22", 9_000_000)):
        lines = on_chromosome(text, chrom).splitlines()
        rows = [line.split("\t") for line in lines if line[0] != "#"]
        moved = ["\t".join([row[0], str(int(row[1]) + move), *row[2:]]) for row in rows]
        files.append(tmp_path / f"{chrom}.vcf")
        files[-1].write_text("\n".join([*(line for line in lines if line[0] == "#"), *moved]) + "\n")
    given = [word for path in files for word in ("--vcf", path)]
    done = run("check", *given, "--panel", genome_panels).refused("no target site is in the panel: panel 21:")
    assert "matched:  246 of 246 typed sites" in done.out
    assert "warning:  impute refuses chromosome 22, too\n" in done.out
    assert spinimpute.check(files[0], genome_panels / "20.spin").n_matched == 246
    run("check", "--vcf", files[1], "--panel", genome_panels).refused("no target site is in the panel")


def test_refusals_leave_no_table(run, panel, tmp_path):
    table = tmp_path / "t.tsv"
    run("check", "--vcf", tmp_path / "absent.vcf", "--panel", panel, "--out", table).refused(
        "there is no such file"
    )
    table.write_text("mine")
    run("check", "--vcf", EXAMPLE / "target.vcf.gz", "--panel", panel, "--out", table).refused("--force")
    assert table.read_text() == "mine"


@pytest.mark.parametrize(
    ("line", "chrom", "build"),
    [
        ("##contig=<ID=20,length=63025520>", "20", "GRCh37"),
        ("##contig=<ID=chr20,length=64444167,assembly=x>", "chr20", "GRCh38"),
        ("##contig=<ID=chrX,length=155270560>", "chrX", "GRCh37"),
        ("##contig=<ID=20,length=63025521>", "20", ""),
        ("##contig=<ID=20>", "20", ""),
        ("##contig=<ID=c,length=5>", "c", ""),
    ],
)
def test_build_by_length(line, chrom, build):
    assert infer_build(line, chrom) == build


def test_converting_does_not_claim_to_impute(run, panel, edited_target, tmp_path):
    """A sample has no call at all."""

    def clear(text: str) -> str:
        lines = [line.split("\t") for line in text.splitlines()]
        return "".join("\t".join([*line[:-1], "./."] if line[0] == "20" else line) + "\n" for line in lines)

    target, said = edited_target(clear), "can be imputed from allele frequencies only"
    done = run.convert(target, panel, tmp_path / "o.vcf").ok(said)
    assert "were imputed" not in done.err
    run.phase(target, panel, tmp_path / "p.vcf").ok(said, "246 missing typed calls were imputed")
