"""Tables 3, 5 to 7, 9, 10 and 20 of the SPIN paper: methods on windows of the genome, by cell and seed.

Table 7 has the windows of Table 3 one by one. Table 10 is the search of settings, which never reads a target.
Tables 5, 6, 9 and 20 each change one property of SPIN-16: training hides single labels of a query (5), a part
of the network is missing (6), the context has fewer panel haplotypes (9), or the numbers of inducing points
and latent attributes differ (20).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.device_option import add_device
from benchmarks.imputation.cases import DATA, find_case
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import parameters
from benchmarks.papers.window_baselines import BASELINES, SEEDLESS
from benchmarks.papers.window_networks import (
    NETWORKS,
    SET_TF_16,
    SPIN_16,
    WITHOUT_XABA,
    WITHOUT_XABD,
    WindowNetwork,
    WindowRecipe,
)
from benchmarks.papers.window_scores import window_scores
from benchmarks.papers.windows import CASES, Cut, Window, read_targets, read_window

TRUE, SHUFFLED, KEPT_APART = "panel", "panel, labels shuffled", "people kept apart"
METHODS = (*BASELINES, *NETWORKS)
TABLE_3 = tuple(method for method in METHODS if method not in (WITHOUT_XABD, WITHOUT_XABA))
SEVERAL_METHODS = {"table3": TABLE_3, "table10": (SPIN_16, SET_TF_16)}
TABLE_6 = (WITHOUT_XABD, WITHOUT_XABA)
TOKEN_MASKING = 0.3  # of the label tokens of a query, Table 5; all of them are Table 3's
SHARES = (0.01, 0.05, 0.15, 0.3)  # of the panel's haplotypes, Table 9; all of them are Table 3's
POINTS = (5, 20, 30)  # h or f, Table 20; 10 are Table 3's
DROPOUTS, LEARNING_RATES = (0.0, 0.1, 0.4), (1e-3, 3e-3)  # what is searched; the other as in `WindowRecipe`


def add_commands(commands: Any) -> None:
    for name, make, about in (
        ("table3", table3, "windows of the genome (Tables 3 and 7)"),
        ("table5", table5, "the same with token masking"),
        ("table6", table6, "the same without XABD, without XABA"),
        ("table9", table9, "the same with fewer panel haplotypes"),
        ("table10", table10, "the search of dropout and learning rate, on people kept apart"),
        ("table20", table20, "the same with other numbers of inducing points"),
    ):
        sub = commands.add_parser(name, help=about)
        sub.set_defaults(cells=make)
        sub.add_argument("--cases", nargs="+", default=list(CASES))
        sub.add_argument("--windows", type=int, nargs="+", default=list(range(1, Cut.windows + 1)))
        sub.add_argument("--seeds", type=int, nargs="+", default=[1])
        if name in SEVERAL_METHODS:
            choices = SEVERAL_METHODS[name]
            sub.add_argument("--methods", nargs="+", choices=choices, default=list(choices))
        if name == "table10":
            sub.add_argument("--dropouts", type=float, nargs="*", default=list(DROPOUTS))
            sub.add_argument("--learning-rates", type=float, nargs="*", default=list(LEARNING_RATES))
        if name == "table20":
            sub.add_argument("--points", type=int, nargs="+", default=list(POINTS))
        _add_settings(sub)
    sub = commands.add_parser("window", help="one cell of the tables above")
    sub.set_defaults(function=one)
    sub.add_argument("case")
    sub.add_argument("window", type=int)
    sub.add_argument("method", choices=METHODS)
    sub.add_argument("seed", type=int)
    _add_settings(sub)
    sub.add_argument("--inducing-points", type=int, default=WindowRecipe.h)
    sub.add_argument("--latent-attributes", type=int, default=WindowRecipe.f)
    sub.add_argument("--hidden-labels", type=float, default=WindowRecipe.hidden_labels)
    sub.add_argument("--share", type=float, default=1.0, help="share of the panel's training people")
    add_device(sub)
    sub.add_argument("--without-targets", action="store_true", help="score the validation people alone")


def _add_settings(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--data", type=Path, default=DATA)
    sub.add_argument("--steps", type=int, default=WindowRecipe.steps)
    sub.add_argument("--dropout", type=float, default=WindowRecipe.dropout)
    sub.add_argument("--learning-rate", type=float, default=WindowRecipe.learning_rate)


def table3(arguments: argparse.Namespace) -> Iterator[Cell]:
    for method in arguments.methods:
        yield from _cells("table3", arguments, method)


def table5(arguments: argparse.Namespace) -> Iterator[Cell]:
    yield from _cells("table5", arguments, SPIN_16, hidden_labels=TOKEN_MASKING)


def table6(arguments: argparse.Namespace) -> Iterator[Cell]:
    for method in TABLE_6:
        yield from _cells("table6", arguments, method)


def table9(arguments: argparse.Namespace) -> Iterator[Cell]:
    for share in SHARES:
        yield from _cells("table9", arguments, SPIN_16, share=share)


def table10(arguments: argparse.Namespace) -> Iterator[Cell]:
    for method in arguments.methods:
        for dropout in arguments.dropouts:
            yield from _cells("table10", arguments, method, "--without-targets", dropout=dropout)
        for rate in arguments.learning_rates:
            yield from _cells("table10", arguments, method, "--without-targets", learning_rate=rate)


def table20(arguments: argparse.Namespace) -> Iterator[Cell]:
    for number in arguments.points:
        yield from _cells("table20", arguments, SPIN_16, inducing_points=number)
        yield from _cells("table20", arguments, SPIN_16, latent_attributes=number)


def _cells(
    table: str, arguments: argparse.Namespace, method: str, *flags: str, **changed: float
) -> Iterator[Cell]:
    """Cells by seed, case and window. The name of a cell shows the change."""
    settings = {name: getattr(arguments, name) for name in ("steps", "dropout", "learning_rate")} | changed
    options = [part for name, value in settings.items() for part in (f"--{name.replace('_', '-')}", value)]
    told = [f"{arguments.steps}_steps"] if method in NETWORKS else []
    if method in NETWORKS and arguments.learning_rate != WindowRecipe.learning_rate:
        changed = {"learning_rate": arguments.learning_rate} | changed
    told += [f"{name}_{value:g}" for name, value in changed.items()]
    for seed in arguments.seeds:
        if method in SEEDLESS and seed != arguments.seeds[0]:
            continue
        for case in arguments.cases:
            for number in arguments.windows:
                words = ("window", case, number, method, seed, "--data", arguments.data, *options, *flags)
                yield Cell(table, (Path(case).name, number, method, *told, seed), words)


def one(arguments: argparse.Namespace) -> None:
    """Make one cell, and print it as a line of JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    window = read_window(find_case(arguments.case, arguments.data), arguments.window)
    recipe = WindowRecipe(
        steps=arguments.steps, dropout=arguments.dropout, learning_rate=arguments.learning_rate,
        h=arguments.inducing_points, f=arguments.latent_attributes, hidden_labels=arguments.hidden_labels,
        device=arguments.device,
    )  # fmt: skip
    window = with_share(window, arguments.share)
    started = time.process_time()
    if arguments.method in BASELINES:
        found = _baseline(window, arguments.method, arguments.seed)
    else:
        found = _network(window, arguments.method, arguments.seed, recipe, not arguments.without_targets)
    found["seconds"] = round(time.process_time() - started, 1)
    print(json.dumps({**_told(window, arguments), **found}, ensure_ascii=False))


def with_share(window: Window, share: float) -> Window:
    """Return the window with a share of the training people, and all validation people."""
    if share == 1:
        return window
    trains = np.flatnonzero(~window.is_validation_N)
    kept = window.is_validation_N.copy()
    kept[trains[: 2 * round(share * len(trains) / 2)]] = True
    return replace(
        window, typed_NS=window.typed_NS[kept], label_NU=window.label_NU[kept],
        is_validation_N=window.is_validation_N[kept],
    )  # fmt: skip


def _told(window: Window, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "case": window.case.name, "window": window.number, "method": arguments.method, "seed": arguments.seed,
        "untyped": [window.start, window.stop],
        "typed": [window.typed_sites[0][0], window.typed_sites[-1][0]],
        "panel haplotypes": {
            "training": int((~window.is_validation_N).sum()), "kept apart": int(window.is_validation_N.sum())
        },
    }  # fmt: skip


def _baseline(window: Window, method: str, seed: int) -> dict[str, Any]:
    """Choose settings on the panel, then read the targets and predict them."""
    targets = read_targets(window)
    answer = BASELINES[method](window, targets.typed_QS, seed)
    return {
        "configuration": answer.chosen,
        "found": {TRUE: window_scores(answer.p_QU, targets.truth_QU, window.frequency_U)},
    }


def _network(
    window: Window, method: str, seed: int, recipe: WindowRecipe, ask_targets: bool
) -> dict[str, Any]:
    """Train on the panel; then predict targets given the panel, and given the panel with shuffled labels."""
    network = WindowNetwork(method, window.typed_NS, window.label_NU, recipe)
    train_N, apart_N = ~window.is_validation_N, window.is_validation_N
    log = network.train(train_N, apart_N, seed)
    everyone = np.ones(len(train_N), bool)
    asked = {KEPT_APART: (window.typed_NS[apart_N], window.label_NU[apart_N], network.context(train_N))}
    if ask_targets:
        targets = read_targets(window)
        asked[TRUE] = (*targets, network.context(everyone))
        asked[SHUFFLED] = (*targets, network.context(everyone, shuffled_labels=seed))
    found = {
        name: window_scores(network.probabilities(typed, context), truth, window.frequency_U)
        for name, (typed, truth, context) in asked.items()
    }
    return {
        "configuration": recipe.as_dict(), "parameters": parameters(network.network), "found": found,
        "training": log,
    }  # fmt: skip
