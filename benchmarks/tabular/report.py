"""Tables of a comparison from its result files, with the papers' numbers next to ours."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

from benchmarks.imputation.tables import markdown
from benchmarks.papers.claims import SPIN_PAPER, published
from benchmarks.tabular.contexts import context_table
from benchmarks.tabular.methods import (
    ATTENTION,
    LOOKS,
    METHODS,
    PYTABKIT,
    REFITTED,
    ROW_BASELINES,
    TREE_BASELINES,
)

RESULTS = Path(__file__).parent / "results"
# run on the sets of the FT-Transformer paper alone
FEW_SETS = (*ROW_BASELINES, *TREE_BASELINES, "catboost")
# run on some sets; each is ranked among ON_ALL_SETS on its own sets
SOME_SETS = tuple(method for method in METHODS if method in PYTABKIT or method.endswith(REFITTED))
ON_ALL_SETS = tuple(method for method in METHODS if method not in (*FEW_SETS, *SOME_SETS))
OF_PAPER = ("SPIN", "NPT", "Set-TF", "GBT", "KNN", "MLP")  # as the SPIN paper calls them


def is_unfinished(row: Mapping[str, Any]) -> bool:
    """Return whether a network had its lowest validation loss in the last look of its training."""
    if "best_step" not in row:
        return False
    return bool(row["best_step"] > row["steps"] - max(1, row["steps"] // LOOKS))


def read_results(folder: Path) -> dict[str, dict[str, list[dict]]]:
    """Return fits by set and method."""
    found: dict[str, dict[str, list[dict]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(folder.glob("*-*-*.json")):
        row = json.loads(path.read_text())
        found[row["set"]][row["method"]].append(row)
    return found


def report(arguments: argparse.Namespace) -> None:
    found = read_results(arguments.results)
    contexts = f"SPIN with other contexts (RMSE, or % of wrong classes):\n\n{context_table(found)}"
    text = "\n\n".join((_scores(found), _ranks(found), contexts, _costs(found)))
    (arguments.results / "report.md").write_text(f"# Tables\n\n{text}\n")
    print(text)


def score(row: dict[str, Any]) -> float:
    """Return RMSE, or accuracy in per cent."""
    return row["loss"] if row["task"] == "regression" else 100 * (1 - row["loss"])


def _scores(found: dict) -> str:
    lines = [["", *found]]
    fitted = {method for by_method in found.values() for method in by_method}
    for method in (method for method in METHODS if method in fitted):
        line = [method]
        for by_method in found.values():
            scores = np.array([score(row) for row in by_method.get(method, [])])
            sd = f" ± {scores.std(ddof=1):.2f}" if len(scores) > 1 else ""
            line.append(f"{scores.mean():.2f}{sd}" if len(scores) else "")
        lines.append(line)
    # RMSE; accuracy in per cent
    paper = published(SPIN_PAPER, "11") | published(SPIN_PAPER, "12")
    lines += [[f"paper: {method}", *(paper.get((name, method), "") for name in found)] for method in OF_PAPER]
    measure = ["RMSE" if _any(by_method)["task"] == "regression" else "%" for by_method in found.values()]
    folds = [str(max(len(rows) for rows in by_method.values())) for by_method in found.values()]
    seconds = [f"{_any(by_method)['budget_seconds']:.0f}" for by_method in found.values()]
    lines += [["measure", *measure], ["folds", *folds], ["seconds a fit", *seconds]]
    return markdown(lines)


def _any(by_method: dict) -> dict:
    return next(iter(by_method.values()))[0]


def mean_ranks(found: dict, methods: Sequence[str]) -> tuple[np.ndarray, int]:
    """Return the methods' mean ranks by mean loss on their common sets, and the number of these sets."""
    ranks = [
        rankdata([np.mean([row["loss"] for row in by_method[method]]) for method in methods])
        for by_method in found.values()
        if set(methods) <= by_method.keys()
    ]
    return np.mean(ranks, 0) if ranks else np.full(len(methods), np.nan), len(ranks)


def _ranks(found: dict) -> str:
    lines = [["", "mean rank", "sets"]]
    groups = [("all", ON_ALL_SETS), ("attention", ATTENTION)]
    groups += [(f"with {method}", (*ON_ALL_SETS, method)) for method in SOME_SETS]
    groups.append(("FT-Transformer paper", (*ON_ALL_SETS, *FEW_SETS)))
    for title, methods in groups:
        mean, sets = mean_ranks(found, methods)
        if sets:
            lines += [[f"{title}: {methods[i]}", f"{mean[i]:.2f}", str(sets)] for i in np.argsort(mean)]
    return markdown(lines)


def _costs(found: dict) -> str:
    """Means over sets and folds: weights, steps, seconds of 1,000 predictions."""
    lines = [["", "weights", "steps", "s for 1,000 predictions", "budget spent"]]
    for method in METHODS:
        rows = [row for by_method in found.values() for row in by_method.get(method, [])]
        if not rows:
            continue
        lines.append(
            [
                method,
                f"{np.mean([row['parameters'] for row in rows]):,.0f}" if "parameters" in rows[0] else "",
                f"{np.mean([row['steps'] for row in rows]):,.0f}" if "steps" in rows[0] else "",
                f"{np.mean([1000 * row['predict_seconds'] / row['rows'][2] for row in rows]):.3f}",
                f"{np.mean([row['fit_seconds'] / row['budget_seconds'] for row in rows]):.0%}",
            ]
        )
    return markdown(lines)
