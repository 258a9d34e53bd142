"""Section of the page on one network for several windows: Tables 4, 5 and 8 of the SPIN paper."""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import spin
from benchmarks.imputation.tables import markdown
from benchmarks.neural_processes.results import find_folder
from benchmarks.papers.cells import read_results
from benchmarks.papers.claims import (
    FAILS,
    HOLDS,
    PARTLY,
    SPIN_PAPER,
    Claim,
    Section,
    not_run,
    protocol,
    published_number,
    published_table,
    verdict,
)
from benchmarks.papers.many_windows import FREQUENCY, NEVER_SEEN, TRAINED
from benchmarks.papers.training import LAST_LOOKS, is_unfinished, unfinished_text
from benchmarks.papers.window_networks import CIPNP_16, NPT_16
from benchmarks.papers.window_scores import R2, R2_MINOR

Rows = Sequence[dict[str, Any]]
SPIN_RESULTS = Path(spin.__file__).parent / "results"
GROUPS = (TRAINED, NEVER_SEEN)


def section(results: Path) -> Section:
    rows = read_results("table4", results)
    parts = [protocol("many_windows"), _table(rows) if rows else "No network has been trained yet."]
    parts += [published_table(SPIN_PAPER, table) for table in ("4", "5", "8")]
    claims = [_beside_npt(rows), _never_seen(rows), _masking(rows)]
    return Section("One network for several windows (SPIN 4.4, Tables 4, 5 and 8)", parts, claims)


def _mean(row: dict[str, Any], group: str, score: str = R2) -> float:
    """Mean over windows, in points."""
    return 100 * float(np.mean([scores[score] for scores in row["found"][group].values()]))


def _named(row: dict[str, Any]) -> str:
    return f"{row['case']}, {row['untyped sites']} SNPs"


def _masked(row: dict[str, Any]) -> str:
    return "chunk" if row["configuration"]["hidden_labels"] == 1 else "token"


def _table(rows: Rows) -> str:
    lines = [
        ["", "set", "SNPs", "masking", "steps", "seed", *(f"{s}, {g}" for g in GROUPS for s in ("R²", "r²"))]
    ]
    lines[0] += ["R², frequencies", "peak MB", LAST_LOOKS]
    for row in rows:
        scores = [f"{_mean(row, group, score):.2f}" for group in GROUPS for score in (R2, R2_MINOR)]
        lines.append([
            row["method"], row["case"], str(row["untyped sites"]), _masked(row),
            f"{row['configuration']['steps']:,}", str(row["seed"]), *scores, f"{_mean(row, FREQUENCY):.2f}",
            f"{row['training']['peak bytes of training'] / 1e6:.0f}", unfinished_text([row]),
        ])  # fmt: skip
    return (
        f"{markdown(lines)}\n\nMeans over windows. R² is for dosages of ALT, r² for dosages of the "
        "minor allele."
    )


def _pairs(
    rows: Rows, first: tuple[str, str], second: tuple[str, str]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Cells that differ by method and masking alone."""
    found: dict[tuple[Any, ...], dict[tuple[str, str], dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        same = row["case"], row["untyped sites"], row["configuration"]["steps"], row["seed"]
        found[same][row["method"], _masked(row)] = row
    return [(of[first], of[second]) for of in found.values() if first in of and second in of]


def _longest(rows: Rows, method: str) -> list[dict[str, Any]]:
    """Cells with chunk masking and the most steps for each case, window size and seed."""
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["configuration"]["steps"]):
        if (row["method"], _masked(row)) == (method, "chunk"):
            found[row["case"], row["untyped sites"], row["seed"]] = row
    return list(found.values())


def _beside_npt(rows: Rows) -> Claim:
    """Comparison with NPT at equal steps, or else at the most steps of each."""
    says = "One model imputes many windows more accurately than NPT, which runs out of memory"
    pairs = _pairs(rows, (CIPNP_16, "chunk"), (NPT_16, "chunk"))
    pairs += [
        (ours, npt)
        for ours in _longest(rows, CIPNP_16)
        for npt in _longest(rows, NPT_16)
        if _named(ours) == _named(npt) and ours["seed"] == npt["seed"] and (ours, npt) not in pairs
    ]
    if not pairs:
        return not_run("SPIN 4, 8", says, f"`python -m benchmarks.papers table4`. {_meta_trained()}")
    ahead = [_mean(ours, TRAINED) > _mean(npt, TRAINED) for ours, npt in pairs]
    told = "; ".join(
        f"{_named(ours)}: {_mean(ours, TRAINED):.2f} ({_trained(ours)}), NPT {_mean(npt, TRAINED):.2f} "
        f"({_trained(npt)})"
        for ours, npt in pairs
    )
    unfinished = any(is_unfinished(row) for pair in pairs for row in pair)
    told = f"R² on windows that train: {told}"
    return Claim("SPIN 4, 8", says, verdict(ahead), told, unfinished=unfinished)


def _trained(row: dict[str, Any]) -> str:
    steps = row["training"].get("steps", row["configuration"]["steps"])  # older results have no own number
    return f"{steps:,} steps, {steps * row['training']['seconds a step']:.0f} s"


def _never_seen(rows: Rows) -> Claim:
    """Holds if new windows are within two points of trained windows, in part if better than frequencies."""
    says = "The model imputes windows that it was not trained on (our question)"
    mine = _longest(rows, CIPNP_16) + _longest(rows, NPT_16)
    if not mine:
        return not_run("SPIN 4, 8", says, "`python -m benchmarks.papers table4`")
    as_well = [_mean(row, NEVER_SEEN) >= _mean(row, TRAINED) - 2 for row in mine]
    better = [_mean(row, NEVER_SEEN, R2_MINOR) > _mean(row, FREQUENCY, R2_MINOR) for row in mine]
    told = "; ".join(
        f"{row['method']}, {_named(row)}: r² {_mean(row, NEVER_SEEN, R2_MINOR):.2f}, trained windows "
        f"{_mean(row, TRAINED, R2_MINOR):.2f}, frequencies {_mean(row, FREQUENCY, R2_MINOR):.2f}"
        for row in mine
    )
    told += f". {_meta_trained()}"
    found = HOLDS if all(as_well) else PARTLY if all(better) else FAILS
    return Claim("SPIN 4, 8", says, found, told, unfinished=any(map(is_unfinished, mine)))


def _masking(rows: Rows) -> Claim:
    says = "Chunk masking is much more accurate than token masking, with several windows"
    pairs = _pairs(rows, (CIPNP_16, "chunk"), (CIPNP_16, "token"))
    if not pairs:
        r2, folder = _of_spin_benchmark("masking")
        told = ", ".join(f"{row} {x:.3f}" for row, x in r2.items() if "masking" in row)
        how = f"Meta-trained on simulated segments, SPIN that carries labels, r²: {told}"
        return not_run("SPIN 5", says, f"{how} (`benchmarks/spin/results/{folder}`).")
    gained = [_mean(chunk, TRAINED) - _mean(token, TRAINED) for chunk, token in pairs]
    theirs = published_number(SPIN_PAPER, "5", "Chunk", "R2") - published_number(
        SPIN_PAPER, "5", "Token", "R2"
    )
    mean = float(np.mean(gained))
    told = (
        f"Points: {', '.join(f'{x:+.2f}' for x in gained)} "
        f"({', '.join(_trained(chunk) for chunk, _ in pairs)}); paper {theirs:+.2f}"
    )
    found = HOLDS if mean >= theirs / 2 else PARTLY if mean > 0 else FAILS
    unfinished = any(is_unfinished(row) for pair in pairs for row in pair)
    return Claim("SPIN 5", says, found, told, unfinished=unfinished)


def _of_spin_benchmark(name: str) -> tuple[dict[str, float], str]:
    """Result of `benchmarks.spin`: pooled r² over all sites of unseen segments, the mean over seeds; the
    folder.
    """
    folder = find_folder(name, SPIN_RESULTS)
    found: dict[str, list[float]] = defaultdict(list)
    if folder is not None:
        with (folder / "scores.tsv").open() as file:
            for line in csv.DictReader(file, delimiter="\t"):
                found[line["row"]].append(float(line["unseen, all"]))
    return {row: float(np.mean(values)) for row, values in found.items()}, folder.name if folder else name


def _meta_trained() -> str:
    (paper, folder), (ours, _) = _of_spin_benchmark("paper"), _of_spin_benchmark("masking")
    told = [
        f"{row} {paper[row]:.3f}" for row in ("the paper's form", "the panel's frequencies") if row in paper
    ]
    if "chunk masking" in ours:
        told.append(f"SPIN that carries labels {ours['chunk masking']:.3f}")
    return (
        "Meta-trained on simulated segments instead, and asked about unseen ones, r²: "
        f"{', '.join(told)} (`benchmarks/spin/results/{folder}`)."
    )
