"""Poker hands: the value of a context that is only given in tests (Table 2 of the SPIN paper).

In the paper, the size of the context is that of the batch, so it changes the training. Here, SPIN and NPT are
trained for the same seconds with the same batches. Test hands are then predicted from 512 to all training
hands, and from contexts with shuffled labels.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
import torch

from benchmarks.imputation.tables import markdown
from benchmarks.tabular.datasets import load_table, poker_hands, split
from benchmarks.tabular.methods import Problem, network

CONTEXTS = (512, 1_024, 2_048, 4_096, 8_192, 16_384, 25_000)
LARGEST = {"NPT": 4_096}  # time grows with the square
TEST_HANDS = 5_000
PARTS = 2  # contexts of each size that are drawn, where there are that many


def poker(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    out = arguments.results
    out.mkdir(parents=True, exist_ok=True)
    table = load_table("poker", arguments.data)
    parts = split(table, 0)
    hands, classes = poker_hands(TEST_HANDS, seed=20_000 + arguments.seed)
    trained = np.concatenate([parts.train, parts.validation])
    problem = Problem(
        table.features.iloc[parts.train], table.target[parts.train],
        table.features.iloc[parts.validation], table.target[parts.validation],
        False, arguments.seconds, arguments.seed, device=arguments.device,
    )  # fmt: skip
    rows: list[dict[str, Any]] = []
    for kind in arguments.models:
        started = time.process_time()
        fitted = network(kind)(problem)
        model = fitted.predict.__self__  # type: ignore[attr-defined]
        seconds = time.process_time() - started
        rng = np.random.default_rng(arguments.seed)
        for size in CONTEXTS:
            if size > LARGEST.get(kind, size):
                continue
            found = {"true": [], "shuffled": []}  # type: dict[str, list[float]]
            for _ in range(PARTS if size < len(trained) else 1):
                index = rng.choice(trained, min(size, len(trained)), replace=False)
                label = table.target[index]
                for name, shown in (("true", label), ("shuffled", rng.permutation(label))):
                    model.set_params(context_size=size)  # or NPT reads as many as in a step of its training
                    model.set_context(table.features.iloc[index], shown)
                    found[name].append(float(np.mean(model.predict(hands) == classes)))
            rows.append(
                {
                    "model": kind, "context": min(size, len(trained)), "seed": arguments.seed,
                    "train_seconds": round(seconds), **fitted.told, "settings": fitted.settings,
                    "accuracy": found["true"], "labels_shuffled": found["shuffled"],
                }
            )  # fmt: skip
            print(kind, size, np.mean(found["true"]), np.mean(found["shuffled"]), flush=True)
        (out / f"{kind}-{arguments.seed}.json").write_text(
            json.dumps([row for row in rows if row["model"] == kind], indent=1) + "\n"
        )
    _report(out)


def _report(out: Any) -> None:
    lines = [["model", "seed", "context", "accuracy, %", "with shuffled labels, %", "steps", "s of training"]]
    for path in sorted(out.glob("*-*.json")):
        lines += [
            [
                row["model"],
                str(row["seed"]),
                f"{row['context']:,}",
                f"{100 * np.mean(row['accuracy']):.2f}",
                f"{100 * np.mean(row['labels_shuffled']):.2f}",
                f"{row['steps']:,}",
                str(row["train_seconds"]),
            ]
            for row in json.loads(path.read_text())
        ]
    text = markdown(lines)
    (out / "report.md").write_text(
        f"# Poker: the context given at test time\n\n{TEST_HANDS:,} test hands\n\n{text}\n"
    )
    print(text)
