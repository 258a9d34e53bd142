"""California Housing with the settings of Gorishniy et al. (2021).

Results are RMSE in 100,000 dollars (the paper: FT-T .459, ResNet .486, MLP .499), and whether the attention
of [CLS], or the norms of the vectors that [CLS] reads, rank the columns like permutation importance.
Predictions of the test part are stored, so that ensembles of seeds can be scored:

    predictions/MODEL-SEED.json    4 decimals; predictions/target.json has the labels
"""

from __future__ import annotations

import argparse
import json
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance
from torch import nn

from benchmarks.imputation.tables import markdown
from benchmarks.tabular.datasets import load_table, split
from spinimpute.tabular import FTTransformerRegressor, MLPRegressor, ResNetRegressor
from spinimpute.tabular.row_networks import FTTransformer

WITHOUT_BIASES = "FTTransformerWithoutBiases"
PAPER = {"FTTransformer": 0.459, "ResNet": 0.486, "MLP": 0.499, WITHOUT_BIASES: 0.470}
PREDICTIONS, TARGET, DECIMALS = "predictions", "target", 4
EPOCHS_OF_PATIENCE = 16
REPEATS = 5  # of each column's permutation


class FTTransformerWithoutBiases(FTTransformerRegressor):
    """Variant whose tokens are x W, without biases of features.

    `FTTransformer` has a bias and an embedding of the index.
    """

    def _make_network(self) -> nn.Module:
        network = super()._make_network()
        assert isinstance(network, FTTransformer)
        assert network.tokens.index is not None
        for bias_DE in (network.tokens.bias, network.tokens.index):
            nn.init.zeros_(bias_DE).requires_grad_(False)
        return network


MODELS = {
    "ResNet": ResNetRegressor, "MLP": MLPRegressor, "FTTransformer": FTTransformerRegressor,
    WITHOUT_BIASES: FTTransformerWithoutBiases,
}  # fmt: skip


def california(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads)
    out = arguments.results
    out.mkdir(parents=True, exist_ok=True)
    table = load_table("california", arguments.data)
    parts = split(table, 0)
    rows = np.concatenate([parts.train, parts.validation])
    features, target = table.features, table.target / 1e5
    epoch = len(parts.train) // 256
    for kind in arguments.models:
        for seed in arguments.seeds:
            path = out / f"{kind}-{seed}.json"
            if path.exists():
                continue
            settings: dict[str, Any] = {
                "scaling": "quantile", "steps": arguments.epochs * epoch, "evaluate_every": epoch,
                "patience": EPOCHS_OF_PATIENCE, "random_state": seed, "batch_size": 256,
                "device": arguments.device,
                "validation_fraction": len(parts.validation) / len(rows),
            }  # fmt: skip
            model = MODELS[kind](**settings)
            started, started_work = time.perf_counter(), time.process_time()
            model.fit(features.iloc[rows], target[rows])
            seconds, worked = time.perf_counter() - started, time.process_time() - started_work
            predicted = model.predict(features.iloc[parts.test])
            error = predicted - target[parts.test]
            result = {
                "model": kind, "seed": seed, "rmse": float(np.sqrt(np.mean(error**2))),
                "paper": PAPER.get(kind), "best_step": model.n_steps_, "settings": settings,
                "fit_seconds": round(seconds), "processor_seconds": round(worked),
                "parameters": model.n_parameters_, "torch": torch.__version__, "threads": arguments.threads,
            }  # fmt: skip
            if kind == "FTTransformer":
                result |= _importance(model, features.iloc[parts.test], target[parts.test], seed)
            _keep(predicted, target[parts.test], out / PREDICTIONS, path.name)
            path.write_text(json.dumps(result, indent=1) + "\n")
            print(result, flush=True)
    _report(out)


def _keep(predicted: np.ndarray, target: np.ndarray, folder: Path, name: str) -> None:
    folder.mkdir(exist_ok=True)
    for of, file in ((target, f"{TARGET}.json"), (predicted, name)):
        (folder / file).write_text(json.dumps([round(float(x), DECIMALS) for x in of]) + "\n")


def _read_predictions(results: Path) -> dict[str, list[np.ndarray]]:
    """Predictions by model, one for each seed; the labels are under TARGET."""
    found: dict[str, list[np.ndarray]] = defaultdict(list)
    for path in sorted((results / PREDICTIONS).glob("*.json")):
        found[path.stem.partition("-")[0]].append(np.array(json.loads(path.read_text())))
    return found


def ensembles(results: Path) -> dict[str, tuple[list[float], float]]:
    """Return RMSE of each seed, and of the mean of all predictions, for models with several seeds."""
    predictions = _read_predictions(results)
    if not predictions:
        return {}
    (target,) = predictions.pop(TARGET)

    def rmse(predicted: np.ndarray) -> float:
        return float(np.sqrt(np.mean((predicted - target) ** 2)))

    return {
        model: ([rmse(one) for one in of_seeds], rmse(np.mean(of_seeds, 0)))
        for model, of_seeds in predictions.items()
        if len(of_seeds) > 1
    }


def _importance(model: Any, features: Any, target: np.ndarray, seed: int) -> dict[str, Any]:
    attention, norm = model.column_attention(features), model.column_attention(features, by_norm=True)
    permuted = permutation_importance(
        model, features, target, scoring="neg_root_mean_squared_error", n_repeats=REPEATS, random_state=seed
    ).importances_mean
    return {
        "columns": list(features.columns), "attention": attention.tolist(), "permutation": permuted.tolist(),
        "rank_correlation": float(spearmanr(attention, permuted).statistic),
        "norm": norm.tolist(), "rank_correlation_by_norm": float(spearmanr(norm, permuted).statistic),
    }  # fmt: skip


def _report(out: Any) -> None:
    head = ["model", "RMSE, 100,000 $", "paper", "seeds", "rank correlation of importances", "by norm"]
    lines = [head]
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(out.glob("*-*.json")):
        row = json.loads(path.read_text())
        found.setdefault(row["model"], []).append(row)
    for kind, rows in found.items():
        rmse = [row["rmse"] for row in rows]
        sd = f" ± {np.std(rmse, ddof=1):.3f}" if len(rmse) > 1 else ""
        ranks = [
            ", ".join(f"{row[name]:.2f}" for row in rows if name in row)
            for name in ("rank_correlation", "rank_correlation_by_norm")
        ]
        lines.append([kind, f"{np.mean(rmse):.3f}{sd}", str(PAPER.get(kind, "")), str(len(rows)), *ranks])
    text = markdown(lines)
    (out / "report.md").write_text(f"# California Housing\n\n{text}\n")
    print(text)
