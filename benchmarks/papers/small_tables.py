"""Table 11 of the SPIN paper on its small sets: SPIN in the paper's form, NPT, Set Transformer, fold by fold.

All rows of training are a batch; of these a share are queries, whose label is hidden and some of whose
attributes are, and the others their context. The validation part chooses the weights; then it and the
training part are the context of the test part. Settings are fixed: test rows of no fold choose anything.

Axes: N rows, D columns (the label is the last).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from benchmarks.imputation.cases import SHARED
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import Recipe, parameters, train
from benchmarks.papers.window_networks import Unread
from spinimpute.nn.attention import MABOptions
from spinimpute.nn.masking import attribute_weight
from spinimpute.nn.npt import NPT
from spinimpute.nn.set_transformer import SetTransformer
from spinimpute.nn.spin import SPIN, SPINConfig
from spinimpute.tabular.datasets import load_table, split

SETS = ("yacht", "boston", "concrete")
METHODS = ("SPIN", "NPT", "Set-TF")
WITHOUT_XABD, WITHOUT_XABA = "SPIN without XABD", "SPIN without XABA"  # Table 6
FOLDS, BLOCKS = 10, 4  # "depth 8"
TRUE, SHUFFLED = "training rows", "training rows, labels shuffled"


@dataclass(frozen=True)
class TableRecipe(Recipe):
    """hidden_attributes: share of the queries' attributes; attribute_weight: lambda of the first step, as in
    the paper's scripts for these sets."""

    steps: int = 500
    batch: int = 2_048
    dropout: float = 0.1
    heads: int = 8
    hidden_attributes: float = 0.15
    attribute_weight: float = 1.0


def add_command(commands: Any) -> None:
    table = commands.add_parser("table11", help="small tables, networks in the paper's form")
    table.set_defaults(cells=table11)
    table.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    every = (*METHODS, WITHOUT_XABD, WITHOUT_XABA)
    table.add_argument("--methods", nargs="+", choices=every, default=list(METHODS))
    table.add_argument("--folds", type=int, default=FOLDS)
    cell = commands.add_parser("small-table", help="one cell, for table11")
    cell.set_defaults(function=one)
    cell.add_argument("name", choices=SETS)
    cell.add_argument("method", choices=every)
    cell.add_argument("fold", type=int)
    for sub in (table, cell):
        sub.add_argument("--data", type=Path, default=SHARED / "data" / "tabular")
        sub.add_argument("--steps", type=int, default=TableRecipe.steps)


def table11(arguments: argparse.Namespace) -> Iterator[Cell]:
    for fold in range(arguments.folds):
        for name in arguments.sets:
            for method in arguments.methods:
                words = (
                    "small-table",
                    name,
                    method,
                    fold,
                    "--data",
                    arguments.data,
                    "--steps",
                    arguments.steps,
                )
                yield Cell("table11", (name, method, f"{arguments.steps}_steps", fold), words)


def build(method: str, columns: int, recipe: TableRecipe) -> SPIN | NPT | SetTransformer:
    numbers = tuple(range(columns))
    options = MABOptions(recipe.heads, learned_residual=True, dropout=recipe.dropout)
    if method == "NPT":
        return NPT(1, columns, recipe.width, BLOCKS, options, continuous=numbers)
    if method == "Set-TF":
        return SetTransformer(
            1, columns, recipe.width, BLOCKS, recipe.h, recipe.f, options, continuous=numbers
        )
    config = SPINConfig(
        1, columns, recipe.width, recipe.h, recipe.f, BLOCKS, "flat", continuous=numbers, heads=recipe.heads,
        learned_residual=True, dropout=recipe.dropout,
    )  # fmt: skip
    network = SPIN(config)
    if method == WITHOUT_XABA:
        for block in network.encoder.blocks:
            block.xaba = Unread()
    return network


class TableNetwork:
    """A network with a scaled table (N, D), whose scales are those of the rows that train."""

    def __init__(self, method: str, table_ND: np.ndarray, train_N: np.ndarray, recipe: TableRecipe) -> None:
        self.recipe = recipe
        mean_D, sd_D = table_ND[train_N].mean(0), table_ND[train_N].std(0)
        sd_D = np.where(sd_D > 0, sd_D, 1.0)
        self.label_sd = float(sd_D[-1])
        self.table_ND = torch.from_numpy((table_ND - mean_D) / sd_D).float()
        self.is_label_D = torch.arange(table_ND.shape[1]) == table_ND.shape[1] - 1
        self.method, self.network = method, build(method, table_ND.shape[1], recipe)

    def outputs(self, context_ND: Tensor, query_ND: Tensor, hidden_ND: Tensor) -> Tensor:
        """Of all cells of the queries, (N, D)."""
        shown = torch.zeros(context_ND.shape, dtype=torch.bool)[None]
        seen_ND = query_ND.masked_fill(hidden_ND, 0.0)
        if self.method == WITHOUT_XABD:
            assert isinstance(self.network, SPIN)
            points = self.network.encoder.start_points
            return self.network.predict(seen_ND[None], hidden_ND[None], points)[0, ..., 0]
        outputs_1NDK: Tensor = self.network(context_ND[None], shown, seen_ND[None], hidden_ND[None])
        return outputs_1NDK[0, ..., 0]

    def train(self, train_N: np.ndarray, validation_N: np.ndarray, seed: int) -> dict[str, Any]:
        recipe, generator = self.recipe, torch.Generator().manual_seed(seed)
        rows = torch.from_numpy(train_N)

        def loss(step: int) -> Tensor:
            chosen = rows[torch.randperm(len(rows), generator=generator)[: recipe.batch]]
            n_queries = int(recipe.hidden_rows * len(chosen))
            query_ND, context_ND = self.table_ND[chosen[:n_queries]], self.table_ND[chosen[n_queries:]]
            weight = attribute_weight(step, recipe.steps, recipe.attribute_weight)
            drawn_ND = torch.rand(query_ND.shape, generator=generator) < recipe.hidden_attributes
            hidden_ND = (drawn_ND & (weight > 0)) | self.is_label_D
            error_ND = (self.outputs(context_ND, query_ND, hidden_ND) - query_ND).square()
            label = error_ND[:, self.is_label_D].mean()
            asked_ND = hidden_ND & ~self.is_label_D
            return (1 - weight) * label + weight * (error_ND * asked_ND).sum() / asked_ND.sum().clamp(min=1)

        return train(self.network, recipe, loss, lambda: self.rmse(train_N, validation_N))

    @torch.no_grad()
    def rmse(self, context_N: np.ndarray, asked_N: np.ndarray, shuffled: int | None = None) -> float:
        """In units of the label. With a seed, rows of the context show labels of one another."""
        self.network.eval()
        context_ND, query_ND = self.table_ND[context_N].clone(), self.table_ND[asked_N]
        if shuffled is not None:
            generator = torch.Generator().manual_seed(shuffled)
            context_ND[:, -1] = context_ND[torch.randperm(len(context_ND), generator=generator), -1]
        predicted_N = self.outputs(context_ND, query_ND, self.is_label_D.expand(query_ND.shape))[:, -1]
        return float((predicted_N - query_ND[:, -1]).square().mean().sqrt()) * self.label_sd


def one(arguments: argparse.Namespace) -> None:
    """Prints one line of JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.fold + 1)
    started = time.process_time()
    table = load_table(arguments.name, arguments.data)
    parts = split(table, arguments.fold)
    features_ND = table.features.apply(pd.to_numeric).to_numpy(float)
    network = TableNetwork(
        arguments.method, np.column_stack((features_ND, table.target)), parts.train,
        TableRecipe(steps=arguments.steps),
    )  # fmt: skip
    log = network.train(parts.train, parts.validation, arguments.fold + 1)
    context_N = np.concatenate((parts.train, parts.validation))
    found = {
        name: network.rmse(context_N, parts.test, shuffled)
        for name, shuffled in ((TRUE, None), (SHUFFLED, arguments.fold + 1))
    }
    told = {
        "set": arguments.name, "method": arguments.method, "fold": arguments.fold, "seed": arguments.fold + 1,
        "rows": [len(part) for part in parts], "configuration": network.recipe.as_dict(),
        "parameters": parameters(network.network), "found": found, "training": log,
        "seconds": round(time.process_time() - started, 1),
    }  # fmt: skip
    print(json.dumps(told))
