"""The papers' training: when it ends, which weights it keeps, and verdicts that rest on unfinished ones."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from benchmarks.papers.cells import RESULTS
from benchmarks.papers.claims import (
    BUDGET,
    CLAIM,
    DATA,
    FAILS,
    HOLDS,
    PARTLY,
    UNDECIDED,
    UNTESTED,
    Claim,
    not_run,
)
from benchmarks.papers.page import make_sections
from benchmarks.papers.training import (
    BY_LOSS,
    BY_STEPS,
    Recipe,
    has_ended,
    is_unfinished,
    train,
    unfinished_text,
)


class Counter(nn.Module):
    """One weight, whose loss has a constant gradient, so that it changes by the learning rate alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))


def run(losses: Sequence[float], **settings: int) -> tuple[dict[str, Any], Counter, list[Tensor]]:
    """Train with these validation losses; return the log, the network and its weights at every look."""
    network, seen = Counter(), []

    def held_out() -> float:
        seen.append(network.weight.detach().clone())
        return losses[len(seen) - 1]

    recipe = Recipe(steps=100, looks=10, patience=3, learning_rate=0.1, **settings)
    return train(network, recipe, lambda step: network.weight.sum(), held_out), network, seen


def test_training_goes_on_while_the_validation_loss_falls() -> None:
    log, network, seen = run([1 - i / 20 for i in range(10)])
    assert (log["steps"], log["stopped by"]) == (100, BY_STEPS)
    assert [look["step"] for look in log["looks"]] == list(range(10, 101, 10))
    assert torch.equal(network.weight, seen[-1])
    assert is_unfinished({"training": log})


def test_training_ends_when_the_validation_loss_has_stopped_falling() -> None:
    """The lowest loss is at step 10. After three more looks, at step 40, the rate falls until step 58."""
    log, network, seen = run([0.1, 0.3, 0.2, 0.2, 0.2, 0.2, 0.2])
    assert (log["steps"], log["stopped by"]) == (58, BY_LOSS)
    assert [look["step"] for look in log["looks"]] == [10, 20, 30, 40, 50, 58]
    assert torch.equal(network.weight, seen[0])
    moved = [float((b - a).abs().max()) for a, b in pairwise(seen)]
    assert moved[4] < moved[3] < moved[2], "the rate falls"
    assert not is_unfinished({"training": log})


def test_lowest_losses_of_the_falling_rate_are_no_reason_for_more_steps() -> None:
    log, network, seen = run([0.2, 0.3, 0.3, 0.3, 0.15, 0.1])
    assert log["stopped by"] == BY_LOSS
    assert torch.equal(network.weight, seen[-1])
    assert not is_unfinished({"training": log})


def test_the_falling_rate_is_not_cut_short() -> None:
    """No look after 70 % of the steps changes the number of steps."""
    log, _, _ = run([*(1 - i / 20 for i in range(6)), 2.0, 2.0, 2.0, 2.0])
    assert (log["steps"], log["stopped by"]) == (100, BY_STEPS)
    assert not is_unfinished({"training": log}), "the best look is not the last"


def test_a_training_has_ended_if_three_looks_were_not_lower() -> None:
    def result(*losses: float, **log: str) -> dict[str, Any]:
        return {"training": {"looks": [{"validation loss": loss} for loss in losses]} | log}

    assert has_ended(result(0.3, 0.2, 0.21, 0.22, 0.2))
    assert not has_ended(result(0.3, 0.2, 0.21, 0.22))
    assert has_ended(result(0.3, 0.2, **{"stopped by": BY_LOSS}))
    assert not has_ended(result(0.3, 0.2, **{"stopped by": BY_STEPS}))
    assert has_ended({}), "methods without training"


def test_older_results_say_nothing_about_what_stopped_them() -> None:
    def result(*losses: float) -> dict[str, Any]:
        looks = [{"step": i, "validation loss": loss} for i, loss in enumerate(losses)]
        return {"training": {"looks": looks}}

    assert is_unfinished(result(0.3, 0.2))
    assert not is_unfinished(result(0.2, 0.3))
    assert not is_unfinished(result())
    assert not is_unfinished({})
    assert unfinished_text([{}, {}]) == ""
    assert unfinished_text([{}, result(0.3, 0.2), result(0.2, 0.3)]) == "1 of 2"


@pytest.mark.parametrize(
    ("found", "unfinished", "verdict", "reason"),
    [
        (HOLDS, True, HOLDS, "–"),
        (PARTLY, True, PARTLY, BUDGET),
        (PARTLY, False, PARTLY, DATA),
        (FAILS, True, UNDECIDED, BUDGET),
        (FAILS, False, FAILS, DATA),
    ],
)
def test_claims_do_not_fail_by_unfinished_trainings(found, unfinished, verdict, reason) -> None:
    claim = Claim("SPIN 1", "a", found, "b", blame=DATA, unfinished=unfinished)
    assert (claim.verdict, claim.reason) == (verdict, reason)
    assert claim.row == ["SPIN 1", "a", f"**{verdict}**", reason, "b"]


def test_every_claim_has_a_verdict_and_a_reason() -> None:
    claims = [claim for section in make_sections(RESULTS) for claim in section.claims]
    for claim in claims:
        assert claim.reason in ({"–"} if claim.verdict == HOLDS else {CLAIM, DATA, BUDGET}), claim.says
        assert claim.verdict != UNTESTED or claim.reason != CLAIM, claim.says
    assert not_run("SPIN 1", "a", "`command`").reason == BUDGET
