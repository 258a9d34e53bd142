"""Fixtures of `impute`: the example's target, as a file and as rows that a test changes."""

from pathlib import Path

import cyvcf2
import pytest

import spinimpute
from spinimpute.predictors.spin.predictor import SPINPredictor

Row = tuple[int, str, str, list[str]]  # POS, REF, ALT, one GT per sample


@pytest.fixture
def example_target(example: Path) -> Path:
    return example / "target.vcf.gz"


@pytest.fixture
def example_rows(example_target: Path) -> tuple[list[str], list[Row]]:
    """The example's target as samples and rows, to be changed by a test."""
    vcf = cyvcf2.VCF(str(example_target))
    rows = [(v.POS, v.REF, v.ALT[0], ["|".join(map(str, call[:2])) for call in v.genotypes]) for v in vcf]
    return vcf.samples, rows


@pytest.fixture
def few_rows(example_rows: tuple[list[str], list[Row]]) -> list[Row]:
    """The rows of the first three samples."""
    return [(*row[:3], row[3][:3]) for row in example_rows[1]]


@pytest.fixture
def random_network(random_predictor: SPINPredictor) -> spinimpute.PredictorSettings:
    return spinimpute.PredictorSettings(model=random_predictor)
