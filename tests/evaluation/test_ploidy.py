"""`evaluate` with haploid and diploid genotypes."""

import numpy as np
import pandas as pd
import pytest

from spinimpute.evaluation.evaluate import evaluate
from spinimpute.runtime.errors import InputError


def pooled_r2(result):
    frame = pd.DataFrame(result.by_frequency)
    return frame[(frame["imputer"] == "imputed") & (frame["bin"] == "all")]["pooled_r2"].iloc[0]


def test_unknown_genotypes_have_no_ploidy(small):
    """Programs write a missing genotype as one or two dots, whatever the sample's ploidy."""
    truth = [
        ("X", 100, "A", "C", "GT", ["0|1", "./.", "1|1", "1"]),
        ("X", 200, "A", "C", "GT", [".", "0", "0|0", "./."]),
        ("X", 300, "A", "C", "GT", ["1|1", "1", ".", "0"]),
    ]
    form = "GT:GP"
    imputed = [
        ("X", 100, "A", "C", form, ["0|1:0,1,0", "1:0.1,0.9", "1|1:0,0,1", "1:0,1"]),
        ("X", 200, "A", "C", form, ["0|0:1,0,0", "0:0.8,0.2", "0|0:0.9,0.1,0", "1:0,1"]),
        ("X", 300, "A", "C", form, ["1|1:0,0,1", "1:0.3,0.7", "0|1:0,1,0", "0:1,0"]),
    ]
    result = evaluate(*small(truth, imputed))
    assert (result.unknown_genotypes, result.missing_genotypes) == (4, 0)
    pairs = np.array([(1, 1), (2, 2), (1, 1), (0, 0.2), (0, 0.1), (2, 2), (1, 0.7), (0, 0)])
    assert pooled_r2(result) == pytest.approx(np.corrcoef(pairs.T)[0, 1] ** 2)


def test_haploid_samples(small):
    truth = [
        ("20", 100 * i, "A", "C", "GT", ["0|1", g, "1|1", h]) for i, g, h in [(1, "1", "0"), (2, "0", "1")]
    ]
    imputed = [
        ("20", 100, "A", "C", "GT:GP", ["0|1:0,1,0", "1:0.1,0.9", "1|1:0,0,1", "0:0.8,0.2"]),
        ("20", 200, "A", "C", "GT:GP", ["0|1:0,1,0", "0:0.7,0.3", "1|1:0,0,1", "1:0,1"]),
    ]
    for panel in (("0|0", "0|1"), ("1|1", "0|1")):
        result = evaluate(*small(truth, imputed, panel=panel))
        pairs = np.array([(1, 1), (1, 0.9), (2, 2), (0, 0.2), (1, 1), (0, 0.3), (2, 2), (1, 1)])
        if panel == ("1|1", "0|1"):
            ploidy = np.array([2, 1, 2, 1] * 2)[:, None]
            pairs = ploidy - pairs
        assert pooled_r2(result) == pytest.approx(np.corrcoef(pairs.T)[0, 1] ** 2)


@pytest.mark.parametrize(
    ("truth", "imputed", "message"),
    [
        (["0|1", "1"], ["0|1", "1"], r"sample s1 has 1 allele at 20:200, 2 before"),
        (["./.", "0|1"], ["1", "1"], r"sample s1 has 1 allele at 20:200 and 2 in the truth"),
        (
            ["0/1/1", "0|1"],
            ["0|1", "0|1"],
            r"truth .*sample s1 has 3 alleles at 20:100\. Genotypes of one or two",
        ),
    ],
)
def test_invalid_ploidy(small, truth, imputed, message):
    """Ploidy must not change; it is compared where a sample's genotype is first known."""
    rows = [
        [("20", 100 * i, "A", "C", "GT", ["0|0", call]) for i, call in enumerate(calls, 1)]
        for calls in (truth, imputed)
    ]
    with pytest.raises(InputError, match=message):
        evaluate(*small(*rows))
