"""Section of the page on probes: SPIN A.7 and A.8, Tables 2 and 3 and B.3 of NPT's paper, and images."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.papers.cells import read_results
from benchmarks.papers.claims import (
    BUDGET,
    DATA,
    FAILS,
    HOLDS,
    NPT_PAPER,
    SPIN_PAPER,
    UNTESTED,
    Claim,
    Section,
    not_run,
    protocol,
    published,
    published_table,
    verdict,
)
from benchmarks.papers.images import PATCH, SHUFFLED, TRUE
from benchmarks.papers.random_bits import METHODS
from benchmarks.papers.random_bits import SHUFFLED as SHUFFLED_BITS
from benchmarks.papers.training import LAST_LOOKS, Recipe, is_unfinished, unfinished_text
from benchmarks.tabular.lookups import VARIANTS
from benchmarks.tabular.methods import LOOKS
from benchmarks.tabular.probes import DELETED, RANDOM, SPOILT_SETS, compare_distances

Rows = Sequence[dict[str, Any]]
ALL_BITS, CHANCE = 0.99, 0.52  # share of bits that are right: looked up; as good as guessed
LOOKED_UP = 0.99  # Pearson r
SPOILT = "spoilt_context_"  # and the name of a set
LEVEL = 0.05  # of Wilcoxon's test, one-sided


def section(probes: Path, results: Path) -> Section:
    """Return the section, from the results of `benchmarks.tabular`."""
    rows = [json.loads(path.read_text()) for path in sorted(probes.glob("*-*-*.json"))]
    pictures, bits = read_results("table19", results), read_results("tableA7", results)
    parts = [
        protocol("probes"),
        "### A.7 of the SPIN paper: random labels", _random_labels(rows, bits),
        "### Table 3 of the NPT paper: looking up", _lookups(rows),
        "### Table 2 of the NPT paper: corrupted context", _corruption(rows),
        "### Table 19 of the SPIN paper: images", _images(pictures),
    ]  # fmt: skip
    claims = [
        _by_xabd(rows), _clusters(rows), _looks_up(rows), _spin_looks_up(rows), _reads_rows(rows),
        _deletion(rows),
        _one_table(bits),
        _level_on_images(pictures),
        Claim(
            "SPIN 19", "SPIN is as good as NPT on CIFAR-10", UNTESTED, "CIFAR-10 is not available to us.",
            blame=DATA,
        ),
    ]  # fmt: skip
    return Section("Probes and images (SPIN A.7 to A.9; NPT 4.2, 4.3, B.3)", parts, claims)


def _found(rows: Rows, probe: str, model: str) -> dict[str, float]:
    """Means over seeds; empty without results."""
    mine = [row["found"] for row in rows if (row["probe"], row["model"]) == (probe, model)]
    return {name: float(np.mean([one[name] for one in mine])) for name in mine[0]} if mine else {}


def _random_labels(rows: Rows, bits: Rows) -> str:
    lines = [["accuracy of bits, %", "model", "table", "steps", "ours", "context's labels shuffled", "paper"]]
    lines[0].append(LAST_LOOKS)
    theirs = published(SPIN_PAPER, "A.7")
    lines += [
        [
            "30 bits of keys", _arm(row), f"one of {row['rows']:,} rows",
            f"{row['configuration']['steps']:,}", f"{100 * row['found']['test']:.1f}",
            f"{100 * row['found'][SHUFFLED_BITS]:.1f}", theirs[row["method"], "accuracy"],
            unfinished_text([row]),
        ]
        for row in bits
    ]  # fmt: skip
    lines += [
        [
            row["probe"].removeprefix("random_labels_").replace("_", " ") + " of keys", row["model"],
            f"fresh ones of {row['configuration']['rows']} rows",
            f"{row['configuration']['training']['steps']:,}", f"{100 * row['found'][BITS]:.1f}", "", "", "",
        ]
        for row in rows
        if row["probe"].startswith("random_labels")
    ]  # fmt: skip
    whole = published_table(SPIN_PAPER, "A.7")
    return markdown(lines) if bits else f"{markdown(lines)}\n\n{whole}"


def _one_table(bits: Rows) -> Claim:
    """For each arm, the result with the most steps."""
    says = "On one table of random bits, SPIN and XABD alone make no errors, and XABA alone does"
    longest = {row["method"]: row for row in sorted(bits, key=lambda row: row["configuration"]["steps"])}
    if set(longest) < set(METHODS):
        return not_run("SPIN A.7", says, "`python -m benchmarks.papers tableA7`")
    right = {method: longest[method]["found"]["test"] for method in METHODS}
    holds = [right["SPIN"] >= ALL_BITS, right["XABD alone"] >= ALL_BITS, right["XABA alone"] < ALL_BITS]
    told = ", ".join(
        f"{_arm(longest[method])} {100 * x:.1f} % ({longest[method]['configuration']['steps']:,} steps)"
        for method, x in right.items()
    )
    found = FAILS if not any(holds[:2]) else verdict(holds)
    return Claim("SPIN A.7", says, found, told, unfinished=any(map(is_unfinished, longest.values())))


def _arm(row: dict[str, Any]) -> str:
    """Name of an arm, with its number of inducing points."""
    return f"{row['method']}, h = {row['configuration']['h']}"


BITS = "accuracy of bits"


def _lookups(rows: Rows) -> str:
    theirs = published(NPT_PAPER, "3")
    lines = [["RMSE", *(variant.replace("_", " ") for variant in VARIANTS)]]
    lines += [
        [f"paper: {name}", *(theirs[name, variant] for variant in VARIANTS)]
        for name in ("1-NN", "k-NN", "NPT")
    ]
    for model in ("NPT", "SPIN h=64", "paper's SPIN h=64"):
        found = [_found(rows, f"lookup_{variant}", model) for variant in VARIANTS]
        cells = [f"{one['RMSE']:.2f} (r {one['Pearson r']:.4f})" if one else "–" for one in found]
        lines.append([f"ours: {model}", *cells])
    note = "SPIN: ours, whose points carry labels, and the paper's form. Rows of tests are not in training."
    return f"{markdown(lines)}\n\n{note}"


def _corruption(rows: Rows) -> str:
    theirs = published(NPT_PAPER, "2")
    lines = [["change of RMSE, %", "NPT", "SPIN, paper's form", "NPT paper: NPT"]]
    for name in SPOILT_SETS:
        cells = [
            f"{100 * one[CHANGE]:+.1f}" if (one := _found(rows, f"{SPOILT}{name}", model)) else "–"
            for model in ("NPT", "paper's SPIN")
        ]
        lines.append([name, *cells, theirs[name, "change, %"]])
    return (
        f"{markdown(lines)}\n\nA rise of RMSE is positive here. The NPT paper gives the drop of performance."
    )


CHANGE = "relative change"


def _images(pictures: Rows) -> str:
    theirs = published(SPIN_PAPER, "19")
    lines = [
        ["", "accuracy, %", "labels of the context shuffled", "weights", "peak", "steps", "seeds", LAST_LOOKS]
    ]
    by_label: dict[tuple[str, str, int], list[dict[str, Any]]] = defaultdict(list)
    for row in pictures:
        by_label[row["set"], row["method"], row["configuration"].get("steps", 0)].append(row)
    for (name, method, steps), mine in sorted(by_label.items()):
        line = [f"ours: {name.replace('_', ' ')}, {method}", f"{_accuracy(mine, TRUE):.2f}"]
        if steps:
            peak = np.mean([row["training"]["peak bytes of training"] for row in mine])
            weights = f"{mine[0]['parameters'] / 1e6:.2f}M"
            line += [f"{_accuracy(mine, SHUFFLED):.2f}", weights, f"{peak / 1e6:.0f} MB", f"{steps:,}"]
        else:
            line += ["", "", "", ""]
        lines.append([*line, str(len(mine)), unfinished_text(mine)])
    for name in dict.fromkeys(row for row, _ in theirs):
        of = {column: theirs[name, column] for column in ("accuracy", "parameters", "GB")}
        lines.append([f"paper: {name}", of["accuracy"], "", of["parameters"], f"{of['GB']} GB", "", "", ""])
    return markdown(lines)


def _accuracy(rows: Rows, context: str) -> float:
    """Mean over seeds, in per cent."""
    return 100 * float(np.mean([row["found"][context] for row in rows]))


def _level_on_images(pictures: Rows) -> Claim:
    """Comparison on common sets and numbers of steps."""
    says = "SPIN is as accurate as NPT on MNIST (within a point), with a quarter of the weights"
    holds, told, unfinished = [], [], False
    for name in PATCH:
        for steps in sorted({row["configuration"].get("steps", 0) for row in pictures} - {0}):
            mine, npt = (
                [
                    row
                    for row in pictures
                    if (row["set"], row["method"], row["configuration"].get("steps")) == (name, method, steps)
                ]
                for method in ("SPIN", "NPT")
            )
            if mine and npt:
                unfinished |= any(map(is_unfinished, [*mine, *npt]))
                share = mine[0]["parameters"] / npt[0]["parameters"]
                holds += [_accuracy(npt, TRUE) - _accuracy(mine, TRUE) <= 1, share <= 0.5]
                told.append(
                    f"{name.replace('_', ' ')}, {steps:,} steps: SPIN {_accuracy(mine, TRUE):.2f} %, "
                    f"NPT {_accuracy(npt, TRUE):.2f} %, {share:.2f} of its weights"
                )
    if not holds:
        return not_run(
            "SPIN 19", says, "`python -m benchmarks.papers table19`; MNIST is not available to us."
        )
    because = f"In place of MNIST: {'; '.join(told)}"
    return Claim("SPIN 19", says, verdict(holds), because, blame=DATA, unfinished=unfinished)


def _by_xabd(rows: Rows) -> Claim:
    says = "With XABD all random labels are looked up, without it none"
    told, holds = [], []
    for bits in (6, 10):
        probe = f"random_labels_{bits}_bits"
        spin, blind = (_found(rows, probe, model) for model in ("SPIN", "SPIN without XABD"))
        if spin and blind:
            holds += [spin[BITS] >= ALL_BITS, blind[BITS] <= CHANCE]
            told.append(
                f"keys of {bits} bits: SPIN {100 * spin[BITS]:.1f} %, without XABD {100 * blind[BITS]:.1f} %"
            )
    return Claim(
        "SPIN A.7", says, verdict(holds), f"Fresh tables of 16 rows. {'; '.join(told)}", blame=BUDGET
    )


def _clusters(rows: Rows) -> Claim:
    says = "Two inducing points stand for the two clusters"
    found = _found(rows, "clusters", "SPIN")
    share = found["argmax point is the cluster"]
    untrained = found["argmax point is the cluster, untrained"]
    told = (
        f"{100 * share:.0f} % of queries attend to their cluster's point (untrained {100 * untrained:.0f} %)"
    )
    return Claim("SPIN A.8", says, HOLDS if share > 0.95 else FAILS, told)


def _looks_up(rows: Rows) -> Claim:
    says = "NPT looks up labels of copied rows (r > .99) and does simple arithmetic with them"
    r = {variant: _found(rows, f"lookup_{variant}", "NPT")["Pearson r"] for variant in VARIANTS}
    told = ", ".join(f"{variant.replace('_', ' ')} r {x:.4f}" for variant, x in r.items())
    return Claim("NPT 3", says, verdict([x > LOOKED_UP for x in r.values()]), told)


def _spin_looks_up(rows: Rows) -> Claim:
    says = "SPIN in the paper's form also looks up labels of copied rows (our question)"
    r = {v: _found(rows, f"lookup_{v}", "paper's SPIN h=64").get("Pearson r", 0.0) for v in VARIANTS}
    told = ", ".join(f"{variant.replace('_', ' ')} r {x:.2f}" for variant, x in r.items())
    return Claim(
        "NPT 3", says, verdict([x > LOOKED_UP for x in r.values()]), f"64 points for 64 rows: {told}"
    )


def _reads_rows(rows: Rows) -> Claim:
    says = "NPT predicts worse when the other rows are corrupted"
    found = {name: _found(rows, f"{SPOILT}{name}", "NPT") for name in SPOILT_SETS}
    change = {name: one[CHANGE] for name, one in found.items() if one}
    told = ", ".join(f"{name} {100 * x:+.0f} %" for name, x in change.items())
    return Claim("NPT 2", says, verdict([x > 0.05 for x in change.values()]), f"RMSE: {told}")


def _deletion(rows: Rows) -> Claim:
    """Both tests of the paper, by set. Folds whose training has ended decide; their rows are pooled."""
    says = "The rows that NPT needs are nearer to the query than other rows"
    near, told, unfinished = [], [], False
    for name in SPOILT_SETS:
        fits = [row for row in rows if (row["probe"], row["model"]) == (f"{SPOILT}{name}", "NPT")]
        every = [row for row in fits if "distances" in row]
        fits = [row for row in every if _fit_has_ended(row["configuration"])] or every
        if not fits:
            continue
        found = compare_distances({
            kind: [x for row in fits for x in row["distances"][kind]] for kind in fits[0]["distances"]
        })  # fmt: skip
        near += [found[f"p, kept < {other}"] < LEVEL for other in (DELETED, RANDOM)]
        unfinished |= not any(_fit_has_ended(row["configuration"]) for row in fits)
        told.append(
            f"{name} ({len(fits)} of {len(every)} folds, {found['test rows']} test rows): distance to "
            f"needed rows {found['distance, kept']:.3f}, to deleted rows {found['distance, deleted']:.3f} "
            f"(p = {found['p, kept < deleted']:.2g}), to as many random rows "
            f"{found['distance, random']:.3f} (p = {found['p, kept < random']:.2g})"
        )
    if not near:
        return not_run("NPT B.3", says, "`python -m benchmarks.papers npt2`")
    because = f"Deletion in blocks of a tenth of the rows. {'; '.join(told)}"
    return Claim("NPT B.3", says, verdict(near), because, blame=DATA, unfinished=unfinished)


def _fit_has_ended(fit: dict[str, Any]) -> bool:
    """Return whether the validation loss of a fit was lowest `Recipe.patience` looks before the end."""
    last_looks = Recipe.patience * max(1, fit["steps"] // LOOKS)
    return bool(fit["best_step"] <= fit["steps"] - last_looks)
