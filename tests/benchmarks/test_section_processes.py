"""The papers' page on neural processes."""

import json
from pathlib import Path

from benchmarks.neural_processes.contexts import read_runs
from benchmarks.papers import section_processes
from benchmarks.papers.claims import NOT_RUN, PARTLY


def test_processes_after_many_steps(tmp_path: Path) -> None:
    def claim() -> tuple[str, str]:
        found = [c for c in section_processes.section(tmp_path).claims if "100,000 steps" in c.says]
        return found[0].verdict, found[0].because

    assert claim()[0] == NOT_RUN
    folder = tmp_path / "2026-11-25-context-64-128-steps-20000"
    folder.mkdir()
    for kind, log_likelihood in (("CIPNP", 1.289), ("IPNP", 1.3), ("CANP", 1.25)):
        row = {"kind": kind, "log_likelihood": log_likelihood, "floored": 1.349, "steps": 20_000}
        (folder / f"{kind}-1.json").write_text(json.dumps(row))
    verdict, because = claim()
    assert verdict == PARTLY
    assert "CANP 1.250" in because
    assert because.endswith("not run: ANP, BANP")


def test_models_with_the_papers_inducing_points_have_a_row_of_their_own(tmp_path: Path) -> None:
    for track, log_likelihood in (("", 1.2), ("-inducing-points-32", 1.1), ("-inducing-points-16", 1.0)):
        folder = tmp_path / f"2026-11-25-context-64-128{track}"
        folder.mkdir()
        row = {"kind": "CIPNP", "log_likelihood": log_likelihood, "floored": 1.349, "steps": 600}
        (folder / "CIPNP-1.json").write_text(json.dumps(row))
    text = section_processes._figure4(read_runs(tmp_path))
    lines = [line for line in text.splitlines() if line.startswith("| CIPNP")]
    assert [line.split(" | ")[:2] for line in lines] == [
        ["| CIPNP", "1.200 (1)"], ["| CIPNP, 32 inducing points", "1.100 (1)"],
    ]  # fmt: skip
