"""Tables 4, 5 and 13 of the NPT paper: the effect of NPT's parts and settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy.stats import rankdata, t

from benchmarks.imputation.tables import markdown
from benchmarks.papers.claims import (
    BUDGET,
    NPT_PAPER,
    Claim,
    at_most_partly,
    mean_text,
    not_run,
    published,
    published_number,
    verdict,
)
from benchmarks.papers.small_tables import NPT_WITHOUT_ABA, PARTS_OF_NPT, SEMI_SUPERVISED, TRUE
from benchmarks.papers.training import LAST_LOOKS, has_ended, is_unfinished, unfinished_text

Found = dict[tuple[str, str], dict[int, float]]

BASE, NO_FEATURE_MASKING = "NPT", "NPT, no feature masking"
COMMAND = "`python -m benchmarks.papers npt4`"
FEW_FOLDS = f"{COMMAND}: two folds are needed to tell what chance does"
LEVEL = 0.05  # of a test by t, two-sided, uncorrected
# ours, and Table 4's
OF_PAPER = {
    BASE: "No Semi-Supervision",
    SEMI_SUPERVISED: "Base NPT",
    "NPT, no target masking": "No Target Masking",
    NO_FEATURE_MASKING: "No Feature Masking",
    "NPT, no feature and no target masking": "No Feature Masking, No Target Masking",
    "NPT, feature mask 0.5": "Feature Mask p = 0.5",
    "NPT, target mask 0.5": "Target Mask p = 0.5",
    "NPT, 4 layers": "4 Layers",
    "NPT, 16 layers": "16 Layers",
    "NPT, 4 heads": "4 Heads",
    "NPT, 16 heads": "16 Heads",
    "NPT, tradeoff 0.5": "Tradeoff 0.5",
}
# ours, and Table 13's; base: all labels of a step are hidden
OF_TABLE_13 = {
    "NPT, target mask 0.5": "ptarget = 0.5",
    BASE: "ptarget = 0.1",
    "NPT, no target masking": "Base NPT-Small",
    "NPT, 16 layers": "16 Layers",
    "NPT, 16 heads": "16 Heads",
}
TARGET_MASKING = ("NPT, target mask 0.5", BASE)
RANKED_SET = "boston"  # the one with several of these variants
OF_TABLE_5 = {NPT_WITHOUT_ABA: "without ABA", NO_FEATURE_MASKING: "without feature masking"}


def longest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the rows with the largest number of steps of their set."""
    most: dict[str, int] = defaultdict(int)
    for row in rows:
        most[row["set"]] = max(most[row["set"]], row["configuration"]["steps"])
    return [row for row in rows if row["configuration"]["steps"] == most[row["set"]]]


def by_fold(rows: Iterable[dict[str, Any]]) -> Found:
    """Return RMSE by set, method and fold, for the largest number of steps of a set."""
    found: Found = defaultdict(dict)
    for row in longest(list(rows)):
        found[row["set"], row["method"]][row["fold"]] = row["found"][TRUE]
    return found


def differences(found: Found, name: str, method: str) -> np.ndarray:
    """Return RMSE of a method minus that of NPT, on their common folds."""
    mine, base = found.get((name, method), {}), found.get((name, BASE), {})
    return np.array([mine[fold] - base[fold] for fold in sorted(mine.keys() & base.keys())])


def table(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return f"Not run yet: {COMMAND}."
    found = by_fold(rows)
    sets = sorted({name for name, _ in found})
    four, five = published(NPT_PAPER, "4"), published(NPT_PAPER, "5")
    heads = [
        head
        for name in sets
        for head in (f"{name}, RMSE", "less NPT's, same folds", "paper, Table 4", "paper, Table 5")
    ]
    lines = [["", *heads, LAST_LOOKS]]
    for method in PARTS_OF_NPT:
        line = [method]
        for name in sets:
            line += [
                mean_text(list(found.get((name, method), {}).values())),
                mean_text(list(differences(found, name, method))) if method != BASE else "",
                four.get((OF_PAPER.get(method, ""), name), ""),
                five.get((name, OF_TABLE_5.get(method, method)), ""),
            ]
        lines.append([*line, unfinished_text(row for row in rows if row["method"] == method)])
    steps = {row["configuration"]["steps"] for row in rows}
    return (
        f"{markdown(lines)}\n\nMean ± standard deviation over folds (number of folds). Training has "
        f"{', '.join(f'{n:,}' for n in sorted(steps))} steps; the paper has 20,000 on Boston. "
        "Our NPT hides the labels of 30 % of the rows (the paper: 15 %) and never reads test rows in "
        'training ("no semi-supervision" in the paper). Semi-supervised NPT, the paper\'s base, also reads '
        "the features of validation and test rows. Without target masking, all labels are hidden, and the "
        "loss is that of 30 % of the rows."
    )


def variant_ranks(found: Found) -> dict[str, list[float]]:
    """Return ranks by RMSE among the variants of Table 13, on their common folds."""
    of = {method: found.get((RANKED_SET, method), {}) for method in OF_TABLE_13}
    folds = sorted(set.intersection(*(set(by) for by in of.values())))
    by_fold_FM = [rankdata([of[method][fold] for method in of]) for fold in folds]
    return {method: [float(rank[i]) for rank in by_fold_FM] for i, method in enumerate(of)}


def rank_table(rows: Sequence[dict[str, Any]]) -> str:
    ranks, theirs = variant_ranks(by_fold(rows)), published(NPT_PAPER, "13")
    of_paper = rankdata(
        [published_number(NPT_PAPER, "13", name, RANKED_SET) for name in OF_TABLE_13.values()]
    )
    lines = [
        [RANKED_SET, "ours, mean rank", "paper's variant", "paper, of eight", "paper's order of these five"]
    ]
    for (method, name), place in zip(OF_TABLE_13.items(), of_paper, strict=True):
        lines.append([method, mean_text(ranks[method]), name, theirs[name, RANKED_SET], f"{place:g}"])
    steps = sorted({row["configuration"]["steps"] for row in rows if row["set"] == RANKED_SET})
    return (
        f"{markdown(lines)}\n\nRanks within a fold: mean ± standard deviation over folds (number of folds); "
        "in the paper, ± standard error. We rank by RMSE and the paper by likelihood. Training has "
        f"{', '.join(f'{n:,}' for n in steps)} steps. Our NPT hides the labels of 30 % of the rows, "
        "also with "
        "16 layers or heads. The paper hides 10 or 50 %, and all with 16 layers or heads. The other variants "
        "and sets were not fitted."
    )


def rank_claim(rows: Sequence[dict[str, Any]]) -> Claim:
    says = "Variants with target masking rank first"
    ranks = variant_ranks(by_fold(rows))
    folds = len(ranks[BASE])
    if folds < 2:
        return not_run("NPT 13", says, FEW_FOLDS)
    mean = {method: float(np.mean(of)) for method, of in ranks.items()}
    plain = mean["NPT, no target masking"]
    first = min(mean.values())
    holds = [any(mean[m] == first for m in TARGET_MASKING), *(mean[m] < plain for m in TARGET_MASKING)]
    told = ", ".join(f"{method.removeprefix('NPT, ')} {rank:.2f}" for method, rank in mean.items())
    return Claim(
        "NPT 13", says, at_most_partly(verdict(holds)),
        f"{RANKED_SET}, {folds} folds, ranks by RMSE: {told}", blame=BUDGET, unfinished=_unfinished(rows),
    )  # fmt: skip


def claims(rows: Sequence[dict[str, Any]]) -> list[Claim]:
    found = by_fold(rows)
    return [_robust(found, _unfinished(rows)), _both_help(rows)]


def _unfinished(rows: Sequence[dict[str, Any]]) -> bool:
    return any(map(is_unfinished, rows))


def _robust(found: Found, unfinished: bool) -> Claim:
    """Verdict of at most "in part": no difference on few folds with fewer steps than the paper's is weak
    evidence.
    """
    says = "On Boston no part left out and no setting changes NPT's RMSE significantly"
    told, level = [], []
    for method in PARTS_OF_NPT:
        difference_F = differences(found, "boston", method)
        n = len(difference_F)
        if method != BASE and n > 1:
            error = float(difference_F.std(ddof=1)) / n**0.5
            level.append(abs(difference_F.mean()) <= t.ppf(1 - LEVEL / 2, n - 1) * error)
            mark = "" if level[-1] else " (*)"
            told.append(
                f"{method.removeprefix('NPT, ')} {difference_F.mean():+.2f} ± {error:.2f} ({n}){mark}"
            )
    if not told:
        return not_run("NPT 4", says, FEW_FOLDS)
    because = (
        f"RMSE less NPT's, mean ± standard error (folds), (*): p < {LEVEL:g} each, by t: {'; '.join(told)}"
    )
    holds = at_most_partly(verdict(level))
    return Claim("NPT 4", says, holds, because, blame=BUDGET, unfinished=unfinished)


def _both_help(rows: Sequence[dict[str, Any]]) -> Claim:
    """Trainings that have ended decide if there are two or more folds of both comparisons."""
    says = "Attention between attributes and feature masking both tend to help"
    compared = [row for row in longest(rows) if row["method"] in (BASE, *OF_TABLE_5)]
    found = _without(by_fold(row for row in compared if has_ended(row)))
    unfinished = {method for _, method in found} != OF_TABLE_5.keys()
    if unfinished:
        found = _without(by_fold(compared))
    if not found:
        return not_run("NPT 5", says, FEW_FOLDS)
    told = "; ".join(
        f"{name}, {OF_TABLE_5[method]}: {difference_F.mean():+.2f} ({len(difference_F)} folds)"
        for (name, method), difference_F in found.items()
    )
    holds = at_most_partly(verdict([difference_F.mean() > 0 for difference_F in found.values()]))
    because = f"RMSE less NPT's{'' if unfinished else ', trainings that have ended'}. {told}"
    return Claim("NPT 5", says, holds, because, blame=BUDGET, unfinished=unfinished)


def _without(found: Found) -> dict[tuple[str, str], np.ndarray]:
    """Return the differences by set and part, for two or more folds."""
    sets = sorted({name for name, _ in found})
    every = {(name, method): differences(found, name, method) for name in sets for method in OF_TABLE_5}
    return {key: difference_F for key, difference_F in every.items() if len(difference_F) > 1}
