"""Targets with several records of one site: their order changes nothing, and no phase is invented."""

from collections.abc import Callable, Sequence
from itertools import permutations

import pytest

import spinimpute
from spinimpute.quality.summary import ImputationSummary
from spinimpute.targets.repair import CONTRADICTORY

Impute = Callable[..., tuple[list[str], ImputationSummary]]


@pytest.fixture
def impute(few_rows, example_panel, write_vcf, tmp_path) -> Impute:
    """impute(calls, **options) -> records, summary: a site has a record for each call of a sample."""
    rows = few_rows
    middle = len(rows) // 2

    def run(calls: Sequence[str], **options: object) -> tuple[list[str], ImputationSummary]:
        same = [(*rows[middle][:3], [call, *rows[middle][3][1:]]) for call in calls]
        target = write_vcf([*rows[:middle], *same, *rows[middle + 1 :]], name="t.vcf")
        out = tmp_path / "o.vcf"
        summary = spinimpute.impute(target, out, example_panel, force=True, **options)  # type: ignore[arg-type]
        return [line for line in out.read_text().splitlines() if line[0] != "#"], summary

    return run


@pytest.mark.parametrize(
    ("calls", "same_as"),
    [
        (["0|1", "1|0"], "0/1"),
        (["0|1", ".|0", "1|0"], "0/1"),
        (["0|1", "1|."], "0/1"),
        (["0|1", "1|0", "0/1"], "0/1"),
        (["0|.", ".|1"], "0|1"),
        (["1/0", "1|."], "1|0"),
        (["1/0", "0|1"], "0|1"),
    ],
)
def test_phased_calls_are_merged_by_haplotype(impute, calls, same_as):
    """Where only the phase conflicts, the call is phased as an unphased one."""
    expected, alone = impute([same_as])
    for order in permutations(calls):
        found, summary = impute(order)
        assert found == expected
        assert summary.mended_calls == {}
        assert summary.phased_calls == alone.phased_calls == ("/" in same_as)


@pytest.mark.parametrize(
    "calls", [["0|1", "1|1"], ["0|.", "1|."], ["0|0", ".|1"], ["0/1", "0|0"], ["0|1", "1|0", "1|1"]]
)
def test_calls_of_other_genotypes_contradict_each_other(impute, calls):
    expected, _ = impute([".|."])
    for order in permutations(calls):
        found, summary = impute(order)
        assert found == expected
        assert summary.mended_calls == {CONTRADICTORY: 1}


def test_where_nothing_is_phased_calls_of_another_phase_contradict_each_other(impute):
    expected, _ = impute([".|."])
    for order in permutations(["0|1", "1|0"]):
        found, summary = impute(order, phasing="never")
        assert found == expected
        assert summary.mended_calls == {CONTRADICTORY: 1}
