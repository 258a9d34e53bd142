"""`evaluate` for selected regions and samples, and with an open panel."""

import os
from pathlib import Path

import pandas as pd
import pytest

import spinimpute
from spinimpute.evaluation.evaluate import evaluate
from spinimpute.genotypes.sites import Region
from spinimpute.runtime.errors import InputError

BINS = (0, 0.02, 0.1, 0.5)


def same(one, other):
    for table in ("by_frequency", "by_sample"):
        same_rows(getattr(one, table), getattr(other, table))


def same_rows(rows, others):
    pd.testing.assert_frame_equal(pd.DataFrame(rows), pd.DataFrame(others))


def only(path: Path, keep) -> Path:
    """The records of a VCF whose positions are kept."""
    lines = path.read_text().splitlines(keepends=True)
    out = path.with_name(f"only.{path.name}")
    out.write_text("".join(line for line in lines if line[0] == "#" or keep(int(line.split("\t")[1]))))
    return out


def test_regions_equal_a_truth_with_only_their_sites(problem):
    truth, imputed, panel, typed = problem.files(form="GT:DS:GP")
    kept = only(truth, lambda position: 1_000 <= position <= 9_000 or position >= 25_050)
    expected = evaluate(kept, imputed, panel, typed, bins=BINS)
    regions = ["chr20:25,050-", Region("20", 1_000, 5_000), "20:4000-9000", "20:9000"]
    result = evaluate(truth, imputed, panel, typed, bins=BINS, regions=regions)
    same(result, expected)
    assert result.regions == ["20:1000-9000", "chr20:25050-"]
    assert result.left_out == expected.left_out
    same_rows(result.calibration, expected.calibration)
    assert result.where() == ", 20:1000-9000, chr20:25050-"
    many = evaluate(truth, imputed, panel, typed, regions=[f"20:{n}000-{n}500" for n in range(1, 6)])
    assert many.where() == ", 5 regions"
    one = evaluate(truth, imputed, panel, typed, bins=BINS, regions="20:1000-5000")
    assert 0 < one.scored_sites < result.scored_sites


def test_regions_are_read_through_an_index(problem, convert_vcf, index):
    truth, imputed, panel, typed = problem.files()
    regions = ["20:1000-9000", "20:25050-"]
    expected = evaluate(truth, imputed, panel, typed, regions=regions)
    compressed = [convert_vcf(truth, truth.with_suffix(".bcf"))]
    compressed.append(convert_vcf(imputed, imputed.with_suffix(".vcf.gz")))
    for path in compressed:
        index(path)
    same(evaluate(*compressed, panel, typed, regions=regions), expected)


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        (["20:1-5"], r"truth .*: no record in 20:1-5.*Panel: 20:100-30,000 .*Give regions in which"),
        (["20:1-5", "21"], r"truth .*: no record in 20:1-5.*Panel: 20:100-30,000"),
        (["21"], r"truth .*: no record in 21.*chromosome 20"),
        (["20:600-600"], r"imputed .*: no record in 20:600-600"),
        (["20:5-1"], r"the region '20:5-1' is empty"),
        ([], r"the list of regions is empty"),
    ],
)
def test_invalid_regions(problem, regions, message):
    with pytest.raises(InputError, match=message):
        evaluate(*problem.files(), regions=regions)


def test_regions_without_a_record_are_named(problem):
    """Other regions are compared, as in `impute`."""
    truth, imputed, panel, typed = problem.files()
    expected = evaluate(truth, imputed, panel, typed, bins=BINS, regions="20:1-5000")
    with pytest.warns(UserWarning, match=r"no record in 20:40000- and 1 more region. Nothing is") as warned:
        result = evaluate(truth, imputed, panel, typed, bins=BINS, regions=["20:1-5000", "21", "20:40000-"])
    same(result, expected)
    assert len(warned) == 1


def test_regions_that_were_not_imputed_count_as_the_panels_frequency(problem):
    truth, imputed, panel, typed = problem.files()
    part = only(imputed, lambda position: position <= 5_000)
    regions = ["20:1-5000", "20:9000-9999", "20:40000-"]
    with pytest.warns(UserWarning, match="no record in") as warned:
        result = evaluate(truth, part, panel, typed, bins=BINS, regions=regions)
    assert [str(one.message).partition(": ")[2] for one in warned] == [
        "no record in 20:40000-. Nothing is compared there",
        "no record in 20:9000-9999. Sites of the truth there are scored with the panel's frequency",
    ]
    assert result.missing_sites > 0


def test_regions_cannot_be_read_from_a_pipe(problem):
    truth, _, panel, typed = problem.files()
    pipe = problem.folder / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match=r"imputed file .*pipe: it is not a regular file; copy it to one"):
        evaluate(truth, pipe, panel, typed, regions=["20"])


def test_samples_equal_files_with_only_these_samples(problem):
    truth, imputed, panel, typed = problem.files()
    result = evaluate(truth, imputed, panel, typed, bins=BINS, samples=["s12", "s4", "s9"])
    assert result.samples == ["s4", "s9", "s12"]
    assert result.truth_only_samples == result.imputed_only_samples == []
    same(result, evaluate(truth, problem.imputed_file(order=[9, 4, 12]), panel, typed, bins=BINS))


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        (["s1", "s99", "nobody"], r"truth .*: 2 of the requested samples are not in the file: nobody, s99"),
        (["s1", "s2"], r"imputed .*: 1 of the requested samples are not in the file: s2"),
        (["s1", "s1"], r"the sample s1 is requested more than once"),
        ([], r"the list of samples .*is empty"),
        ("s1", r"samples must be a list of names, got the text 's1'"),
    ],
)
def test_invalid_samples(problem, samples, message):
    with pytest.raises(InputError, match=message):
        evaluate(*problem.files(order=[0, 1, 3]), samples=samples)


def test_an_open_panel(example_panel: spinimpute.Panel, example: Path, tmp_path: Path):
    truth, target = example / "truth.vcf.gz", example / "target.vcf.gz"
    imputed = tmp_path / "imputed.vcf.gz"
    imputed.write_bytes(truth.read_bytes())
    by_path = evaluate(truth, imputed, example_panel.path, target)
    same(evaluate(truth, imputed, example_panel, target), by_path)
    with pytest.raises(InputError, match="it is also read from"):
        evaluate(truth, imputed, example_panel, target, report=example_panel.path, force=True)
