"""How SPIN and NPT use other rows: simulated tables (`lookups`), then real tables with corrupted contexts.

On real tables: corruption (NPT paper, B.2.1) permutes every column of the context independently. Deletion
(B.3.2) removes context rows that a prediction does not need, and measures whether the needed rows are near.

Axes: T test rows, N context rows, D columns with the label.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import wilcoxon
from torch import Tensor
from torch.nn import functional

from benchmarks.imputation.tables import markdown
from benchmarks.tabular.datasets import Table, load_table, split
from benchmarks.tabular.lookups import VARIANTS, Protein, clusters, lookup, random_labels
from benchmarks.tabular.methods import Problem, network
from spinimpute.tabular.carrying_network import CarryingNetwork
from spinimpute.tabular.table import Rows

NAMES = ("random_labels", "clusters", "lookup", "spoilt_context")
SPOILT_SETS = ("yacht", "concrete")
QUERIES_AT_ONCE = 25  # each with a context of its own
SHARE, KEPT, RANDOM, DELETED = "share kept", "kept", "random", "deleted"  # context rows, by deletion
LEFT, MOST_CHANGED = 0.02, 0.1  # where deletion ends: share of the context, relative change of the prediction
FIRST_ALLOWED, MORE_ALLOWED, TRIES = 0.01, 1.1, 5  # relative change of one deletion, and how it grows
RANDOM_LABELS = {6: 600, 10: 4_000}  # key bits, steps of SPIN
MANY_POINTS, STEPS_OF_MANY = 512, 1_500  # for 10 bits: of 16 rows hardly two have the same nearest point
MOST_ROUNDS = 150
LOOKUP_POINTS = (16, 64, 128)  # inducing points: a quarter of the rows, as many, twice as many
MIDDLE_POINTS = LOOKUP_POINTS[1:2]  # where no number of them can be expected to be better


def probes(arguments: argparse.Namespace) -> None:
    """Make the missing result files, one for each run."""
    torch.set_num_threads(1)
    folder: Path = arguments.results
    folder.mkdir(parents=True, exist_ok=True)
    for probe, model, run in _runs(arguments, folder):
        if arguments.models and model not in arguments.models:
            continue
        for seed in arguments.seeds:
            out = folder / f"{probe}-{model.replace(' ', '_')}-{seed}.json"
            if out.exists():
                continue
            row = run(model, seed)
            out.write_text(json.dumps(row, indent=1) + "\n")
            told = ", ".join(f"{name} {value:.4g}" for name, value in row["found"].items())
            print(f"{out.stem}: {row['seconds']:.0f} s, {told}", flush=True)
    text = _report([json.loads(path.read_text()) for path in sorted(folder.glob("*-*-*.json"))])
    (folder / "report.md").write_text(text)
    print(text)


def _runs(
    arguments: argparse.Namespace, folder: Path
) -> list[tuple[str, str, Callable[[str, int], dict[str, Any]]]]:
    """Each probe and model, with the function that runs it."""
    runs: list[tuple[str, str, Callable[[str, int], dict[str, Any]]]] = []
    run: Callable[[str, int], dict[str, Any]]
    if "random_labels" in arguments.only:
        models = ("NPT", "SPIN", "SPIN without XABD")
        for key_bits, steps in RANDOM_LABELS.items():
            run = partial(random_labels, key_bits=key_bits, steps=steps)
            runs += [(f"random_labels_{key_bits}_bits", model, run) for model in models]
        more = partial(random_labels, key_bits=10, inducing_points=MANY_POINTS, steps=STEPS_OF_MANY)
        runs.append(("random_labels_10_bits", f"SPIN h={MANY_POINTS}", more))
    if "clusters" in arguments.only:

        def drawn(model: str, seed: int) -> dict[str, Any]:
            return clusters(model, seed, folder / f"clusters-{model.replace(' ', '_')}-{seed}.png")

        runs += [("clusters", model, drawn) for model in ("SPIN", "SPIN fixed labels")]
    if "lookup" in arguments.only:
        protein = Protein(arguments.data)
        for variant in VARIANTS:
            points = LOOKUP_POINTS if variant == "original" else MIDDLE_POINTS
            run = partial(lookup, protein, variant)
            spins = [f"{name} h={h}" for name in ("SPIN", "paper's SPIN") for h in points]
            runs += [(f"lookup_{variant}", model, run) for model in ("NPT", *spins)]
    if "spoilt_context" in arguments.only:
        for name in SPOILT_SETS:
            table = load_table(name, arguments.data)
            run = partial(spoilt_context, table, seconds=arguments.seconds)
            runs += [(f"spoilt_context_{name}", model, run) for model in ("NPT", "SPIN")]
    return runs


def spoilt_context(
    table: Table, model: str, seed: int, *, seconds: float, permutations: int = 10, test_rows: int = 200
) -> dict[str, Any]:
    """Corruption and deletion with an estimator that is trained as in `tables`; seed 1 has the first fold.

    One permutation is used for all test rows. This equals one permutation for each row, because our queries
    do not see each other. Deletion is for `test_rows` test rows, or all if there are fewer. It removes blocks
    of a tenth of the remaining rows.
    """
    started = time.process_time()
    parts = split(table, seed - 1)
    problem = Problem(
        table.features.iloc[parts.train], table.target[parts.train],
        table.features.iloc[parts.validation], table.target[parts.validation],
        True, seconds, seed,
    )  # fmt: skip
    fitted = network(model)(problem)
    estimator: Any = fitted.predict.__self__  # type: ignore[attr-defined]
    context = _Context(estimator)
    query = estimator.encoder_.transform(table.features.iloc[parts.test]).value_ND
    true_T = table.target[parts.test]

    def rmse(table_ND: Tensor) -> float:
        return float(np.sqrt(np.mean((context.all_predictions(query, table_ND) - true_T) ** 2)))

    whole = rmse(context.table_ND)
    generator = torch.Generator().manual_seed(seed)
    corrupted = [rmse(_permuted(context.table_ND, generator)) for _ in range(permutations)]
    chosen = torch.randperm(len(query), generator=generator)[:test_rows]
    distances = deletion(context, query[chosen], generator)
    found = {
        "RMSE": whole,
        "RMSE, corrupted": float(np.mean(corrupted)),
        "sd over permutations": float(np.std(corrupted, ddof=1)),
        "relative change": float(np.mean(corrupted)) / whole - 1,
        **compare_distances(distances),
    }
    return {
        "probe": f"spoilt_context_{table.name}", "model": model, "seed": seed,
        "configuration": {
            "budget_seconds": seconds, "context": context.size, "permutations": permutations,
            "test_rows": len(query), "estimator": fitted.settings, **fitted.told,
        },
        "parameters": estimator.n_parameters_,
        "seconds": round(time.process_time() - started, 1), "found": found, "distances": distances,
    }  # fmt: skip


class _Context:
    """The context of a fitted estimator, as a table of numbers with the label last, and predictions from
    parts of it.
    """

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator
        if hasattr(estimator, "context_"):
            rows, label_N = estimator.context_, estimator.context_label_
        else:
            rows, label_N = estimator._encoded_rows_, estimator._encoded_label_
        assert isinstance(rows, Rows)
        assert not rows.missing_ND.any()
        self.table_ND = torch.cat((rows.value_ND, label_N[:, None]), 1)
        self.size = len(rows)

    def all_predictions(self, query: Tensor, table_ND: Tensor) -> np.ndarray:
        """Predictions of queries that share this context, in the target's units."""
        network = self.estimator.network_
        context = Rows(table_ND[:, :-1], torch.zeros(table_ND[:, :-1].shape, dtype=torch.bool))
        asked = Rows(query, torch.zeros(query.shape, dtype=torch.bool))
        with torch.no_grad():
            if isinstance(network, CarryingNetwork):
                label_Q1 = network.mean_of_members(network(context, table_ND[:, -1], asked)[0])
            else:
                label_Q1 = network.label_outputs(network(context, table_ND[:, -1], asked))
        return self._unscaled(label_Q1[:, 0])

    def predictions(self, query: Tensor, kept_TN: Tensor) -> np.ndarray:
        """Prediction of each query from its own part of the context."""
        network = self.estimator.network_
        if isinstance(network, CarryingNetwork):
            kept = zip(query, kept_TN, strict=True)
            return np.concatenate([self.all_predictions(one[None], self.table_ND[of]) for one, of in kept])
        parts = zip(query.split(QUERIES_AT_ONCE), kept_TN.split(QUERIES_AT_ONCE), strict=True)
        return np.concatenate([self._predictions(*part) for part in parts])

    def _predictions(self, query: Tensor, kept_TN: Tensor) -> np.ndarray:
        network = self.estimator.network_.network
        most = int(kept_TN.sum(1).max())
        index = torch.argsort(kept_TN.long(), dim=1, descending=True, stable=True)[:, :most]
        told_TND, visible = self.table_ND[index], kept_TN.gather(1, index)
        asked_T1D = functional.pad(query, (0, 1))[:, None]
        hidden_T1D = torch.zeros(asked_T1D.shape, dtype=torch.bool)
        hidden_T1D[..., -1] = True
        shown = torch.zeros(told_TND.shape, dtype=torch.bool)
        with torch.no_grad():
            both, masks = torch.cat((told_TND, asked_T1D), 1), torch.cat((shown, hidden_T1D), 1)
            out_TLDK = network.rows(both, masks, None, functional.pad(visible, (0, 1)))
        return self._unscaled(out_TLDK[:, -1, -1, 0])

    def _unscaled(self, label_T: Tensor) -> np.ndarray:
        scaled: np.ndarray = label_T.double().numpy()
        return scaled * self.estimator.label_sd_ + self.estimator.label_mean_


def _permuted(table_ND: Tensor, generator: torch.Generator) -> Tensor:
    """Permute every column independently."""
    order = torch.rand(table_ND.shape, generator=generator).argsort(0)
    return table_ND.gather(0, order)


def deletion(context: _Context, query: Tensor, generator: torch.Generator) -> dict[str, list[float]]:
    """Algorithm 2 of the NPT paper, with blocks of rows instead of rows.

    Returns the share of remaining ("kept") rows, and mean distances (root mean square over scaled features)
    from each test row to the remaining rows, to as many random rows, and to deleted rows. Test rows that need
    the whole context are left out.
    """
    n_tests, n_rows = len(query), context.size
    kept_TN = torch.ones(n_tests, n_rows, dtype=torch.bool)
    first_T = context.predictions(query, kept_TN)
    allowed_T, tries_T = np.full(n_tests, FIRST_ALLOWED), np.zeros(n_tests, int)
    going_T = np.ones(n_tests, bool)
    rounds = 0
    while going_T.any() and rounds < MOST_ROUNDS:
        rounds += 1
        going = np.flatnonzero(going_T)
        left = kept_TN[going].sum(1)
        drawn = torch.rand(len(going), n_rows, generator=generator).masked_fill(~kept_TN[going], 2.0)
        proposed = kept_TN[going] & (drawn.argsort(1).argsort(1) >= (left // 10).clamp(min=1)[:, None])
        said = context.predictions(query[going], proposed)
        change = np.abs(said - first_T[going]) / np.maximum(np.abs(first_T[going]), 1e-6)
        for which, of, rows in zip(going, change, proposed, strict=True):
            if of < allowed_T[which]:
                if of >= MOST_CHANGED:
                    going_T[which] = False
                    continue
                kept_TN[which], tries_T[which] = rows, 0
            else:
                tries_T[which] += 1
                if tries_T[which] >= TRIES:
                    allowed_T[which], tries_T[which] = MORE_ALLOWED * allowed_T[which], 0
            if kept_TN[which].sum() <= max(2, LEFT * n_rows):
                going_T[which] = False
    features_ND = context.table_ND[:, :-1]
    distance_TN = (query[:, None] - features_ND).square().mean(-1).sqrt()
    probability_TN = (
        torch.rand(kept_TN.shape, generator=generator).argsort(1).argsort(1) < kept_TN.sum(1)[:, None]
    )
    kept, probability, deleted = (
        _mean_where(distance_TN, where) for where in (kept_TN, probability_TN, ~kept_TN)
    )
    told = ~kept_TN.all(1).numpy()
    of = {SHARE: kept_TN.float().mean(1).numpy(), KEPT: kept, RANDOM: probability, DELETED: deleted}
    return {name: values[told].tolist() for name, values in of.items()}


def compare_distances(distances: Mapping[str, list[float]]) -> dict[str, float]:
    """Return means over test rows, and Wilcoxon's one-sided p for distances to rows that were kept."""
    means = {"deletion: share kept": float(np.mean(distances[SHARE]))}
    means |= {f"distance, {rows}": float(np.mean(distances[rows])) for rows in (KEPT, RANDOM, DELETED)}
    p = {
        f"p, kept < {other}": float(wilcoxon(distances[KEPT], distances[other], alternative="less").pvalue)
        for other in (RANDOM, DELETED)
    }
    return {**means, **p, "test rows": len(distances[KEPT])}


def _mean_where(x_TN: Tensor, where_TN: Tensor) -> np.ndarray:
    mean: np.ndarray = ((x_TN * where_TN).sum(1) / where_TN.sum(1)).numpy()
    return mean


def _report(rows: list[dict[str, Any]]) -> str:
    """Means over seeds, with the range of the most informative ones."""
    parts = ["# Probes: what other rows are used for\n"]
    probes = list(dict.fromkeys(row["probe"] for row in rows))
    for probe in sorted(probes, key=lambda name: [name.startswith(known) for known in NAMES], reverse=True):
        by_model: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            if row["probe"] == probe:
                by_model[row["model"]].append(row)
        measures = list(next(iter(by_model.values()))[0]["found"])
        lines = [["", *measures, "weights", "steps", "seconds", "seeds"]]
        for model, runs in by_model.items():
            configuration = runs[0]["configuration"]
            steps = configuration.get("training", configuration)["steps"]
            lines.append(
                [
                    model,
                    *(_spread([run["found"][measure] for run in runs]) for measure in measures),
                    f"{runs[0]['parameters']:,}", f"{steps:,}",
                    f"{np.mean([run['seconds'] for run in runs]):.0f}", str(len(runs)),
                ]
            )  # fmt: skip
        parts.append(f"## {probe}\n\n{markdown(lines)}\n")
    return "\n".join(parts)


def _spread(values: list[float]) -> str:
    mean = f"{np.mean(values):.4g}"
    return mean if max(values) == min(values) else f"{mean} ({min(values):.4g} to {max(values):.4g})"
