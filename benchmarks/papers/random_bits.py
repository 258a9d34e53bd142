"""Appendix A.7 of the SPIN paper: one table of random bits, whose labels can only be copied from other rows.

The table has 5,000 rows of 30 feature bits and 20 label bits. Some of the rows are copied without labels. The
copies are divided into queries for training, validation and tests; the original rows remain in the context.
The labels of test queries are therefore in the context, but no loss depends on them.

Axes: N rows of the table, Q queries, L label bits.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.device_option import add_device
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import parameters, train
from benchmarks.papers.window_networks import SPIN_16, WITHOUT_XABA, WITHOUT_XABD, WindowNetwork, WindowRecipe

ROWS, FEATURE_BITS, LABEL_BITS, COPIED = 5_000, 30, 20, 1_500
PARTS = ("train", "validation", "test")
# as the paper calls them
METHODS = {"SPIN": SPIN_16, "XABD alone": WITHOUT_XABA, "XABA alone": WITHOUT_XABD}
SHUFFLED = "test, labels of the context shuffled"


def add_command(commands: Any) -> None:
    sub = commands.add_parser("tableA7", help="random labels, one table of 5,000 rows")
    sub.set_defaults(cells=table_a7)
    sub.add_argument("--seeds", type=int, nargs="+", default=[1])
    sub.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    _add_settings(sub)
    sub = commands.add_parser("random-bits", help="one cell of tableA7")
    sub.set_defaults(function=one)
    add_device(sub)
    sub.add_argument("method", choices=METHODS)
    sub.add_argument("seed", type=int)
    _add_settings(sub)


def _add_settings(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--steps", type=int, default=WindowRecipe.steps)
    sub.add_argument("--inducing-points", type=int, default=WindowRecipe.h)


def table_a7(arguments: argparse.Namespace) -> Iterator[Cell]:
    for seed in arguments.seeds:
        for method in arguments.methods:
            h = arguments.inducing_points
            words = ("random-bits", method, seed, "--steps", arguments.steps, "--inducing-points", h)
            told = [f"{arguments.steps}_steps", *([f"h_{h}"] if h != WindowRecipe.h else [])]
            yield Cell("tableA7", (method, *told, seed), words)


def one(arguments: argparse.Namespace) -> None:
    """Make one cell, and print it as a line of JSON."""
    torch.set_num_threads(1)
    recipe = WindowRecipe(
        steps=arguments.steps, h=arguments.inducing_points, k=1, dropout=0.0, attribute_weight=0.0,
        device=arguments.device,
    )  # fmt: skip
    print(json.dumps(random_bits(arguments.method, arguments.seed, recipe)))


def random_bits(
    method: str, seed: int, recipe: WindowRecipe, rows: int = ROWS, copied: int = COPIED
) -> dict[str, Any]:
    """Train and test on the table.

    A training batch has queries, the rows of which they are copies, and other rows. Tests have the whole
    table.
    """
    torch.manual_seed(seed)
    started = time.process_time()
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 2, (rows, FEATURE_BITS + LABEL_BITS)).astype(np.int8)
    network = WindowNetwork(METHODS[method], bits[:, :FEATURE_BITS], bits[:, FEATURE_BITS:], recipe)
    parts = dict(zip(PARTS, np.array_split(rng.permutation(rows)[:copied], len(PARTS)), strict=True))
    generator = torch.Generator().manual_seed(seed)
    n_queries = int(recipe.hidden_rows * recipe.batch)

    def loss(_: int) -> Tensor:
        order = torch.randperm(len(parts["train"]), generator=generator)
        asked = torch.from_numpy(parts["train"])[order[:n_queries]]
        others = torch.randperm(rows, generator=generator)[: recipe.batch - n_queries]
        context_ND = network.context(torch.cat((asked, others)).unique().numpy())
        logit_QLK = network.label_logits(context_ND, network.typed_ND[asked])
        return nn.functional.cross_entropy(logit_QLK.flatten(0, 1), network.label_ND[asked].flatten())

    everyone = np.arange(rows)
    log = train(network.network, recipe, loss, lambda: network.cross_entropy(everyone, parts["validation"]))
    asked = {part: (part, None) for part in PARTS} | {SHUFFLED: ("test", seed)}
    found = {}
    for name, (part, shuffled) in asked.items():
        logit_QLK = network.predict(network.context(everyone, shuffled), network.typed_ND[parts[part]])
        right_QL = logit_QLK.argmax(-1) == network.label_ND[parts[part]]
        found[name] = float(right_QL.float().mean())
    return {
        "method": method, "seed": seed, "rows": rows, "copied": copied, "configuration": recipe.as_dict(),
        "parameters": parameters(network.network), "found": found, "training": log,
        "seconds": round(time.process_time() - started, 1),
    }  # fmt: skip
