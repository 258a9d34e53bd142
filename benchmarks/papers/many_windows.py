"""Tables 4, 5 and 8 of the SPIN paper: one network for several windows, tested on these and on other windows.

    python -m benchmarks.papers table4 --untyped 100 200 400

Every step draws a window, and from the window queries and their context; the network does not know the
window. The paper tests on the training windows. Here, two of ten windows are never used in training.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.device_option import add_device
from benchmarks.imputation.cases import DATA, find_case
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import parameters, train
from benchmarks.papers.window_networks import CIPNP_16, NPT_16, WindowNetwork, WindowRecipe
from benchmarks.papers.window_scores import window_scores
from benchmarks.papers.windows import CASES, Cut, Window, read_targets, read_windows

WINDOWS, UNSEEN = 10, (4, 8)  # windows of a case, numbers of those that are not trained on
UNTYPED = (100, 200, 400)
METHODS = (CIPNP_16, NPT_16)
TOKEN_MASKING = 0.3  # of the label tokens of a query
FIRST_WEIGHT = 0.1  # lambda, for several windows
TRAINED, NEVER_SEEN, FREQUENCY = "trained windows", "windows never seen", "allele frequencies"


def add_command(commands: Any) -> None:
    table = commands.add_parser("table4", help="one network for several windows (Tables 4, 5 and 8)")
    table.set_defaults(cells=table4)
    table.add_argument("--cases", nargs="+", default=list(CASES))
    table.add_argument("--untyped", type=int, nargs="+", choices=UNTYPED, default=list(UNTYPED))
    table.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    table.add_argument("--seeds", type=int, nargs="+", default=[1])
    cell = commands.add_parser("windows", help="one cell of table4")
    cell.set_defaults(function=one)
    cell.add_argument("case")
    cell.add_argument("untyped", type=int)
    cell.add_argument("method", choices=METHODS)
    cell.add_argument("hidden_labels", type=float)
    cell.add_argument("seed", type=int)
    add_device(cell)
    for sub in (table, cell):
        sub.add_argument("--data", type=Path, default=DATA)
        sub.add_argument("--steps", type=int, default=WindowRecipe.steps)


def table4(arguments: argparse.Namespace) -> Iterator[Cell]:
    """Make the cells; as in the paper, token masking is for the smallest windows and SPIN alone."""
    for seed in arguments.seeds:
        for case in arguments.cases:
            for untyped in arguments.untyped:
                rows = [(method, 1.0) for method in arguments.methods]
                if untyped == min(UNTYPED) and CIPNP_16 in arguments.methods:
                    rows.append((CIPNP_16, TOKEN_MASKING))
                for method, hidden in rows:
                    words = ("windows", case, untyped, method, hidden, seed)
                    options = ("--data", arguments.data, "--steps", arguments.steps)
                    masking = "chunk" if hidden == 1 else "token"
                    name = (Path(case).name, untyped, method, masking, f"{arguments.steps}_steps", seed)
                    yield Cell("table4", name, (*words, *options))


def one(arguments: argparse.Namespace) -> None:
    """Make one cell, and print it as a line of JSON."""
    torch.set_num_threads(1)
    started = time.process_time()
    windows = read_windows(find_case(arguments.case, arguments.data), Cut(WINDOWS, arguments.untyped))
    recipe = WindowRecipe(
        steps=arguments.steps,
        dropout=0.0,
        hidden_labels=arguments.hidden_labels,
        attribute_weight=FIRST_WEIGHT,
        device=arguments.device,
    )
    told = {
        "case": windows[0].case.name, "untyped sites": arguments.untyped, "method": arguments.method,
        "seed": arguments.seed, **train_together(windows, arguments.method, arguments.seed, recipe),
    }  # fmt: skip
    told["seconds"] = round(time.process_time() - started, 1)
    print(json.dumps(told, ensure_ascii=False))


def train_together(windows: list[Window], method: str, seed: int, recipe: WindowRecipe) -> dict[str, Any]:
    """Train on several windows; the weights are chosen on the validation people of these windows.

    Targets are read after training.
    """
    torch.manual_seed(seed)
    first = WindowNetwork(method, windows[0].typed_NS, windows[0].label_NU, recipe)
    networks = [WindowNetwork(method, w.typed_NS, w.label_NU, recipe, first.network) for w in windows]
    trained = [i for i, window in enumerate(windows) if window.number not in UNSEEN]
    apart_N = windows[0].is_validation_N
    generator = torch.Generator().manual_seed(seed)

    def loss(step: int) -> Tensor:
        drawn = trained[int(torch.randint(len(trained), (), generator=generator))]
        return networks[drawn].loss(step, ~apart_N, generator)

    log = train(
        first.network, recipe, loss,
        lambda: float(np.mean([networks[i].cross_entropy(~apart_N, apart_N) for i in trained])),
    )  # fmt: skip
    everyone = np.ones(len(apart_N), bool)
    scores: dict[str, dict[str, dict[str, float]]] = {TRAINED: {}, NEVER_SEEN: {}, FREQUENCY: {}}
    for window, network in zip(windows, networks, strict=True):
        targets = read_targets(window)
        p_QU = network.probabilities(targets.typed_QS, network.context(everyone))
        group = NEVER_SEEN if window.number in UNSEEN else TRAINED
        scores[group][str(window.number)] = window_scores(p_QU, targets.truth_QU, window.frequency_U)
        same_QU = np.tile(window.frequency_U, (len(p_QU), 1))
        scores[FREQUENCY][str(window.number)] = window_scores(same_QU, targets.truth_QU, window.frequency_U)
    return {
        "configuration": recipe.as_dict(), "parameters": parameters(first.network), "found": scores,
        "training": log,
    }  # fmt: skip
