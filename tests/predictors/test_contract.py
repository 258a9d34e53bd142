"""The contract of predictors: what must hold for every row of the registry, on the example, through files.

A new predictor is tested here as soon as it is in the registry.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.panels.file_kind import HAPLOTYPES
from spinimpute.predictors.registry import PREDICTORS, PredictorRow

pytestmark = pytest.mark.slow

OUTPUT = spinimpute.OutputSettings(formats=("GT", "DS", "HDS"), decimals=4)
QUICK = {"inducing_points": 16}  # options that make a test faster
TARGETS = 6  # samples of the example's target


@dataclass(frozen=True)
class Case:
    """A predictor, and what the panel holds for it."""

    row: PredictorRow
    holds: str
    large: bool = False  # imputed like a panel with many haplotypes

    def __str__(self) -> str:
        return f"{self.row.name}-{self.holds.replace(' ', '-')}{'-large' * self.large}"


CASES = [Case(row, holds) for row in PREDICTORS for holds in row.reads]
CASES += [Case(row, HAPLOTYPES, large=True) for row in PREDICTORS if row.name == "haplotype"]


@pytest.fixture(params=CASES, ids=str)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Case:
    chosen: Case = request.param
    if chosen.large:
        monkeypatch.setattr("spinimpute.hmm.parameters.MAX_PANEL_AS_STATES", 0)
        monkeypatch.setattr("spinimpute.predictors.haplotype_attention.posterior_alleles.SMALL_PANEL", 5)
        monkeypatch.setattr("spinimpute.predictors.haplotype_attention.posterior_alleles.LARGE_PANEL", 6)
    return chosen


class Variants:
    """Lines of a phased VCF, without its header lines."""

    def __init__(self, header: list[str], rows: list[list[str]]) -> None:
        self.header, self.rows = header, rows

    @classmethod
    def read(cls, path: Path) -> Variants:
        lines = gzip.decompress(path.read_bytes()).decode().splitlines()
        header = [line for line in lines if line.startswith("##")]
        return cls(header, [line.split("\t") for line in lines[len(header) :]])

    def take(self, samples: list[int]) -> Variants:
        return Variants(self.header, [row[:9] + [row[9 + x] for x in samples] for row in self.rows])

    def map_calls(self, change: Callable[[str], str], rows: slice = slice(1, None)) -> Variants:
        chosen = {id(row) for row in self.rows[rows]}
        changed = [[*row[:9], *map(change, row[9:])] if id(row) in chosen else row for row in self.rows]
        return Variants(self.header, changed)

    def write(self, path: Path) -> Path:
        path.write_text("\n".join([*self.header, *("\t".join(row) for row in self.rows)]) + "\n")
        return path


@pytest.fixture(scope="module")
def target(example: Path) -> Variants:
    """A few samples, of which the last is in the panel, with some missing calls."""
    few = Variants.read(example / "target.vcf.gz").take(list(range(TARGETS)))
    panel = {tuple(row[:5]): row[9] for row in Variants.read(example / "panel.vcf.gz").rows}
    for row in few.rows[1:]:
        row[-1] = panel.get(tuple(row[:5]), row[-1])
    for number, row in enumerate(few.rows[1:]):
        if number % 7 == 3:
            row[9 + number % TARGETS] = ".|."
    return few


@dataclass(frozen=True)
class Imputer:
    """Imputes with one predictor and one panel."""

    case: Case
    panel: Path
    folder: Path

    def __call__(self, target: Variants, options: dict[str, Any] | None = None, **settings: Any) -> Variants:
        quick = QUICK if self.case.holds == HAPLOTYPES else {}
        own = {name: value for name, value in quick.items() if self.case.row.has_option(name)}
        predictor = spinimpute.PredictorSettings(self.case.row.name, options=own | (options or {}))
        out = self.folder / "out.vcf.gz"
        settings = {"output": OUTPUT, "resources": spinimpute.Resources(threads=1), **settings}
        vcf = target.write(self.folder / "target.vcf")
        spinimpute.impute(vcf, out, self.panel, predictor=predictor, force=True, **settings)
        return Variants.read(out)


@pytest.fixture(scope="module")
def panels(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """panels(holds, shuffled): the example's panel, its samples and their haplotypes shuffled or not."""
    folder = tmp_path_factory.mktemp("panels")

    def build(holds: str, shuffled: bool = False) -> Path:
        haplotypes = folder / f"{shuffled}.spin"
        if not haplotypes.exists():
            variants = Variants.read(example / "panel.vcf.gz")
            if shuffled:
                order = np.random.default_rng(2).permutation(len(variants.rows[0]) - 9).tolist()
                variants = variants.take(order).map_calls(lambda call: call[::-1])
            vcf = variants.write(folder / f"{shuffled}.vcf")
            spinimpute.build_panel(vcf, haplotypes, example / "genetic.map").close()
        if holds == HAPLOTYPES:
            return haplotypes
        points = folder / f"{shuffled}.spip"
        if not points.exists():
            with spinimpute.Panel.open(haplotypes) as panel:
                spinimpute.build_inducing_panel(panel, points, example / "array.txt", 16).close()
        return points

    return build


@pytest.fixture
def impute(case: Case, panels: Callable[..., Path], tmp_path: Path) -> Imputer:
    return Imputer(case, panels(case.holds), tmp_path)


@pytest.fixture(scope="module")
def results() -> dict[str, Variants]:
    """The imputed target of each case."""
    return {}


@pytest.fixture
def whole(impute: Imputer, target: Variants, results: dict[str, Variants]) -> Variants:
    """The imputed target, computed once for each case."""
    case = str(impute.case)
    if case not in results:
        results[case] = impute(target)
    return results[case]


def test_results_depend_on_no_setting_of_the_computation(
    impute: Imputer, target: Variants, whole: Variants, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert impute(target, resources=spinimpute.Resources(threads=2)).rows == whole.rows
    if impute.case.row.has_option("window_cM"):
        assert impute(target, {"window_cM": 0.03}).rows == whole.rows
    if impute.case.row.has_option("max_memory"):
        resources = spinimpute.Resources(threads=1, max_memory=2**40)
        assert impute(target, resources=resources).rows == whole.rows
    monkeypatch.setattr("spinimpute.predictors.interface.WINDOW_SITES", 300)
    assert impute(target).rows == whole.rows


def test_the_order_of_panel_haplotypes_changes_nothing(
    impute: Imputer, panels: Callable[..., Path], target: Variants, whole: Variants, tmp_path: Path
) -> None:
    shuffled = Imputer(impute.case, panels(impute.case.holds, True), tmp_path)
    assert shuffled(target).rows == whole.rows
    few_typed = Variants(target.header, target.rows[:8])  # many panel haplotypes match equally well
    assert shuffled(few_typed, min_typed_ratio=0).rows == impute(few_typed, min_typed_ratio=0).rows


def test_samples_do_not_depend_on_each_other(impute: Imputer, target: Variants, whole: Variants) -> None:
    """Neither their order nor the other samples change a call, up to rounding in the last decimal."""
    order = [4, 0, 3, 5, 1, 2]
    for samples in (order, [2]):
        found, expected = impute(target.take(samples)).rows, whole.take(samples).rows
        for row, expected_row in zip(found[1:], expected[1:], strict=True):
            for call, expected_call in zip(row[9:], expected_row[9:], strict=True):
                genotype, dosage, _ = call.split(":")
                expected_genotype, expected_dosage, _ = expected_call.split(":")
                assert genotype == expected_genotype
                assert float(dosage) == pytest.approx(float(expected_dosage), abs=2.01e-4)


@pytest.mark.parametrize("buffer_cM", [None, 0.001])  # with a buffer, typed sites far away are not used
def test_a_region_has_the_results_of_the_whole_chromosome(
    impute: Imputer, target: Variants, whole: Variants, buffer_cM: float | None
) -> None:
    inside = whole.rows[1_500:2_100]
    region = spinimpute.RegionSettings(f"20:{inside[0][1]}-{inside[-1][1]}", buffer_cM)
    assert impute(target, region=region).rows[1:] == inside


def test_typed_genotypes_stay(target: Variants, whole: Variants) -> None:
    imputed = {tuple(row[1:5]): row for row in whole.rows[1:]}
    n_called = n_filled = 0
    for row in target.rows[1:]:
        if tuple(row[1:5]) not in imputed:
            continue
        for call, found in zip(row[9:], imputed[tuple(row[1:5])][9:], strict=True):
            genotype, dosage, _ = found.split(":")
            if "." in call:
                n_filled += 1
                assert "." not in genotype
            else:
                n_called += 1
                assert genotype == call
                assert float(dosage) == call.count("1")
    assert n_called > 100 * n_filled / 7 > 0


def test_leave_one_out_does_not_see_the_site(impute: Imputer, target: Variants) -> None:
    """Exchanging both alleles of a site keeps the squared correlation with predictions from other sites."""
    if impute.case.holds != HAPLOTYPES:
        pytest.skip("leave-one-out needs haplotypes")
    output = spinimpute.OutputSettings(leave_one_out=True)
    common = [
        number
        for number, row in enumerate(target.rows[1:], start=1)
        if 3 <= "".join(row[9:]).count("1") <= 9 and {row[3], row[4]} not in ({"A", "T"}, {"C", "G"})
    ]
    chosen = common[len(common) // 2]
    swap = str.maketrans("01", "10")
    exchanged = target.map_calls(lambda call: call.translate(swap), slice(chosen, chosen + 1))
    found = []
    for variants in (target, exchanged):
        rows = impute(variants, output=output).rows
        info = next(row[7] for row in rows if row[1] == target.rows[chosen][1])
        found.append(next(field for field in info.split(";") if field.startswith("ER2=")))
    assert found[0] == found[1]
