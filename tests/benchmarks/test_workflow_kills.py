"""The benchmark that kills the workflow: how it reads a log, and its report."""

from benchmarks.workflow.kills import FINAL, Round, report
from benchmarks.workflow.runs import Attempt, steps

LOG = """
[Sat Nov 21 17:07:38 2026]
localcheckpoint chunks:
    input: imputed/panels/20.spin
    jobid: 3
    wildcards: chrom=20
Finished jobid: 3 (Rule: chunks)
1 of 8 steps (12%) done
rule impute:
    jobid: 9
    wildcards: target=example, chrom=20, chunk=1
localrule impute:
    jobid: 10
    wildcards: target=example, chrom=20, chunk=2
    threads: 2
Finished jobid: 9 (Rule: impute)
"""


def test_steps_are_read_from_a_log() -> None:
    assert steps(LOG) == (["chunks", "impute 1"], ["impute 2"])
    assert steps("") == ([], [])


def test_a_difference_is_in_the_report() -> None:
    expected = {name: name[::-1] for name in (*FINAL, "other")}
    attempts = [Attempt(3.0, True, ["panel"], ["check"]), Attempt(9.0, False, ["check", "panel"], [])]
    rounds = [Round(attempts, expected, 0), Round(attempts[1:], {**expected, FINAL[0]: "x", "new": "y"}, 2)]
    text = report(Attempt(10.0, False, ["panel", "check"], []), expected, rounds)
    assert f"| {FINAL[0]} | {expected[FINAL[0]]} | 1 of 2 |" in text
    assert f"| {FINAL[1]} | {expected[FINAL[1]]} | 2 of 2 |" in text
    assert "| 1 | 1 | 4 of 4 | panel | 0 |" in text
    assert "| 2 | 0 | 3 of 4, 1 more | none | 2 |" in text
    assert "| 1 | 3.00 | panel | check | 1 of 2 |" in text
    assert "| 1 | not (9.00) | check, panel | – | 2 of 2 |" in text
