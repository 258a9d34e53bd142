"""`impute` from an inducing panel: real files in and out, without the panel."""

import gzip
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import cyvcf2
import numpy as np
import pandas as pd
import pytest

import spinimpute
from spinimpute.pipeline.settings import OutputSettings
from spinimpute.predictors.registry import row_by_name
from spinimpute.predictors.spin import engine, panel_posteriors
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

H = 32
FINE = OutputSettings(decimals=4)  # a difference in the last digit is to be a small one


@pytest.fixture(scope="module")
def made(example_panel, example, tmp_path_factory) -> Iterator[spinimpute.InducingPanel]:
    """Made of a copy of the panel that is gone."""
    folder = tmp_path_factory.mktemp("inducing")
    copy = folder / "panel.spin"
    shutil.copy(example_panel.path, copy)
    with spinimpute.Panel.open(copy) as panel:
        spinimpute.build_inducing_panel(panel, folder / "p.spip", example / "array.txt", H).close()
    copy.unlink()
    with spinimpute.InducingPanel.open(folder / "p.spip") as opened:
        yield opened


@pytest.fixture
def target(example) -> Path:
    return example / "target.vcf.gz"


@pytest.fixture
def edited(target, tmp_path) -> Callable[[Callable[[int, str], str | None]], Path]:
    """edited(change): the target with every record changed by change(number, line); None drops it."""

    def write(change: Callable[[int, str], str | None]) -> Path:
        lines = gzip.decompress(target.read_bytes()).decode().splitlines()
        head = [line for line in lines if line.startswith("#")]
        records = [line for line in lines if not line.startswith("#")]
        changed = [change(i, line) for i, line in enumerate(records)]
        path = tmp_path / "edited.vcf"
        path.write_text("\n".join([*head, *(line for line in changed if line is not None)]) + "\n")
        return path

    return write


def dosages(path: Path) -> dict[int, np.ndarray]:
    """DS (samples,) by position."""
    return {v.POS: v.format("DS")[:, 0].copy() for v in cyvcf2.VCF(str(path))}


def error(path: Path, truth: Path) -> float:
    """1 - r2 of all dosages at sites that were not typed, turned to the minor allele."""
    true = {v.POS: v.genotype.array()[:, :2].sum(1) for v in cyvcf2.VCF(str(truth))}
    pairs = []
    for v in cyvcf2.VCF(str(path)):
        if v.INFO.get("IMPUTED"):
            dosage, answer = v.format("DS")[:, 0], true[v.POS]
            pairs.append((2 - dosage, 2 - answer) if v.INFO["AF"] > 0.5 else (dosage, answer))
    dosage, answer = np.concatenate(pairs, axis=1)
    return float(1 - np.corrcoef(dosage, answer)[0, 1] ** 2)


def test_it_gives_what_the_panel_gives(made, example_panel, target, example, tmp_path, monkeypatch):
    """Without posteriors, but for the last digit of few: genetic positions are rounded to 1e-8 cM."""
    summary = spinimpute.impute(target, tmp_path / "linked.bcf", made.path, output=FINE)
    monkeypatch.setattr(engine, "POINT_WEIGHT", 0)
    spinimpute.impute(target, tmp_path / "file.bcf", made.path, output=FINE)
    predictor = spinimpute.PredictorSettings(name="spin", options={"inducing_points": H})
    spinimpute.impute(target, tmp_path / "mean.bcf", example_panel, predictor=predictor, output=FINE)
    monkeypatch.setattr(panel_posteriors, "POSTERIOR_WEIGHT", 0)
    spinimpute.impute(target, tmp_path / "panel.bcf", example_panel, predictor=predictor, output=FINE)
    found, expected = dosages(tmp_path / "file.bcf"), dosages(tmp_path / "panel.bcf")
    assert found.keys() == expected.keys()
    difference = np.stack([found[position] - expected[position] for position in expected])
    assert np.abs(difference).max() < 2.5e-4
    assert (difference != 0).mean() < 1e-3
    truth = example / "truth.vcf.gz"
    errors = [error(tmp_path / f"{name}.bcf", truth) for name in ("mean", "linked", "panel")]
    assert sorted(errors) == errors
    assert errors[-1] < 0.2
    assert (summary.array_sites, summary.outside_array) == (246, 0)
    assert summary.written_sites == example_panel.n_sites
    assert "array:    246 of the 246 sites of the panel's array are typed" in summary.lines()


def test_records_as_from_a_panel(made, example_panel, target, tmp_path):
    out = tmp_path / "o.vcf.gz"
    spinimpute.impute(target, out, made, output=OutputSettings(formats=("GT", "DS", "HDS", "GP")))
    typed = {v.POS for v in cyvcf2.VCF(str(target))}
    records = list(cyvcf2.VCF(str(out)))
    assert [v.POS for v in records] == example_panel.position.tolist()
    assert [v.ID for v in records] == example_panel.sites.id
    for v in records:
        assert bool(v.INFO.get("TYPED")) == (v.POS in typed)
        np.testing.assert_allclose(v.format("GP").sum(1), 1, atol=1e-6)
    header = cyvcf2.VCF(str(out)).raw_header
    origin = f"(at most 32 inducing points of the panel {example_panel.checksum})"
    assert f"##spinimpute_panel={made.checksum} {origin}\n" in header
    assert f"##spinimpute_model={made.kind} {made.fingerprint}" in header
    assert (tmp_path / "o.vcf.gz.tbi").exists()


def test_region_and_unmatched_sites(made, edited, target, tmp_path):
    def other_alt(number: int, line: str) -> str:
        words = line.split("\t")
        return "\t".join([*words[:4], words[4] + "A", *words[5:]]) if number == 100 else line

    position = [v.POS for v in cyvcf2.VCF(str(target))][100]
    region = f"20:{position - 20_000}-{position + 20_000}"
    path = edited(other_alt)
    out = tmp_path / "o.bcf"
    summary = spinimpute.impute(
        path,
        out,
        made,
        region=spinimpute.RegionSettings(region=region),
        output=OutputSettings(keep_unmatched=True, decimals=4),
    )
    assert summary.kept_unmatched == 1
    assert summary.matched_sites == 245
    records = [v.POS for v in cyvcf2.VCF(str(out))]
    assert records.count(position) == 2
    inside = np.abs(made.position - position) <= 20_000
    assert sorted({*records}) == made.position[inside].tolist()
    spinimpute.impute(path, tmp_path / "whole.bcf", made, output=FINE)
    whole = dosages(tmp_path / "whole.bcf")
    for place, dosage in dosages(out).items():
        if place != position:
            np.testing.assert_allclose(dosage, whole[place], atol=2.1e-4)


def test_targets_that_typed_a_part_of_the_array(made, example_panel, edited, target, example, tmp_path):
    """Half of the sites: not much less accurate than points made for that half, which see twice as far."""
    half = edited(lambda number, line: line if number % 2 else None)
    summary = spinimpute.impute(half, tmp_path / "half.bcf", made, output=FINE)
    assert (summary.matched_sites, summary.array_sites, summary.outside_array) == (123, 246, 0)
    assert "array:    123 of the 246 sites of the panel's array are typed" in summary.lines()
    spinimpute.impute(
        half,
        tmp_path / "own.bcf",
        example_panel,
        predictor=spinimpute.PredictorSettings(name="spin", options={"inducing_points": H}),
    )
    spinimpute.impute(target, tmp_path / "all.bcf", made)
    truth = example / "truth.vcf.gz"
    of_half, of_own, of_all = (error(tmp_path / f"{name}.bcf", truth) for name in ("half", "own", "all"))
    assert of_all < of_half < 1.4 * of_own

    def blank(number: int, line: str) -> str:
        words = line.split("\t")
        return line if number % 2 else "\t".join([*words[:9], *[".|."] * len(words[9:])])

    spinimpute.impute(edited(blank), tmp_path / "missing.bcf", made, output=FINE)
    missing = dosages(tmp_path / "missing.bcf")
    typed = {v.POS for v in cyvcf2.VCF(str(target))}
    for position, dosage in dosages(tmp_path / "half.bcf").items():
        if position not in typed:
            np.testing.assert_allclose(missing[position], dosage, atol=2.1e-4)


def test_sites_outside_the_array_are_an_explained_loss(
    example_panel, random_predictor, random_network, edited, target, tmp_path
):
    typed = {v.POS for v in cyvcf2.VCF(str(target))}
    array = np.flatnonzero(np.isin(example_panel.position, sorted(typed)))[::3]
    with spinimpute.build_inducing_panel(
        example_panel, tmp_path / "third.spip", array, model=random_predictor
    ) as third:
        summary = spinimpute.impute(target, tmp_path / "o.bcf", third, predictor=random_network)
        assert (summary.matched_sites, summary.array_sites, summary.outside_array) == (246, 82, 164)
        assert any("164 typed sites are not on this array" in line for line in summary.lines())
        for v in cyvcf2.VCF(str(tmp_path / "o.bcf")):
            assert bool(v.INFO.get("TYPED")) == (v.POS in typed)
        # what the array lacks tells the model nothing
        of_array = edited(lambda number, line: line if number % 3 == 0 else None)
        spinimpute.impute(of_array, tmp_path / "a.bcf", third, predictor=random_network)
        alone = dosages(tmp_path / "a.bcf")
        for position, dosage in dosages(tmp_path / "o.bcf").items():
            if position not in typed:
                np.testing.assert_array_equal(dosage, alone[position])
        of_others = edited(lambda number, line: None if number % 3 == 0 else line)
        with pytest.raises(InputError, match="none of the 164 typed sites is among the 82 sites"):
            spinimpute.impute(of_others, tmp_path / "b.bcf", third, predictor=random_network)
    assert not (tmp_path / "b.bcf").exists()


def test_where_nothing_near_is_typed_the_frequency_is_told(
    made, example_panel, random_predictor, random_network, tmp_path
):
    index = np.arange(0, 4_400, 11)
    with spinimpute.build_inducing_panel(
        example_panel, tmp_path / "p.spip", index, model=random_predictor
    ) as panel:
        alleles = np.ones((1, 3), dtype=np.int8)
        p = spinimpute.impute_haplotypes(panel, alleles, index[:1], predictor=random_network)
    far = slice(1_000, None)
    np.testing.assert_allclose(p[far], example_panel.frequency[far, None].repeat(3, 1), rtol=1e-6)
    assert (p[0] == 1).all()


def test_choices_that_do_not_fit(made, random_network, target, example, tmp_path):
    out = tmp_path / "o.bcf"
    with pytest.raises(InputError, match=r"were made by the model .*, not by .* random .*\. Give that model"):
        spinimpute.impute(target, out, made, predictor=random_network)
    cannot = "holds inducing points and no haplotypes. The predictor 'haplotype'.* cannot read it, 'spin' can"
    for given, said in (
        ({"name": "haplotype"}, "leave out the predictor"),
        (
            {"model": row_by_name("haplotype").shipped_checkpoint},
            r"of the model .*haplotype.safetensors cannot.* leave out the model",
        ),
    ):
        with pytest.raises(InputError, match=cannot) as refused:
            spinimpute.impute(target, out, made, predictor=spinimpute.PredictorSettings(**given))
        assert re.search(said, str(refused.value))
    with pytest.raises(InputError, match="at most 32 inducing points a block"):
        spinimpute.impute(
            target, out, made.path, predictor=spinimpute.PredictorSettings(options={"inducing_points": 64})
        )
    with pytest.raises(InputError, match="has its genetic map in it"):
        spinimpute.impute(target, out, made.path, genetic_map=example / "genetic.map")
    with pytest.raises(InputError, match="the panel has no site in"):
        spinimpute.impute(target, out, made, region=spinimpute.RegionSettings(region="20:5000000-"))
    with pytest.raises(InputError, match="is also read from"):
        spinimpute.impute(target, made.path, made, output=OutputSettings(output_type="b"), force=True)
    assert not out.exists()


def test_damage_found_on_the_way_leaves_no_output(made, target, tmp_path):
    content = bytearray(made.path.read_bytes())
    content[2_000] ^= 1
    (tmp_path / "bad.spip").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.spip: damaged: the block \d+ of \d+"):
        spinimpute.impute(target, tmp_path / "o.vcf.gz", tmp_path / "bad.spip")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.spip"]


def test_evaluate_takes_its_frequencies(made, example_panel, target, example, tmp_path):
    spinimpute.impute(target, tmp_path / "o.bcf", made)
    of_file, of_panel = (
        pd.DataFrame(
            spinimpute.evaluate(example / "truth.vcf.gz", tmp_path / "o.bcf", path, target).by_frequency
        )
        for path in (made.path, example_panel.path)
    )
    assert of_file.equals(of_panel)
