"""The benchmark that leaves people out of a panel, on a tiny set."""

import sys

import numpy as np
import pytest

from benchmarks.imputation.cases import Case
from benchmarks.phasing import left_out
from spinimpute.panels.panel import Panel
from spinimpute.phasing import phase as phasing


def test_people_are_left_out_and_their_switches_counted(simulated, tmp_path, monkeypatch, capsys) -> None:
    folder = simulated.panel.parent
    left = left_out.leave_out(str(folder), folder, 10, 1)
    assert left.truth_TX2.shape == (15, 10, 2)
    assert left.n_haplotypes == 120 - 20
    missing = left.calls_TQ.reshape(15, 10, 2) < 0
    np.testing.assert_array_equal(
        np.where(missing, 0, left.calls_TQ.reshape(15, 10, 2)).sum(axis=2),
        np.where(missing, 0, left.truth_TX2).sum(axis=2),
    )
    assert left_out.switch_error(left.truth_TX2, left.truth_TX2, left.unphased_TX)[0] == 0
    monkeypatch.setattr(phasing, "VOTES", phasing.VOTES)
    monkeypatch.setattr(left_out, "RESULTS", tmp_path)
    words = ["left_out", str(folder), "--people", "10", "--seeds", "1", "--set", "VOTES=1", "--name", "tiny"]
    monkeypatch.setattr(sys, "argv", words)
    left_out.main()
    assert phasing.VOTES == 1
    assert "| panel | switch errors | by seed | seconds |" in capsys.readouterr().out
    (results,) = tmp_path.iterdir()
    assert '"VOTES": 1' in (results / "configuration.json").read_text()
    monkeypatch.setattr(sys, "argv", ["left_out", "--set", "NONE=1"])
    with pytest.raises(SystemExit, match="NAME of CORE"):
        left_out.main()


def test_panel_records_that_are_unsorted_or_twice(write_vcf, tmp_path, monkeypatch) -> None:
    """Building sorts and drops them: rows of the file are other sites than those of the built panel."""
    rng = np.random.default_rng(1)
    sites = [(1000, "A", "C"), (1000, "A", "C"), (2000, "A", "T"), (2000, "A", "G"), (3000, "A", "C")]
    calls = {site: [f"{a}|{b}" for a, b in rng.integers(0, 2, (8, 2))] for site in sites}
    target = write_vcf([(*site, calls[site]) for site in sites[3:]], name="target.vcf")
    panel = write_vcf([(*site, calls[site]) for site in sites], name="panel.vcf")
    case = Case("tiny", panel, target, target, None, target)
    monkeypatch.setattr(left_out, "find_case", lambda *_: case)
    trust_of = {site: i / 10 for i, site in enumerate(sorted(set(sites)))}
    monkeypatch.setattr(Panel, "trust", property(lambda panel: np.array(list(trust_of.values()))))
    left = left_out.leave_out("tiny", tmp_path, 2, 1)
    assert left.position.tolist() == [2000, 3000]
    assert left.trust.tolist() == [trust_of[2000, "A", "G"], trust_of[3000, "A", "C"]]
