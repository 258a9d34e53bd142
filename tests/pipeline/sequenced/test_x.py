"""Sequenced samples from files to files: chromosome X, where men have one copy."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import RegionSettings
from tests.pipeline.sequenced.outputs import correlation, phred_of_reads, read, without_header

World = Any

PAR1_END = 2_699_520  # GRCh37
MEN = {f"s{i}": i % 2 == 0 for i in range(6)}


def x_rows(
    world: World, depth: float, sites: Sequence[int]
) -> tuple[np.ndarray, list[tuple[int, list[str]]]]:
    """Truth, and records: men have one copy beyond PAR1, stated by two numbers."""
    genotype_SX = world.genotype_SX.copy()
    beyond_S = np.array(world.position) > PAR1_END
    man_X = np.array(list(MEN.values()))
    one_SX = beyond_S[:, None] & man_X
    genotype_SX = np.where(one_SX, 2 * world.truth_SX2[..., 0], genotype_SX)
    phred_SX3 = phred_of_reads(np.random.default_rng(2), genotype_SX, depth)
    rows = []
    for s in sites:
        fields = []
        for x in range(len(MEN)):
            phred = phred_SX3[s, x]
            if one_SX[s, x]:
                phred = phred[::2] - phred[::2].min()
            fields.append(",".join(map(str, phred.tolist())))
        rows.append((s, fields))
    return genotype_SX, rows


def test_men_have_one_copy_beyond_par1(x_world, impute, tmp_path):
    truth_SX, rows = x_rows(x_world, 2.0, [s for s in range(150) if s % 4])
    gl = x_world.write_vcf(tmp_path / "gl.vcf", rows)
    beyond_S = np.array(x_world.position) > PAR1_END
    assert 20 < beyond_S.sum() < 140
    outs = [impute(x_world, gl, sexes=sexes, suffix=".vcf") for sexes in (None, MEN)]
    assert without_header(outs[0]) == without_header(outs[1])
    found = read(outs[0])
    assert found.position == x_world.position
    for s, calls in enumerate(found.calls):
        ploidy = [len(call) - 1 for call in calls]
        assert ploidy == ([1, 2] * 3 if beyond_S[s] else [2] * len(MEN))
    man_X = np.array(list(MEN.values()))
    dosage_SX = np.where(beyond_S[:, None] & man_X, 2 * found.DS, found.DS)
    for sites in (beyond_S, ~beyond_S):
        for people in (man_X, ~man_X):
            chosen = np.ix_(sites, people)
            assert correlation(dosage_SX[chosen], truth_SX[chosen], x_world.frequency[sites]) > 0.85


def test_a_man_depends_on_nobody_else(x_world, impute, tmp_path):
    """Where he has no read others do: that they were looked at says nothing of him."""
    bams = x_world.write_bams(tmp_path, 0.4, haploid=[0, 2, 4])
    region = RegionSettings(f"X:{PAR1_END + 1}-{x_world.position[-1]}")
    whole = without_header(impute(x_world, bams=bams, sexes=MEN, region=region))
    for x in range(2):
        alone = without_header(impute(x_world, bams=[bams[x]], sexes=MEN, region=region))
        assert [line.split("\t")[9] for line in alone] == [line.split("\t")[9 + x] for line in whole]


def test_what_is_unknown_of_men(x_world, tmp_path):
    """Without reads at a site nothing is known of anybody there."""
    bams = x_world.write_bams(tmp_path, 0.4, haploid=[0, 2, 4])
    region = RegionSettings(f"X:{PAR1_END + 1}-{x_world.position[-1]}", 0)
    summary = impute_sequenced(
        tmp_path / "o.vcf", x_world.panel, SequencingSettings(None, bams, sexes=MEN), region=region
    )
    assert summary.haploid == 3
    np.testing.assert_allclose(summary.coverage.unknown_X, np.exp(-0.4), atol=0.2)


def test_columns_of_a_part_without_records(x_world, impute, tmp_path):
    """The likelihoods begin beyond PAR1, and reads are in another order: everybody keeps their column."""
    truth_SX, rows = x_rows(x_world, 2.0, range(150))
    rows = [row for row in rows if x_world.position[row[0]] > PAR1_END]
    gl = x_world.write_vcf(tmp_path / "gl.vcf", rows)
    bams = x_world.write_bams(tmp_path, 2.0, haploid=[0, 2, 4])
    found = read(impute(x_world, gl, bams[::-1], sexes=MEN))
    of_name = [found.samples.index(name) for name in x_world.names]
    for part in (np.array(x_world.position) <= PAR1_END, np.array(x_world.position) > PAR1_END):
        women = [1, 3, 5]
        dosage_SX = found.DS[np.ix_(part, [of_name[x] for x in women])]
        assert correlation(dosage_SX, truth_SX[np.ix_(part, women)], x_world.frequency[part]) > 0.85


def test_a_part_of_which_nothing_is_known_is_told(x_world, tmp_path):
    _, rows = x_rows(x_world, 2.0, range(150))
    rows = [row for row in rows if x_world.position[row[0]] > PAR1_END]
    gl = x_world.write_vcf(tmp_path / "gl.vcf", rows)
    out = tmp_path / "o.vcf"
    summary = impute_sequenced(out, x_world.panel, SequencingSettings(gl, sexes={"nobody": True}))
    warning, of_sexes = summary.warnings
    assert of_sexes == "no sample is in the list of sexes: all have two copies of X"
    assert "no sample has data in X:" in warning
    written = [int(line.split("\t")[1]) for line in without_header(out)[1:]]
    assert written == [x_world.position[s] for s, _ in rows]
