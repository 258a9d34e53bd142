"""Likelihoods of the other strand, with exchanged alleles, or of another build: repaired as arrays are."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spinimpute.genotypes.sites import DUPLICATE, complement
from spinimpute.targets.liftover import NOT_IN_CHAIN
from spinimpute.targets.repair import BOTH, OTHER_STRAND, STRAND_BY_FREQUENCY, STRAND_UNKNOWN, SWAPPED

pytestmark = pytest.mark.slow

Run = Callable[..., Any]
SHIFT = 2_000
CHAIN = f"""chain 1000 20 1100000 + {SHIFT} 202000 20 1000000 + 0 200000 1
200000

chain 900 20 1100000 + 202000 302000 20 1000000 - 700000 800000 2
100000
"""


def exchanged(row: list[str]) -> list[str]:
    fields = [text.split(":") for text in row[9:]]
    turned = [f"{','.join(phred.split(',')[::-1])}:{depth}" for phred, depth in fields]
    return [*row[:3], row[4], row[3], *row[5:9], *turned]


def on_other_strand(row: list[str]) -> list[str]:
    return [*row[:3], complement(row[3]), complement(row[4]), *row[5:]]


def is_snp(row: list[str]) -> bool:
    return len(row[3]) == len(row[4]) == 1


def is_ambiguous(row: list[str]) -> bool:
    return is_snp(row) and complement(row[3]) == row[4]


@pytest.fixture
def imputed(run: Run, small_panel: Path, tmp_path: Path) -> Callable[..., tuple[list[str], list[str]]]:
    """imputed(gl, *options): the records, and what is said."""
    out = tmp_path / "o.vcf"

    def impute(gl: Path, *options: object) -> tuple[list[str], list[str]]:
        done = run("impute", "--gl", gl, "--panel", small_panel, "--out", out, "-t", 1, "-f", *options).ok()
        records = [line for line in out.read_text().splitlines() if not line.startswith("#")]
        return records, [line.strip() for line in done.err.splitlines()]

    return impute


def test_exchanged_and_of_the_other_strand(imputed, run, rows, small_panel, write_gl, tmp_path):
    snps = [row for row in rows if is_snp(row) and not is_ambiguous(row)]
    changed = [list(row) for row in snps]
    changed[10:20] = map(exchanged, changed[10:20])
    changed[30:45] = map(on_other_strand, changed[30:45])
    changed[50:57] = map(on_other_strand, map(exchanged, changed[50:57]))
    expected, _ = imputed(write_gl(tmp_path / "sound.vcf", snps))
    path = write_gl(tmp_path / "changed.vcf", changed)
    found, said = imputed(path)
    assert found == expected
    counts = [f"10 sites: {SWAPPED}", f"15 sites: {OTHER_STRAND}", f"7 sites: {BOTH}"]
    assert set(counts) <= set(said)
    checked = run("check", "--gl", path, "--panel", small_panel).out
    assert all(count in checked for count in counts)


def test_a_whole_file_of_the_other_strand(imputed, rows, write_gl, tmp_path):
    """A/T and C/G are decided by frequency, with many samples, or left out."""
    many = [[*row, *(row[9:] * 11)] for row in rows if is_snp(row)]
    flipped = [on_other_strand(row) for row in many]
    assert any(is_ambiguous(row) for row in many)
    _, said = imputed(write_gl(tmp_path / "flipped.vcf", flipped))
    counts = {line.split(" sites: ")[1]: int(line.split()[0]) for line in said if " sites: " in line}
    n_ambiguous = sum(map(is_ambiguous, many))
    assert counts[OTHER_STRAND] == len(many) - n_ambiguous
    assert counts[STRAND_BY_FREQUENCY] > 0
    assert counts[STRAND_BY_FREQUENCY] + counts.get(STRAND_UNKNOWN, 0) == n_ambiguous


def test_another_build(imputed, rows, write_gl, tmp_path):
    """The first 200 kb are shifted; what follows, to 300 kb, is turned round."""
    snps = [row for row in rows if is_snp(row) and not is_ambiguous(row)]
    chain = tmp_path / "c.chain"
    chain.write_text(CHAIN)
    moved = []
    for row in snps:
        if int(row[1]) <= 200_000:
            moved.append([row[0], str(int(row[1]) + SHIFT), *row[2:]])
        else:  # place p of the panel's build, from the end of what is turned
            moved.append(on_other_strand([row[0], str(202_000 + 300_001 - int(row[1])), *row[2:]]))
    moved.sort(key=lambda row: int(row[1]))
    outside = [[snps[0][0], "900000", *snps[0][2:]]]
    path = write_gl(tmp_path / "moved.vcf", moved + outside)
    sound = write_gl(tmp_path / "sound.vcf", snps)
    for options in ([], ["--region", "20:150000-250000"]):
        expected, _ = imputed(sound, *options)
        found, said = imputed(path, "--chain", chain, *options)
        assert found == expected
        assert f"1 {NOT_IN_CHAIN}" in said


def test_another_build_does_not_fit_by_its_strands(run, rows, small_panel, write_gl, tmp_path):
    """Alleles as they come at other sites: half of them fit on one strand or the other."""
    snps = [list(row) for row in rows if is_snp(row)]
    letters = [row[3:5] for row in snps]
    for i, row in enumerate(snps):
        row[3:5] = letters[(i + 7) % len(letters)]
    run("check", "--gl", write_gl(tmp_path / "other.vcf", snps), "--panel", small_panel).refused(
        "on the other strand", "lift the file over (--chain)"
    )


def test_what_needs_no_repair_comes_first(imputed, rows, write_gl, tmp_path):
    """Two records of a site, the first with exchanged letters and other likelihoods."""
    snps = [row for row in rows if is_snp(row) and not is_ambiguous(row)]
    changed = [list(row) for row in snps]
    for i in (20, 40):
        changed.insert(i, [*changed[i][:3], *changed[i][4:2:-1], *changed[i][5:9], *changed[5][9:]])
    changed.insert(61, exchanged(changed[60]))
    expected, _ = imputed(write_gl(tmp_path / "sound.vcf", snps))
    found, said = imputed(write_gl(tmp_path / "twice.vcf", changed))
    assert found == expected
    assert f"3 {DUPLICATE}" in said
    assert not any(SWAPPED in line for line in said)
