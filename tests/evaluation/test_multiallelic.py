"""Whole genotypes of multi-allelic records: a slow count, records that are not compared, and fields."""

from itertools import combinations_with_replacement
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from spinimpute import evaluate
from spinimpute.evaluation.genotype_file import GenotypeFile
from tests.conftest import Runner

ALTS = ("C", "G", "T")
SAMPLES = 12
GENOTYPES = sorted(combinations_with_replacement(range(4), 2), key=lambda pair: pair[::-1])  # VCF's order


def text(pair) -> str:
    return "|".join(map(str, pair))


def whole(result, label: str = "all") -> dict:
    (row,) = (row for row in result.multiallelic or [] if row["bin"] == label)
    return row


def random_problem(seed: int):
    """Return true genotypes (records, samples), haplotypes of the panel, and GP of the imputed file."""
    rng = np.random.default_rng(seed)
    frequency = rng.dirichlet((3, 1, 1, 1), 8)
    panel = [rng.choice(4, 40, p=one) for one in frequency]
    for haplotypes in panel:
        haplotypes[:4] = range(4)
    truth = [[tuple(rng.choice(4, 2, p=one)) for _ in range(SAMPLES)] for one in frequency]
    gp = rng.dirichlet(np.full(len(GENOTYPES), 0.3), (8, SAMPLES)).round(4)
    gp[..., 0] += 1 - gp.sum(axis=-1)
    return truth, panel, gp.clip(0, 1)


@pytest.mark.parametrize("split", [False, True], ids=["joined truth", "split truth"])
def test_a_slow_count(split, write_vcf, tmp_path):
    truth, panel, gp = random_problem(1)
    samples = [f"s{x}" for x in range(SAMPLES)]
    true_rows, panel_rows, imputed_rows = [], [], []
    counts = np.zeros(4, int)
    predictions = []
    for number, (pairs, haplotypes, p_NG) in enumerate(zip(truth, panel, gp, strict=True)):
        where = ("20", 1000 * (number + 1), "A")
        if split:
            for k, alt in enumerate(ALTS, 1):
                true_rows.append((*where, alt, "GT", [text(int(a == k) for a in pair) for pair in pairs]))
        else:
            true_rows.append((*where, ",".join(ALTS), "GT", [text(pair) for pair in pairs]))
        order = np.random.default_rng(number).permutation(3)  # of the ALTs in the imputed file
        new = {0: 0} | {int(k) + 1: i + 1 for i, k in enumerate(order)}
        index = [GENOTYPES.index(tuple(sorted(new[a] for a in pair))) for pair in GENOTYPES]
        reordered = np.empty_like(p_NG)
        reordered[:, index] = p_NG
        cells = [",".join(f"{p:g}" for p in p_G) for p_G in reordered]
        imputed_rows.append((*where, ",".join(ALTS[k] for k in order), "GP", cells))
        panel_rows.append((*where, ",".join(ALTS), "GT", [text(pair) for pair in haplotypes.reshape(-1, 2)]))
        major = int(np.bincount(haplotypes, minlength=4).argmax())
        for pair, p_G in zip(pairs, p_NG, strict=True):
            best = GENOTYPES[int(p_G.argmax())]
            right = tuple(sorted(pair)) == best
            is_minor = {*pair, *best} != {major}
            counts += [1, right, is_minor, is_minor and right]
            predictions.append((p_G.max(), right))
    result = evaluate(
        write_vcf(tmp_path / "truth.vcf", samples, true_rows),
        write_vcf(tmp_path / "imputed.vcf", samples, imputed_rows),
        write_vcf(tmp_path / "panel.vcf", [f"p{x}" for x in range(20)], panel_rows),
    )
    row = whole(result)
    assert (row["records"], row["genotypes"], row["alleles"]) == (8, counts[0], result.scored_sites)
    assert row["concordance"] == counts[1] / counts[0]
    assert row["nrc"] == counts[3] / counts[2]
    (by_allele,) = (one for one in result.by_frequency if (one["imputer"], one["bin"]) == ("imputed", "all"))
    assert (row["pooled_r2"], row["mean_r2"]) == (by_allele["pooled_r2"], by_allele["mean_r2"])
    p, right = np.array(predictions).T
    (high,) = (one for one in result.multiallelic_calibration if one["bin"] == "[0.5,0.6)")
    chosen = (p >= 0.5) & (p < 0.6)
    assert high["predictions"] == chosen.sum()
    assert high["observed"] == pytest.approx(right[chosen].mean())


TRUTH = [("20", 200, "A", "C,G", "GT", ["0|1", "0|2", "1|2", "0|0"])]


@pytest.mark.parametrize(
    ("imputed", "right", "genotypes"),
    [
        ([("20", 200, "A", "C,G", "GT", ["1|0", "0|2", "1|1", ".|."])], 2, 3),
        ([("20", 200, "A", "C,G", "DS:GT", ["1,0:1|0", "0,1:0|2", "1,1:2|1", "0,0:0|0"])], 4, 4),
        ([("20", 200, "A", "C,G,T", "GT", ["1|0", "0|2", "1|3", "0|3"])], 2, 4),  # nobody truly has T
    ],
)
def test_called_genotypes(imputed, right, genotypes, small):
    result = evaluate(*small(TRUTH, imputed, panel=("0|1", "2|0")))
    assert (whole(result)["concordance"], whole(result)["genotypes"]) == (right / genotypes, genotypes)
    assert result.multiallelic_calibration is None


def test_an_allele_that_the_panel_lacks_is_wrong(small):
    truth = [("20", 200, "A", "C,G,T", "GT", ["0|1", "0|3", "1|2", "0|0"])]
    imputed = [("20", 200, "A", "C,G", "GT", ["0|1", "0|0", "1|2", "0|0"])]
    result = evaluate(*small(truth, imputed, panel=("0|1", "2|0")))
    assert result.left_out == {"monomorphic in the panel": 1}
    assert whole(result)["concordance"] == 3 / 4


def test_records_that_are_not_compared(small):
    biallelic = ("20", 300, "A", "C", "GT", ["0|1", "0|1", "1|1", "0|0"])
    split = [(*TRUTH[0][:3], alt, "GT", ["0|1"] * 4) for alt in "CG"]
    result = evaluate(*small([*TRUTH, biallelic], [*split, biallelic], panel=("0|1", "0|0")))
    assert result.multiallelic is None
    without_g = [("20", 200, "A", "C,T", "GT", ["1|0", "0|0", "1|0", "0|0"])]
    assert evaluate(*small(TRUTH, without_g, panel=("0|1", "2|0"))).multiallelic is None
    two = [*TRUTH, ("20", 200, "A", "AT,ATT", "GT", ["0|0", "1|2", "0|0", "2|0"])]  # of one position and REF
    panel = ["0|1", "2|0"]
    result = evaluate(*small(two, two, panel=panel))
    assert result.multiallelic is None
    typed = [("20", 200, "A", "G", "GT", ["0|0"] * 4)]
    result = evaluate(*small(TRUTH, TRUTH, panel=("0|1", "2|0"), typed=tuple(typed)))
    assert result.left_out == {"typed": 1}
    assert result.multiallelic is None


def test_haploid_genotypes(small):
    truth = [("X", 200, "A", "C,G", "GT", ["0|1", "2", "1", "0"])]
    p = ["0,1,0,0,0,0", "0.1,0.2,0.7", "0.1,0.8,0.1", "0.2,0.1,0.7"]
    result = evaluate(*small(truth, [("X", 200, "A", "C,G", "GP", p)], panel=("0|1", "2|0")))
    assert whole(result)["concordance"] == 3 / 4


def test_each_field_of_a_record_is_decoded_once(small):
    p = ["1,0,0,0,0,0,0,0,0,0"] * 4
    truth = [("20", 200, "A", "C,G,T", "GT", ["0|1", "0|2", "1|2", "3|0"])]
    files = small(truth, [("20", 200, "A", "C,G,T", "GP", p)], panel=("0|1", "2|3"))
    with (
        mock.patch.object(
            GenotypeFile, "numbers", autospec=True, side_effect=GenotypeFile.numbers
        ) as numbers,
        mock.patch.object(
            GenotypeFile, "genotypes", autospec=True, side_effect=GenotypeFile.genotypes
        ) as calls,
    ):
        evaluate(*files)
    assert numbers.call_count == 1
    assert calls.call_count == 2  # of the truth and of the panel


def test_the_command_writes_tables(run: Runner, small, tmp_path: Path):
    p = ["0,1,0,0,0,0", "1,0,0,0,0,0", "0,0,0,0,1,0", "1,0,0,0,0,0"]
    files = small(TRUTH, [("20", 200, "A", "C,G", "GP", p)], panel=("0|1", "2|0"))
    arguments = [
        word
        for name, path in zip(("--truth", "--imputed", "--panel"), files, strict=False)
        for word in (name, path)
    ]
    out = tmp_path / "out"
    printed = run("evaluate", *arguments, "--out", out, "--report", tmp_path / "page.html").ok()
    assert "1 multi-allelic records: 0.7500 of the genotypes are right" in printed.out
    header, row, *_ = (out / "multiallelic.tsv").read_text().splitlines()
    assert header.split("\t") == [
        "bin",
        "records",
        "genotypes",
        "concordance",
        "nrc",
        "alleles",
        "pooled_r2",
        "mean_r2",
    ]
    assert row.split("\t")[:4] == ["all", "1", "4", "0.75"]
    assert (out / "multiallelic_calibration.tsv").exists()
    assert "Multi-allelic records" in (tmp_path / "page.html").read_text()
    biallelic = [("20", 300, "A", "C", "DS", ["1", "1", "2", "0"])]
    small([(*biallelic[0][:4], "GT", ["0|1"] * 4)], biallelic)
    run("evaluate", *arguments, "--out", out, "--force").ok()
    assert not list(out.glob("multiallelic*"))
