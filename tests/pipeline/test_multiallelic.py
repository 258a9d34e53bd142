"""Panels with multi-allelic records: the alleles of a haplotype have probabilities that add up to 1."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import RecordRows
from spinimpute.predictors.haplotype_attention import engine
from spinimpute.predictors.haplotype_attention.tile import windows_of_tiles
from spinimpute.predictors.spin import panel_posteriors

N_SITES, N_SAMPLES = 90, 40
Row = tuple[int, str, str, list[str]]  # POS, REF, ALT, one GT per sample


def n_alts(site: int) -> int:
    """Every fifth site has two or three ALT alleles."""
    return 1 if site % 5 != 2 else 2 + site % 2


def panel_rows(rng: np.random.Generator) -> list[Row]:
    """Haplotypes of four founders, with some errors: so neighbours are linked."""
    founder_Q = rng.integers(0, 4, (3, 2 * N_SAMPLES)).repeat(N_SITES // 3, axis=0)
    rows: list[Row] = []
    for site in range(N_SITES):
        alleles = rng.integers(0, n_alts(site) + 1, 4)[founder_Q[site]]
        error = rng.random(2 * N_SAMPLES) < 0.05
        alleles = np.where(error, rng.integers(0, n_alts(site) + 1, 2 * N_SAMPLES), alleles)
        alleles[: n_alts(site) + 1] = range(n_alts(site) + 1)
        calls = [f"{a}|{b}" for a, b in alleles.reshape(-1, 2)]
        rows.append((1000 + 100 * site, "A", ",".join(["C", "G", "T"][: n_alts(site)]), calls))
        if site % 10 == 2:
            rows.append(
                (1000 + 100 * site, "A", "CC", [f"{a % 2}|{b % 2}" for a, b in alleles.reshape(-1, 2)])
            )
    return rows


def with_alts_in_order(rows: Sequence[Row], order: Callable[[list[str]], list[str]]) -> list[Row]:
    """The same haplotypes with the ALTs of each record in another order."""
    changed: list[Row] = []
    for position, ref, alt, calls in rows:
        alts = alt.split(",")
        new = order(alts)
        number = {"0": "0", **{str(i + 1): str(new.index(one) + 1) for i, one in enumerate(alts)}}
        translated = ["|".join(number[allele] for allele in call.split("|")) for call in calls]
        changed.append((position, ref, ",".join(new), translated))
    return changed


@pytest.fixture
def build(write_vcf, tmp_path) -> Callable[..., spinimpute.Panel]:
    def built(rows: Sequence[Row], name: str = "p", **options: bool) -> spinimpute.Panel:
        source = write_vcf(rows, [f"s{i}" for i in range(N_SAMPLES)], f"{name}.vcf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no genetic map
            return spinimpute.build_panel(source, tmp_path / f"{name}.spin", **options)

    return built


@pytest.fixture
def panel(build, rng) -> Iterator[spinimpute.Panel]:
    with build(panel_rows(rng)) as built:
        yield built


def records_of(panel: spinimpute.Panel) -> RecordRows:
    return RecordRows.of(panel.sites, panel.multiallelic)


def totals(panel: spinimpute.Panel, p_UQ: np.ndarray) -> list[np.ndarray]:
    """The sums of P(ALT) in each multi-allelic record."""
    records = records_of(panel).multiallelic_within(Interval(0, panel.n_sites))
    assert len(records) == N_SITES // 5
    return [p_UQ[rows.slice].sum(axis=0) for rows in records]


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


def target_rows(panel: spinimpute.Panel, rng: np.random.Generator, n_samples: int = 3) -> list[Row]:
    """Calls of haplotypes that are drawn from the panel, at every third site; one ALT in each row."""
    index = np.arange(0, panel.n_sites, 3)
    alleles = np.stack([panel.alleles(i, i + 1)[0] for i in index])[:, rng.permutation(80)[: 2 * n_samples]]
    sites = panel.sites.take(index)
    rows = zip(sites.position.tolist(), sites.ref, sites.alt, alleles, strict=True)
    return [(p, ref, alt, [f"{a}|{b}" for a, b in calls.reshape(-1, 2)]) for p, ref, alt, calls in rows]


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
