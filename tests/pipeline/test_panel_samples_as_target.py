"""Samples of the panel as target: one of the panel's haplotypes agrees with each of theirs at every site."""

import gzip
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute

SAMPLES = 5


def alleles_of(rows: list[list[str]]) -> np.ndarray:
    """(sites, haplotypes) of VCF rows with phased calls."""
    return np.array([[int(allele) for call in row[9:] for allele in call[:3].split("|")] for row in rows])


def minor_counts(alleles_SN: np.ndarray) -> np.ndarray:
    n_alt_S = alleles_SN.sum(axis=1)
    return np.minimum(n_alt_S, alleles_SN.shape[1] - n_alt_S)


def wrong(
    example: Path, folder: Path, chosen: int | None, untyped_share: float, seed: int = 2
) -> tuple[np.ndarray, int]:
    """Untyped alleles that are wrong although all panel haplotypes with the same typed alleles agree.

    chosen: so many common sites of the example's panel; None for all sites. Returns how often the panel has
    the minor allele at each wrong one, and how many alleles there are to impute.
    """
    rng = np.random.default_rng(seed)
    lines = gzip.decompress((example / "panel.vcf.gz").read_bytes()).decode().splitlines()
    head = [line for line in lines if line[0] == "#"]
    rows = [line.split("\t") for line in lines if line[0] != "#"]
    if chosen is not None:
        common = np.flatnonzero(minor_counts(alleles_of(rows)) > 20)
        rows = [rows[i] for i in np.sort(rng.choice(common, chosen, replace=False))]
    columns = 9 + rng.choice(len(rows[0]) - 9, SAMPLES, replace=False)
    untyped = rng.random(len(rows)) < untyped_share

    def write(name: str, kept: list[list[str]]) -> Path:
        path = folder / name
        path.write_text("\n".join([*head[:-1], *("\t".join(row) for row in kept)]) + "\n")
        return path

    names = head[-1].split("\t")
    mine = [[*row[:9], *(row[i] for i in columns)] for row in [names, *rows]]
    target = write(
        "t.vcf", [mine[0], *(row for row, left in zip(mine[1:], untyped, strict=True) if not left)]
    )
    panel, out = write("p.vcf", [names, *rows]), folder / "o.vcf"
    summary = spinimpute.impute(target, out, panel, genetic_map=example / "genetic.map")
    assert any("5 target samples have the names of panel samples" in one for one in summary.warnings)
    panel_SN, truth_SQ = alleles_of(rows), alleles_of(mine[1:])
    calls = [[allele for call in v.genotypes for allele in call[:2]] for v in cyvcf2.VCF(str(out))]
    wrong_SQ = np.array(calls) != truth_SQ
    assert not wrong_SQ[~untyped].any()
    minor_S, found, n_alleles = minor_counts(panel_SN), [], 0
    for q in range(2 * SAMPLES):
        same_SN = panel_SN[:, (panel_SN[~untyped] == truth_SQ[~untyped, q, None]).all(axis=0)]
        agreed_S = untyped & (same_SN == truth_SQ[:, q, None]).all(axis=1)
        found.append(minor_S[agreed_S & wrong_SQ[:, q]])
        n_alleles += int(agreed_S.sum())
    return np.concatenate(found), n_alleles


def test_all_alleles_are_right(example, tmp_path):
    minor_S, n_alleles = wrong(example, tmp_path, chosen=None, untyped_share=0.5)
    assert n_alleles > 20_000
    assert not len(minor_S)


@pytest.mark.parametrize("seed", [0, 1, 2, 4])
@pytest.mark.parametrize("untyped_share", [0.1, 0.25])
def test_few_sites_far_apart(example, tmp_path, untyped_share, seed):
    """28 or fewer typed sites in a centimorgan: of one haplotype alone a switch would be as likely."""
    minor_S, n_alleles = wrong(example, tmp_path, chosen=31, untyped_share=untyped_share, seed=seed)
    assert n_alleles > 5
    assert not len(minor_S)
