"""An array's calls and likelihoods of the same people are one input."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Region
from spinimpute.pipeline.matched_target import MatchedTarget
from spinimpute.pipeline.sequenced.inputs import CALL_ERROR_PHRED, likelihoods_from_calls
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

E = CALL_ERROR_PHRED


def test_calls_by_hand():
    """A haploid man between two women; the target's second site is not matched."""
    target = SimpleNamespace(
        samples=["w", "m", "v"],
        ploidy=np.array([2, 1, 2], np.uint8),
        alleles=np.array(
            [[0, 1, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, -1, 1], [1, 0, -1, -1, -1], [0, 0, 0, 0, 0]], np.int8
        ),
        sites=range(5),
        skipped={"why": 2},
    )
    match = SimpleNamespace(panel_index=np.array([3, 4, 8, 9]), target_index=np.array([0, 2, 3, 4]))
    panel = SimpleNamespace(position=np.arange(100, 200, 10))
    part = cast(MatchedTarget, SimpleNamespace(target=target, match=match, panel=panel))
    found = likelihoods_from_calls(part, Region("20", 130, 180))
    assert found.samples == ["w", "m", "v"]
    assert found.panel_index.tolist() == [3, 4, 8]
    assert found.phred_SX3.tolist() == [
        [[E, 0, E], [E, 255, 0], [2 * E, E, 0]],
        [[0, E, 2 * E], [0, 255, E], [0, 0, 0]],
        [[E, 0, E], [0, 255, 0], [0, 0, 0]],
    ]
    assert found.known_SX.tolist() == [[True, True, True], [True, True, False], [True, False, False]]
    assert found.skipped == {"why": 2}
    assert likelihoods_from_calls(part).panel_index.tolist() == [3, 4, 8, 9]


@pytest.fixture
def panel(example_panel) -> Path:
    return example_panel.path


@pytest.fixture(scope="module")
def sparse_reads(example, tmp_path_factory) -> Path:
    """PL of reads of the example's people, 0.1 a site."""
    path = tmp_path_factory.mktemp("reads") / "reads.vcf"
    rng = np.random.default_rng(3)
    p_3 = np.array([0.005, 0.5, 0.995])
    vcf = cyvcf2.VCF(str(example / "truth.vcf.gz"))
    head = vcf.raw_header.rstrip("\n").rpartition("\n")
    lines = [head[0], '##FORMAT=<ID=PL,Number=G,Type=Integer,Description="Likelihoods">', head[2]]
    for record in vcf:
        copies_X = record.genotype.array()[:, :2].sum(axis=1)
        n_X = rng.poisson(0.1, len(copies_X))
        alt_X = rng.binomial(n_X, p_3[copies_X])
        phred_X3 = -10 * (alt_X[:, None] * np.log10(p_3) + (n_X - alt_X)[:, None] * np.log10(1 - p_3))
        phred_X3 = (phred_X3 - phred_X3.min(axis=1, keepdims=True)).round().astype(int)
        fields = [",".join(map(str, phred_3)) for phred_3 in phred_X3.tolist()]
        first = [record.CHROM, record.POS, ".", record.REF, record.ALT[0], ".", ".", ".", "PL"]
        lines.append("\t".join(map(str, [*first, *fields])))
    path.write_text("\n".join(lines) + "\n")
    return path


def accuracy(example: Path, panel: Path, out: Path, **given: Any) -> float:
    settings = spinimpute.SequencingSettings(**given)
    spinimpute.impute_sequenced(out, panel, settings, resources=spinimpute.Resources(1), force=True)
    result = spinimpute.evaluate(example / "truth.vcf.gz", out, panel, example / "target.vcf.gz")
    (r2,) = (
        row["pooled_r2"] for row in result.by_frequency if (row["imputer"], row["bin"]) == ("imputed", "all")
    )
    return float(r2)


def test_both_are_better_than_either(example, panel, sparse_reads, tmp_path):
    out = tmp_path / "out.bcf"
    array = accuracy(example, panel, out, array=example / "target.vcf.gz")
    reads = accuracy(example, panel, out, likelihoods=sparse_reads)
    both = accuracy(example, panel, out, array=example / "target.vcf.gz", likelihoods=sparse_reads)
    assert both > max(array, reads) + 0.005
    assert min(array, reads) > 0.75


def test_of_other_people(example, panel, sparse_reads, tmp_path):
    renamed = tmp_path / "renamed.vcf"
    head, _, records = sparse_reads.read_text().partition("\n#CHROM")
    names, _, records = records.partition("\n")
    *columns, _ = names.split("\t")
    renamed.write_text(head + "\n#CHROM" + "\t".join([*columns, "somebody"]) + "\n" + records)
    settings = spinimpute.SequencingSettings(likelihoods=renamed, array=example / "target.vcf.gz")
    with pytest.raises(InputError, match=r"have different samples: somebody is in only one"):
        spinimpute.impute_sequenced(tmp_path / "out.bcf", panel, settings)
    assert not (tmp_path / "out.bcf").exists()
