"""The simulated set with multi-allelic records, and its scores."""

from pathlib import Path

import numpy as np
import pytest
from cyvcf2 import VCF

pytest.importorskip("msprime", reason="msprime is not installed (extra: bench)")

from benchmarks.imputation.simulated_set import History
from benchmarks.multiallelic.__main__ import KINDS, dosages, largest_sum, score, score_lengths
from benchmarks.multiallelic.simulation import DELETION, REPEAT, Record, simulate_records, write_files

pytestmark = pytest.mark.slow
HISTORY = History(people=60, length=60_000, centimorgans=0.06, seed=2)


def test_records_have_all_kinds_and_alleles_in_range() -> None:
    records: list[Record] = list(simulate_records(HISTORY))
    assert {record.kind for record in records} == set(KINDS)
    positions = [record.position for record in records]
    assert positions == sorted(positions)
    for record in records:
        present = np.unique(record.number_H).tolist()
        assert set(range(1, len(record.alleles))) <= set(present) <= set(range(len(record.alleles)))
        assert len(set(record.alleles)) == len(record.alleles)
        if record.kind == DELETION:
            fields = dict(part.split("=") for part in record.info.split(";"))
            assert int(fields["END"]) == record.position - int(fields["SVLEN"])
    assert max(len(record.alleles) for record in records if record.kind == REPEAT) > 2


def test_true_genotypes_have_perfectscores(tmp_path: Path) -> None:
    files = write_files(HISTORY, panel_people=40, typed_sites=20, folder=tmp_path)
    assert len(VCF(str(files.panel)).samples) == 40
    typed = [(record.POS, record.ALT[0]) for record in VCF(str(files.target))]
    assert len(typed) == 20
    assert not set(typed) & set(files.kinds)
    truth = dosages(files.truth)
    assert largest_sum(truth) == 2
    scores = score(files, truth, truth)
    assert all(r2 == pytest.approx(1) or np.isnan(r2) for r2, _ in scores.values())
    r2, n = score_lengths(files, files.truth)
    assert r2 == pytest.approx(1)
    assert n > 3
    assert score_lengths(files, files.target) == (0, n)  # without repeats
    absent = score(files, truth, {})  # all alleles have the panel's frequency
    assert absent.keys() == scores.keys()
    assert all(r2 < 0.9 or np.isnan(r2) for r2, _ in absent.values())
