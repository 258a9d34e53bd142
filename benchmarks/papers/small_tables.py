"""Small sets by fold: SPIN as in the paper, NPT, Set Transformer, and NPT without one of its parts.

Table 11 of the SPIN paper, and Tables 4 and 5 of the NPT paper.

All training rows are one batch. Some of them are queries with hidden labels and some hidden attributes; the
other rows are their context. The weights are chosen on the validation part. Then the training and validation
parts are the context of the test part. Settings are fixed; no test row of any fold influences them.

Axes: N rows, D columns (the label is the last).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.device_option import add_device
from benchmarks.imputation.cases import SHARED
from benchmarks.papers.cells import Cell
from benchmarks.papers.training import Recipe, parameters, train
from benchmarks.papers.window_networks import Unread
from benchmarks.tabular.datasets import load_table, split
from spinimpute.nn.optimisers import attribute_weight
from spinimpute.nn.presets import Form, published_network
from spinimpute.nn.row_models import NPTBlock, RowModel
from spinimpute.nn.spin import SPIN, EncoderBlock

SETS = ("yacht", "boston", "concrete")
METHODS = ("SPIN", "NPT", "Set-TF")
WITHOUT_XABD, WITHOUT_XABA = "SPIN without XABD", "SPIN without XABA"  # Table 6
FOLDS, BLOCKS = 10, 4  # "depth 8"
NPT_WITHOUT_ABA, SEMI_SUPERVISED = "NPT without ABA", "NPT, semi-supervised"
# of attributes that are never hidden there is nothing to weigh the label against
NO_FEATURE_MASKING = {"hidden_attributes": 0.0, "attribute_weight": 0.0}
NO_TARGET_MASKING = {"labels_shown": False}
# Table 4 of the NPT paper (a block is two layers), then Table 5
PARTS_OF_NPT: dict[str, dict[str, Any]] = {
    "NPT": {},
    "NPT, no target masking": NO_TARGET_MASKING,
    "NPT, no feature masking": NO_FEATURE_MASKING,
    "NPT, no feature and no target masking": NO_FEATURE_MASKING | NO_TARGET_MASKING,
    "NPT, feature mask 0.5": {"hidden_attributes": 0.5},
    "NPT, target mask 0.5": {"hidden_rows": 0.5},
    "NPT, 4 layers": {"blocks": 2},
    "NPT, 16 layers": {"blocks": 8},
    "NPT, 4 heads": {"heads": 4},
    "NPT, 16 heads": {"heads": 16},
    "NPT, tradeoff 0.5": {"attribute_weight": 0.5, "annealed": False},
    NPT_WITHOUT_ABA: {},
    SEMI_SUPERVISED: {"unlabelled_shown": True},
}
TRUE, SHUFFLED = "training rows", "training rows, labels shuffled"


@dataclass(frozen=True)
class TableRecipe(Recipe):
    """Training of a network on a small table.

    hidden_attributes: share of the queries' attributes. attribute_weight: initial lambda, as in the paper's
    scripts for these sets. annealed: lambda falls to 0. labels_shown: labels of the context are visible in
    training. unlabelled_shown: the other rows of the table are in the context too, with hidden labels.
    """

    steps: int = 500
    batch: int = 2_048
    dropout: float = 0.1
    heads: int = 8
    hidden_attributes: float = 0.15
    attribute_weight: float = 1.0
    annealed: bool = True
    labels_shown: bool = True
    unlabelled_shown: bool = False
    blocks: int = BLOCKS


def add_command(commands: Any) -> None:
    table = commands.add_parser("table11", help="small tables, networks in the paper's form")
    table.set_defaults(cells=table11)
    table.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    every = (*METHODS, WITHOUT_XABD, WITHOUT_XABA)
    table.add_argument("--methods", nargs="+", choices=every, default=list(METHODS))
    parts = commands.add_parser("npt4", help="small tables, NPT with a part less or another setting")
    parts.set_defaults(cells=npt4)
    parts.add_argument("--sets", nargs="+", choices=SETS, default=["boston"])
    parts.add_argument("--methods", nargs="+", choices=PARTS_OF_NPT, default=list(PARTS_OF_NPT))
    cell = commands.add_parser("small-table", help="one cell of table11 and npt4")
    cell.set_defaults(function=one)
    cell.add_argument("name", choices=SETS)
    cell.add_argument("method", choices=dict.fromkeys((*every, *PARTS_OF_NPT)))
    cell.add_argument("fold", type=int)
    for sub in (table, parts):
        sub.add_argument("--folds", type=int, default=FOLDS)
    add_device(cell)
    for sub in (table, parts, cell):
        sub.add_argument("--data", type=Path, default=SHARED / "data" / "tabular")
        sub.add_argument("--steps", type=int, default=TableRecipe.steps)


def table11(arguments: argparse.Namespace) -> Iterator[Cell]:
    return _cells("table11", arguments)


def npt4(arguments: argparse.Namespace) -> Iterator[Cell]:
    return _cells("npt4", arguments)


def _cells(table: str, arguments: argparse.Namespace) -> Iterator[Cell]:
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
                yield Cell(table, (name, method, f"{arguments.steps}_steps", fold), words)


def build(method: str, columns: int, recipe: TableRecipe) -> SPIN | RowModel:
    form: Form = "SetTransformer" if method == "Set-TF" else "NPT" if method in PARTS_OF_NPT else "SPIN"
    network = published_network(
        form, 1, columns, width=recipe.width, blocks=recipe.blocks, heads=recipe.heads,
        dropout=recipe.dropout, inducing_points=recipe.h, latent_attributes=recipe.f,
        continuous=tuple(range(columns)), layer_order="released",
    )  # fmt: skip
    for layers in network.modules():
        if method == NPT_WITHOUT_ABA and isinstance(layers, NPTBlock):
            layers.aba = nn.Identity()  # type: ignore[assignment]
        if method == WITHOUT_XABA and isinstance(layers, EncoderBlock):
            layers.xaba = Unread()  # type: ignore[assignment]
    return network


class TableNetwork:
    """A network and the table (N, D), scaled by the means and standard deviations of the training rows."""

    def __init__(self, method: str, table_ND: np.ndarray, train_N: np.ndarray, recipe: TableRecipe) -> None:
        self.recipe = recipe
        mean_D, sd_D = table_ND[train_N].mean(0), table_ND[train_N].std(0)
        sd_D = np.where(sd_D > 0, sd_D, 1.0)
        self.label_sd = float(sd_D[-1])
        self.table_ND = torch.from_numpy((table_ND - mean_D) / sd_D).float().to(recipe.device)
        columns = table_ND.shape[1]
        self.is_label_D = torch.arange(columns, device=recipe.device) == columns - 1
        self.method, self.network = method, build(method, columns, recipe).to(recipe.device)

    def outputs(
        self,
        context_ND: Tensor,
        query_ND: Tensor,
        hidden_ND: Tensor,
        labels_shown: bool = True,
        unlabelled_ND: Tensor | None = None,
    ) -> Tensor:
        """Return outputs (N, D) for all cells of the queries.

        `labels_shown` shows the context's labels, except those of its `unlabelled_ND` rows.
        """
        context_hidden_ND = torch.zeros_like(context_ND, dtype=torch.bool)
        if not labels_shown:
            context_hidden_ND |= self.is_label_D
        if unlabelled_ND is not None:
            context_ND = torch.cat((context_ND, unlabelled_ND))
            hidden_too_ND = self.is_label_D.expand(unlabelled_ND.shape)
            context_hidden_ND = torch.cat((context_hidden_ND, hidden_too_ND))
        context_ND = context_ND.masked_fill(context_hidden_ND, 0.0)
        seen_ND = query_ND.masked_fill(hidden_ND, 0.0)
        if self.method == WITHOUT_XABD:
            assert isinstance(self.network, SPIN)
            points = self.network.encoder.start_points
            return self.network.predict(seen_ND[None], hidden_ND[None], points)[0, ..., 0]
        outputs_1NDK: Tensor = self.network(
            context_ND[None], context_hidden_ND[None], seen_ND[None], hidden_ND[None]
        )
        return outputs_1NDK[0, ..., 0]

    def unlabelled(self, labelled_N: np.ndarray) -> Tensor | None:
        """Return the rows of the table without labelled_N, if the context has them."""
        others_N = np.setdiff1d(np.arange(len(self.table_ND)), labelled_N)
        return self.table_ND[others_N] if self.recipe.unlabelled_shown else None

    def train(self, train_N: np.ndarray, validation_N: np.ndarray, seed: int) -> dict[str, Any]:
        recipe, generator = self.recipe, torch.Generator().manual_seed(seed)
        rows, unlabelled_ND = torch.from_numpy(train_N), self.unlabelled(train_N)

        def loss(step: int) -> Tensor:
            chosen = rows[torch.randperm(len(rows), generator=generator)[: recipe.batch]]
            n_queries = int(recipe.hidden_rows * len(chosen))
            query_ND, context_ND = self.table_ND[chosen[:n_queries]], self.table_ND[chosen[n_queries:]]
            weight = recipe.attribute_weight
            if recipe.annealed:
                weight = attribute_weight(step, recipe.steps, weight)
            number_ND = torch.rand(query_ND.shape, generator=generator).to(recipe.device)
            drawn_ND = number_ND < recipe.hidden_attributes
            hidden_ND = (drawn_ND & (weight > 0)) | self.is_label_D
            outputs_ND = self.outputs(context_ND, query_ND, hidden_ND, recipe.labels_shown, unlabelled_ND)
            error_ND = (outputs_ND - query_ND).square()
            label = error_ND[:, self.is_label_D].mean()
            asked_ND = hidden_ND & ~self.is_label_D
            return (1 - weight) * label + weight * (error_ND * asked_ND).sum() / asked_ND.sum().clamp(min=1)

        return train(self.network, recipe, loss, lambda: self.rmse(train_N, validation_N))

    @torch.no_grad()
    def rmse(self, context_N: np.ndarray, asked_N: np.ndarray, shuffled: int | None = None) -> float:
        """Return RMSE in units of the label; `seed` shuffles the labels of the context."""
        self.network.eval()
        context_ND, query_ND = self.table_ND[context_N].clone(), self.table_ND[asked_N]
        if shuffled is not None:
            generator = torch.Generator().manual_seed(shuffled)
            context_ND[:, -1] = context_ND[torch.randperm(len(context_ND), generator=generator), -1]
        hidden_ND = self.is_label_D.expand(query_ND.shape)
        unlabelled_ND = self.unlabelled(context_N)
        predicted_N = self.outputs(context_ND, query_ND, hidden_ND, unlabelled_ND=unlabelled_ND)[:, -1]
        return float((predicted_N - query_ND[:, -1]).square().mean().sqrt()) * self.label_sd


def one(arguments: argparse.Namespace) -> None:
    """Make one cell, and print it as a line of JSON."""
    torch.set_num_threads(1)
    torch.manual_seed(arguments.fold + 1)
    started = time.process_time()
    table = load_table(arguments.name, arguments.data)
    parts = split(table, arguments.fold)
    features_ND = table.features.apply(pd.to_numeric).to_numpy(float)
    recipe = TableRecipe(steps=arguments.steps, device=arguments.device)
    network = TableNetwork(
        arguments.method, np.column_stack((features_ND, table.target)), parts.train,
        replace(recipe, **PARTS_OF_NPT.get(arguments.method, {})),
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
