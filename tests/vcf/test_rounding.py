"""DS, HDS and GP as they are written: rounded once, adding up, and the same in VCF and BCF."""

import re
from decimal import Decimal
from pathlib import Path

import cyvcf2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from spinimpute.genotypes.sites import Sites
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

pytestmark = pytest.mark.slow

PLOIDY = np.array([2, 1, 2], np.uint8)
FIRST = np.array([0, 2, 3])
NUMBER = re.compile(r"[01](\.\d*[1-9])?|2")

dosages = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 6), st.just(5)),
    elements=st.one_of(
        st.floats(0, 1, width=32),
        st.floats(0, 0.0020000000949949026, width=32),
        st.sampled_from([0.0, 0.5, 1.0, np.nan]),
    ),
)
several_times = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def write(path: Path, dosage: np.ndarray, decimals: int) -> Path:
    n = len(dosage)
    sites = Sites("20", np.arange(1, n + 1), ["A"] * n, ["C"] * n, ["."] * n)
    formats = ("GT", "DS", "HDS", "GP")
    layout = OutputLayout(["a", "b", "c"], PLOIDY, ["##contig=<ID=20>"], (), formats, (), decimals)
    with GenotypeWriter(path, layout) as writer:
        writer.write_block(RecordBlock("20", sites, dosage, {}, None, np.zeros(n, dtype=bool)))
    return path


def values_in(path: Path) -> list[list[dict[str, list[str]]]]:
    """By record and sample, DS, HDS and GP as they are printed."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return [
        [
            {
                key: value.split(",")
                for key, value in zip(("DS", "HDS", "GP"), sample.split(":")[1:], strict=True)
            }
            for sample in line.split("\t")[9:]
        ]
        for line in lines
    ]


@several_times
@given(dosage=dosages, decimals=st.integers(1, 5))
def test_printed_values_are_rounded_and_add_up(tmp_path: Path, dosage: np.ndarray, decimals: int) -> None:
    unit = Decimal(1).scaleb(-decimals)
    for row, record in zip(dosage, values_in(write(tmp_path / "x.vcf", dosage, decimals)), strict=True):
        for first, ploidy, sample in zip(FIRST, PLOIDY, record, strict=True):
            haplotypes = row[first : first + ploidy]
            assert len(sample["HDS"]) == ploidy
            for p, text in zip(haplotypes, sample["HDS"], strict=True):
                if np.isnan(p):
                    assert text == "."
                    continue
                assert NUMBER.fullmatch(text)
                # float32 holds seven digits
                exact, few = Decimal(float(p)), Decimal("1e-7")
                assert abs(Decimal(text) - exact) <= unit * Decimal("0.75") + few
                if unit * Decimal("0.75") + few < exact < 1 - unit * Decimal("0.75") - few:
                    assert abs(Decimal(text) - exact) <= unit / 2 + few
                    assert 0 < Decimal(text) < 1
                elif min(exact, 1 - exact) < unit * Decimal("0.75") - few:
                    assert text in ("0", "1")
            if np.isnan(haplotypes).any():
                assert sample["DS"] == sample["GP"] == ["."]
                continue
            numbers = {key: [Decimal(text) for text in texts] for key, texts in sample.items()}
            for texts in sample.values():
                assert all(NUMBER.fullmatch(text) for text in texts)
            assert all(value % unit == 0 for of_key in numbers.values() for value in of_key)
            assert numbers["DS"] == [sum(numbers["HDS"])]
            assert len(numbers["GP"]) == ploidy + 1
            assert sum(numbers["GP"]) == 1
            assert sum(i * value for i, value in enumerate(numbers["GP"])) == numbers["DS"][0]
            assert all(value >= 0 for value in numbers["GP"])
            if ploidy == 2:
                assert abs(numbers["GP"][2] - numbers["HDS"][0] * numbers["HDS"][1]) <= unit * Decimal("0.51")


@several_times
@given(dosage=dosages, decimals=st.integers(1, 5))
def test_rounded_values_are_written_as_they_are(tmp_path: Path, dosage: np.ndarray, decimals: int) -> None:
    once = write(tmp_path / "once.vcf", dosage, decimals)
    again = np.array(
        [
            [np.nan if text == "." else np.float32(text) for sample in record for text in sample["HDS"]]
            for record in values_in(once)
        ],
        np.float32,
    )
    assert values_in(write(tmp_path / "twice.vcf", again, decimals)) == values_in(once)


@several_times
@given(dosage=dosages, decimals=st.integers(1, 5))
def test_bcf_holds_the_printed_values(tmp_path: Path, dosage: np.ndarray, decimals: int) -> None:
    printed = values_in(write(tmp_path / "x.vcf", dosage, decimals))
    reader = cyvcf2.VCF(str(write(tmp_path / "x.bcf", dosage, decimals)))
    for record, samples in zip(reader, printed, strict=True):
        for key in ("DS", "HDS", "GP"):
            held = record.format(key)
            for row, sample in zip(held, samples, strict=True):
                texts = [np.nan if text == "." else np.float32(text) for text in sample[key]]
                np.testing.assert_array_equal(row[: len(texts)], np.array(texts, np.float32))
                assert np.isnan(row[len(texts) :]).all()
    reader.close()


@pytest.mark.parametrize(
    ("decimals", "ds"), [(1, "0.1"), (2, "0.08"), (3, "0.083"), (4, "0.0826"), (5, "0.08262")]
)
def test_as_many_decimals_as_are_asked_for(tmp_path: Path, decimals: int, ds: str) -> None:
    dosage = np.array([[0.08262, 0, 0, 0, 0.5]], np.float32)
    ((one, _, other),) = values_in(write(tmp_path / "x.vcf", dosage, decimals))
    assert one["DS"] == [ds]
    assert other["DS"] == ["0.5"]
    assert f'in steps of {10**-decimals:.{decimals}f}">' in (tmp_path / "x.vcf").read_text()


def test_values_are_clipped(tmp_path: Path) -> None:
    dosage = np.array([[-1e-6, 1.00001, 1.5, 0.4999, 0.5]], np.float32)
    ((one, haploid, half),) = values_in(write(tmp_path / "x.vcf", dosage, 3))
    assert one == {"DS": ["1"], "HDS": ["0", "1"], "GP": ["0", "1", "0"]}
    assert haploid == {"DS": ["1"], "HDS": ["1"], "GP": ["0", "1"]}
    assert half == {"DS": ["1"], "HDS": ["0.5", "0.5"], "GP": ["0.25", "0.5", "0.25"]}
    # calls are those of what was given, not of what is printed
    calls = [sample.split(":")[0] for sample in (tmp_path / "x.vcf").read_text().split("\t")[-3:]]
    assert calls == ["0|1", "1", "0|1"]


def test_a_tiny_posterior_is_no_dosage(tmp_path: Path) -> None:
    """However many haplotypes have it."""
    dosage = np.array([[0.0004, 0.00049, 0.9996, 0.99951, 0.9996]], np.float32)
    ((none, one, both),) = values_in(write(tmp_path / "x.vcf", dosage, 3))
    assert none == {"DS": ["0"], "HDS": ["0", "0"], "GP": ["1", "0", "0"]}
    assert one == {"DS": ["1"], "HDS": ["1"], "GP": ["0", "1"]}
    assert both == {"DS": ["2"], "HDS": ["1", "1"], "GP": ["0", "0", "1"]}
