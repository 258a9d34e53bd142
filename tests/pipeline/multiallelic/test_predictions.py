"""The alleles of a haplotype have probabilities that add up to 1."""

from functools import partial

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.predictors.haplotype_attention import engine
from spinimpute.predictors.haplotype_attention.tile import windows_of_tiles
from spinimpute.predictors.spin import panel_posteriors
from tests.pipeline.multiallelic.multiallelic_rows import (
    N_SAMPLES,
    panel_rows,
    records_of,
    target_rows,
    totals,
    with_alts_in_order,
)


def test_order_of_records_and_of_alts(build, rng):
    rows = panel_rows(rng)
    changed = with_alts_in_order(rows, lambda alts: alts[::-1])
    assert changed != rows
    backwards = sorted(changed, key=lambda row: (row[0], -changed.index(row)))
    with build(rows) as one, build(backwards, "q") as other:
        assert one.checksum == other.checksum
        assert records_of(one).n_records(Interval(0, one.n_sites)) == len(rows)


def test_split_multiallelic(build, rng):
    with build(panel_rows(rng), split_multiallelic=True) as panel:
        assert not panel.multiallelic.any()


def test_a_biallelic_record_that_repeats_an_allele_of_a_multiallelic_one(build, rng):
    """In any order: the record keeps the allele."""
    rows = panel_rows(rng)
    position, ref, alt, calls = next(row for row in rows if "," in row[2])
    last = len(alt.split(","))
    repeated = ["|".join(str(int(allele == str(last))) for allele in call.split("|")) for call in calls]
    repetition = (position, ref, alt.split(",")[-1], repeated)
    with (
        build(rows) as plain,
        build(sorted([*rows, repetition], key=lambda row: row[0]), "after") as after,
        build(sorted([repetition, *rows], key=lambda row: row[0]), "before") as before,
    ):
        assert plain.sites.keys() == after.sites.keys() == before.sites.keys()
        assert (plain.multiallelic == after.multiallelic).all()
        assert (plain.multiallelic == before.multiallelic).all()


@pytest.mark.parametrize("kind", ["haplotype", "spin", "points"])
def test_predictions_add_up_to_1(panel, rng, random_predictor, tmp_path, kind):
    typed_index = np.arange(0, panel.n_sites, 4)
    assert panel.multiallelic[typed_index].any()
    typed_TQ = rng.integers(-1, 2, (len(typed_index), 6)).astype(np.int8)
    for rows in records_of(panel).multiallelic_within(Interval(0, panel.n_sites)):
        first, stop = np.searchsorted(typed_index, rows)
        typed_TQ[first + 1 : stop] = 0  # a haplotype has one allele
    predictor = spinimpute.PredictorSettings(model=None if kind == "haplotype" else random_predictor)
    if kind == "points":
        with spinimpute.build_inducing_panel(
            panel, tmp_path / "p.spip", typed_index, model=random_predictor
        ) as points:
            p_UQ = spinimpute.impute_haplotypes(points, typed_TQ, typed_index, predictor=predictor)
    else:
        p_UQ = spinimpute.impute_haplotypes(panel, typed_TQ, typed_index, predictor=predictor)
    sums = np.concatenate(totals(panel, p_UQ))
    assert sums.max() <= 1 + 1e-6
    assert (sums > 0.5).any()
    np.testing.assert_array_equal(p_UQ[typed_index][typed_TQ >= 0], typed_TQ[typed_TQ >= 0])


def test_sequenced_samples_add_up_to_1(panel, rng):
    index = np.arange(0, panel.n_sites, 2)
    likelihoods_TX3 = rng.random((len(index), 5, 3)) ** 2
    made = spinimpute.impute_likelihoods(panel, likelihoods_TX3, index)
    sums = np.concatenate(totals(panel, made.haplotypes))
    assert sums.max() <= 1 + 1e-6
    assert (sums > 0.999).any()


@pytest.mark.parametrize("spin", [False, True])
def test_windows_do_not_cut_a_record(panel, rng, random_predictor, write_vcf, tmp_path, monkeypatch, spin):
    target = write_vcf(target_rows(panel, rng))
    predictor, found = spinimpute.PredictorSettings(model=random_predictor if spin else None), []
    for most in (10**6, 1, 2, 7):
        for module in (panel_posteriors, engine):
            cut = partial(windows_of_tiles, n_sites=most)
            monkeypatch.setattr(module, "windows_of_tiles", lambda *arguments, cut=cut: cut(*arguments[:4]))
        out = tmp_path / f"{most}.vcf"
        summary = spinimpute.impute(target, out, panel, predictor=predictor)
        n_records = records_of(panel).n_records(Interval(0, panel.n_sites))
        n_windows = {10**6: 1, 1: n_records}.get(most)
        assert n_windows is None or len(summary.windows) == n_windows
        found.append(out.read_bytes())
    assert len(set(found)) == 1


def test_merged_panels_join_the_alleles_of_a_record(build, rng, tmp_path):
    """Also alleles of one panel only, and if a biallelic record of the same position lies between them."""
    rows = panel_rows(rng)
    half = N_SAMPLES // 2
    first = [(*row[:3], row[3][:half]) for row in rows]
    second = [(*row[:3], row[3][half:]) for row in rows]
    second = [(position, ref, alt.replace("C,G", "G,TT"), calls) for position, ref, alt, calls in second]
    panels = []
    for name, some, start in (("a", first, 0), ("b", second, half)):
        build(some, name, samples=[f"s{start + i}" for i in range(half)]).close()
        panels.append(tmp_path / f"{name}.spin")
    spinimpute.merge_panels(panels, tmp_path / "m.spin")
    with spinimpute.Panel.open(tmp_path / "m.spin") as merged:
        records = records_of(merged).multiallelic_within(Interval(0, merged.n_sites))
        found = {int(merged.position[one.start]): merged.sites.alt[one.slice] for one in records}
        for one in records:  # a haplotype has at most one ALT, also where the missing ones were filled in
            assert merged.alleles(*one).sum(axis=0, dtype=int).max() == 1
    expected = {}
    for position, _, alt, _ in rows:
        if "," in alt:
            expected[position] = sorted({*alt.split(","), *alt.replace("C,G", "G,TT").split(",")})
    assert found == expected
