"""The benchmark that leaves people out of a panel, on a tiny set."""

import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.imputation.cases import Case


def test_people_are_left_out_and_their_switches_counted(
    simulated: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks.phasing import left_out
    from spinimpute.phasing import phase as phasing

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
