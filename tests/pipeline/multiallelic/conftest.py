"""Fixtures: a panel with multi-allelic records."""

import warnings
from collections.abc import Callable, Iterator, Sequence

import pytest

import spinimpute
from tests.pipeline.multiallelic.multiallelic_rows import Row, panel_rows


@pytest.fixture
def build(write_vcf, tmp_path) -> Callable[..., spinimpute.Panel]:
    def built(
        rows: Sequence[Row], name: str = "p", samples: Sequence[str] | None = None, **options: bool
    ) -> spinimpute.Panel:
        source = write_vcf(rows, samples or [f"s{i}" for i in range(len(rows[0][3]))], f"{name}.vcf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no genetic map
            return spinimpute.build_panel(source, tmp_path / f"{name}.spin", **options)

    return built


@pytest.fixture
def panel(build, rng) -> Iterator[spinimpute.Panel]:
    with build(panel_rows(rng)) as built:
        yield built
