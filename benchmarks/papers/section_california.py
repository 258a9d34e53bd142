"""Section of the page on FT-Transformer's training: FT-Transformer 3, 5, 10, 11 and 23 to 25."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.papers.claims import (
    BUDGET,
    DATA,
    FAILS,
    FT_PAPER,
    HOLDS,
    PARTLY,
    UNTESTED,
    Claim,
    Section,
    mean_text,
    not_run,
    protocol,
    published,
    published_number,
    published_table,
    verdict,
)
from benchmarks.tabular.california import WITHOUT_BIASES, ensembles

Ensembles = Mapping[str, tuple[Sequence[float], float]]
Fits = Sequence[dict[str, Any]]

SET, FT, RESNET = "california", "FTTransformer", "ResNet"
NO_BIASES = "FT-Transformer without feature biases"  # the paper's name
COMMAND = "python -m benchmarks.tabular california"
LIKE = 1.5  # times: ratios that are alike
ERRORS = 2  # standard errors: what is not chance
WHOLE = ("3", "23", "10", "11", "24", "25")


def section(results: Path) -> Section:
    """Return the section, from the results of `benchmarks.tabular`."""
    folder = results / "california"
    fits = [json.loads(path.read_text()) for path in sorted(folder.glob("*-*.json"))]
    of_seeds = ensembles(folder)
    parts = [
        protocol("california"),
        "### Table 3: ensembles", _ensemble_table(of_seeds),
        "### Tables 5 and 23: without the biases of features", _bias_table(fits),
        "### Table 10: seconds of training", _seconds_table(fits),
        "### As they are in the FT-Transformer paper", *(published_table(FT_PAPER, table) for table in WHOLE),
        "Table 5 is Table 23 without the deviations.",
    ]  # fmt: skip
    claims = [
        _gains(of_seeds), _best_ensemble(fits, of_seeds), _biases_needed(fits), _slower(fits),
        Claim(
            "FT-Transformer 11", "Tuning FT-Transformer for hours gains little over 15 minutes", UNTESTED,
            "Five searches of up to 6 hours for each of four methods on three sets: 360 hours.", blame=BUDGET,
        ),
        Claim(
            "FT-Transformer 24, 25", "On Bank, Kick, MiniBooNE and Click all models are alike", UNTESTED,
            "The data are not available to us.", blame=DATA,
        ),
    ]  # fmt: skip
    return Section("FT-Transformer on California, further (FT-Transformer 4.4, 5.2, D, H)", parts, claims)


def _errors(fits: Fits, model: str) -> list[float]:
    return [fit["rmse"] for fit in fits if fit["model"] == model]


def _ensemble_table(of_seeds: Ensembles) -> str:
    if not of_seeds:
        return f"Not run yet: `{COMMAND} --models ResNet MLP --seeds 1 2 3`."
    single, together = published(FT_PAPER, "2"), published(FT_PAPER, "3")
    lines = [["RMSE", "single", "ensemble", "of seeds", "paper: single", "paper: ensemble of 5"]]
    for model, (errors, error) in of_seeds.items():
        lines.append([
            model, mean_text(errors, 3), f"{error:.3f}", str(len(errors)), single[model, SET],
            together.get((model, SET), ""),
        ])  # fmt: skip
    return markdown(lines)


def _gains(of_seeds: Ensembles) -> Claim:
    """Holds in part if the ensemble is better than its members on average, but not than the best one."""
    single, together = (published_number(FT_PAPER, table, RESNET, SET) for table in ("2", "3"))
    says = f"An ensemble of ResNets is more accurate than single ones (paper: {together:.3f}, {single:.3f})"
    if RESNET not in of_seeds:
        return not_run("FT-Transformer 3", says, f"`{COMMAND} --models ResNet --seeds 1 2 3`")
    errors, error = of_seeds[RESNET]
    holds = HOLDS if error < min(errors) else PARTLY if error < np.mean(errors) else FAILS
    told = "; ".join(
        f"{model}: ensemble of {len(of)} {one:.3f}, single {np.mean(of):.3f} ({min(of):.3f} to {max(of):.3f})"
        for model, (of, one) in of_seeds.items()
    )
    return Claim("FT-Transformer 3", says, holds, told)


def _best_ensemble(fits: Fits, of_seeds: Ensembles) -> Claim:
    says = "FT-Transformer's ensemble is more accurate than those of NODE and ResNet"
    if {FT, RESNET} <= of_seeds.keys():
        ours, theirs = of_seeds[FT][1], of_seeds[RESNET][1]
        told = f"FT-Transformer {ours:.3f}, ResNet {theirs:.3f}; NODE has one fit of 120 seconds"
        return Claim("FT-Transformer 3", says, PARTLY if ours < theirs else FAILS, told, blame=BUDGET)
    minutes = [fit["fit_seconds"] / 60 for fit in fits if fit["model"] == FT]
    if not minutes:
        return not_run("FT-Transformer 3", says, f"`{COMMAND} --models {FT} --seeds 1 2 3`")
    told = (
        "Not within the budget: ensembles of five fits of each, to the end of their training. Fits of "
        f"FT-Transformer took {min(minutes):.0f} to {max(minutes):.0f} minutes, and kept no predictions; "
        "NODE has one fit of 120 seconds."
    )
    return Claim("FT-Transformer 3", says, UNTESTED, told, blame=BUDGET)


def _bias_table(fits: Fits) -> str:
    theirs = published(FT_PAPER, "23")
    lines = [["RMSE", "ours", "paper"]]
    for model, name in ((FT, "FT-Transformer"), (WITHOUT_BIASES, NO_BIASES)):
        lines.append([name, mean_text(_errors(fits, model), 3), theirs[name, SET]])
    return markdown(lines)


def _biases_needed(fits: Fits) -> Claim:
    """Holds in part if the result is worse by no more than chance."""
    paper = [published_number(FT_PAPER, "23", name, SET) for name in (NO_BIASES, "FT-Transformer")]
    says = f"Without feature biases FT-Transformer is worse (paper: {paper[0]:.3f}, {paper[1]:.3f})"
    without, usual = _errors(fits, WITHOUT_BIASES), _errors(fits, FT)
    if not without or len(usual) < 2:
        return not_run("FT-Transformer 5, 23", says, f"`{COMMAND} --models {WITHOUT_BIASES}`")
    error = float(np.std(usual, ddof=1)) * (1 / len(usual) + 1 / len(without)) ** 0.5
    worse = float(np.mean(without) - np.mean(usual))
    holds = HOLDS if worse > ERRORS * error else PARTLY if worse > 0 else FAILS
    told = f"{mean_text(without, 3)}, with them {mean_text(usual, 3)}: {worse:+.3f} ± {error:.3f} (seeds)"
    return Claim("FT-Transformer 5, 23", says, holds, told, blame=BUDGET)


def seconds(fits: Fits, model: str) -> list[float]:
    """Return processor seconds, or wall-clock seconds of fits without them."""
    return [fit.get("processor_seconds", fit["fit_seconds"]) for fit in fits if fit["model"] == model]


def _seconds_table(fits: Fits) -> str:
    theirs = published(FT_PAPER, "10")
    lines = [["seconds of training, California", "ours", "median", "paper"]]
    for model, name in (
        ("MLP", "MLP"),
        (RESNET, RESNET),
        (FT, "FT-Transformer"),
        (WITHOUT_BIASES, NO_BIASES),
    ):
        mine = seconds(fits, model)
        if mine:
            lines.append([name, mean_text(mine, 0), f"{np.median(mine):.0f}", theirs.get((name, SET), "")])
    clock = sorted({fit["model"] for fit in fits if "processor_seconds" not in fit})
    wall_time = f" ({', '.join(clock)}: wall time, while other programs ran)" if clock else ""
    return (
        f"{markdown(lines)}\n\nCPU seconds{wall_time}, on one thread without a GPU. The paper uses a GPU. "
        "Training ends after 16 epochs without a better validation."
    )


def _counted(fits: Fits, model: str) -> list[float]:
    """Processor seconds, where they were measured."""
    return [fit["processor_seconds"] for fit in fits if fit["model"] == model and "processor_seconds" in fit]


def _slower(fits: Fits) -> Claim:
    """Holds in part if it is slower by another factor.

    Without biases it takes as long, except for one addition a feature.
    """
    theirs = published_number(FT_PAPER, "10", "Overhead", SET)
    says = f"FT-Transformer takes {theirs:g} times as long to train as ResNet (California)"
    usual, quick = _counted(fits, FT), _counted(fits, RESNET)
    slow = usual or _counted(fits, WITHOUT_BIASES)
    if not slow or not quick:
        return not_run("FT-Transformer 10", says, f"`{COMMAND}`")
    ratio = float(np.median(slow) / np.median(quick))
    alike = theirs / LIKE <= ratio <= theirs * LIKE
    told = f"{ratio:.1f} times: {np.median(slow):.0f} and {np.median(quick):.0f} s of the processor, no GPU"
    if not usual:
        told += "; FT-Transformer without feature biases, as the others' seconds were not counted"
    return Claim("FT-Transformer 10", says, verdict([ratio > 1, alike]), told, blame=BUDGET)
