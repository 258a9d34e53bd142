"""California Housing with the settings of Gorishniy et al. (2021): RMSE in 100,000 dollars (the paper: FT-T
.459, ResNet .486, MLP .499), and whether [CLS] attention, and what it carries, order the columns as permuting
them does."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr
from sklearn.inspection import permutation_importance

from benchmarks.imputation.tables import markdown
from spinimpute import tabular
from spinimpute.tabular.datasets import load_table, split

PAPER = {"FTTransformer": 0.459, "ResNet": 0.486, "MLP": 0.499}
EPOCHS_OF_PATIENCE = 16
REPEATS = 5  # of each column's permutation


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
                "validation_fraction": len(parts.validation) / len(rows),
            }  # fmt: skip
            model = getattr(tabular, f"{kind}Regressor")(**settings)
            started = time.perf_counter()
            model.fit(features.iloc[rows], target[rows])
            seconds = time.perf_counter() - started
            error = model.predict(features.iloc[parts.test]) - target[parts.test]
            result = {
                "model": kind, "seed": seed, "rmse": float(np.sqrt(np.mean(error**2))),
                "paper": PAPER.get(kind), "best_step": model.n_steps_, "settings": settings,
                "fit_seconds": round(seconds), "parameters": model.n_parameters_,
                "torch": torch.__version__, "threads": arguments.threads,
            }  # fmt: skip
            if kind == "FTTransformer":
                result |= _importance(model, features.iloc[parts.test], target[parts.test], seed)
            path.write_text(json.dumps(result, indent=1) + "\n")
            print(result, flush=True)
    _report(out)


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
