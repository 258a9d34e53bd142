"""Section of the page on tables: SPIN 1, 2, 11 to 15, NPT 4, 5, 8 and 11, FT-Transformer 2, 4 and 6."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.papers import npt_parts
from benchmarks.papers.cells import read_results as read_cells
from benchmarks.papers.claims import (
    BUDGET,
    DATA,
    FAILS,
    FT_PAPER,
    HOLDS,
    NPT_PAPER,
    PARTLY,
    SPIN_PAPER,
    UNTESTED,
    Claim,
    Section,
    at_most_partly,
    mean_text,
    not_run,
    protocol,
    published,
    published_number,
    published_table,
    verdict,
)
from benchmarks.papers.small_tables import SHUFFLED, TRUE, WITHOUT_XABA, WITHOUT_XABD
from benchmarks.papers.training import LAST_LOOKS, is_unfinished, unfinished_text
from benchmarks.tabular.cost import power
from benchmarks.tabular.methods import ROW_BASELINES, TREE_BASELINES
from benchmarks.tabular.report import is_unfinished as fit_is_unfinished
from benchmarks.tabular.report import mean_ranks, read_results, score

Fits = Mapping[str, Mapping[str, Sequence[dict[str, Any]]]]

REGRESSION, CLASSIFICATION = ("boston", "yacht", "concrete", "protein"), ("breast_cancer", "income", "poker")
CANNOT_BE_HAD = ("kick", "forest", "higgs")
# our names, and the papers'
OURS = {
    "SPIN": "SPIN", "NPT": "NPT", "SetTransformer": "Set-TF", "sklearn boosting": "GBT", "lightgbm": "",
    "xgboost": "", "sklearn MLP": "MLP", "k-NN": "KNN",
}  # fmt: skip
PUBLISHED_SETTINGS = {"FTTransformer": "FT-Transformer", "ResNet": "ResNet", "MLP": "MLP"}
OF_FT_PAPER = {
    **PUBLISHED_SETTINGS, **{name: name for name in (*ROW_BASELINES, *TREE_BASELINES)},
    "xgboost": "XGBoost, tuned", "catboost": "CatBoost, tuned",
}  # fmt: skip
FT_SETS = ("california", "adult")
SLACK = 0.01  # ranks, ratios: equal


def section(results: Path, own: Path) -> Section:
    """Return the section; results: those of `benchmarks.tabular`; own: those of this folder."""
    found, in_form = read_results(results / "tables"), read_cells("table11", own)
    parts_of_npt = read_cells("npt4", own)
    memory = json.loads((results / "memory" / "memory.json").read_text())
    costs = json.loads((results / "cost" / "cost.json").read_text())
    poker = [
        row for path in sorted((results / "poker").glob("*-*.json")) for row in json.loads(path.read_text())
    ]
    california = [json.loads(path.read_text()) for path in sorted((results / "california").glob("*-*.json"))]
    parts = [
        protocol("tables"),
        "### Tables 11 and 12 of the SPIN paper, 8 and 11 of NPT's", _scores(found),
        "### Table 11, networks in the paper's form", _in_form(in_form),
        "### Tables 4 and 5 of the NPT paper: NPT without a part", npt_parts.table(parts_of_npt),
        "### Tables 1, 14 and 15 of the SPIN paper: ranks and memory", _ranks(found), _memory(memory),
        "### Table 2 of the SPIN paper: Poker", _poker(poker),
        "### Table 21 of the SPIN paper: how costs grow", _growth(costs),
        "### Tables 2, 4 and 6 of the FT-Transformer paper", _ft_paper(found, california),
        "### As they are in the papers", *(published_table(paper, table) for paper, table in WHOLE),
    ]  # fmt: skip
    claims = [
        _first_rank(found), _beside_npt(found), _beside_npt_in_form(in_form),
        _less_memory(memory), _context_helps(poker),
        _linear(costs),
        Claim(
            "SPIN 12", "Kick, Forest Cover, Higgs", UNTESTED, "The data are not available to us.", blame=DATA
        ),
        _ft_order(california), _importances(california), _deep_beats_trees(found),
        _others_behind(found, california),
        *npt_parts.claims(parts_of_npt),
    ]  # fmt: skip
    return Section("Tables (SPIN 4.1, A.4, A.5; NPT 4.1; FT-Transformer 4)", parts, claims)


OTHER_PROTOCOL = "Not the paper's protocol: equal seconds, and a SPIN that carries labels."
WHOLE = (
    (NPT_PAPER, "4"),
    (NPT_PAPER, "5"),
    (NPT_PAPER, "8"),
    (NPT_PAPER, "11"),
    (FT_PAPER, "2"),
    (FT_PAPER, "4"),
    (FT_PAPER, "6"),
)


def _mean(found: Fits, name: str, method: str) -> float | None:
    rows = found.get(name, {}).get(method, [])
    return float(np.mean([score(row) for row in rows])) if rows else None


def _scores(found: Fits) -> str:
    lines = [["", *(f"{name}, {'RMSE' if name in REGRESSION else '%'}" for name in SETS)]]
    theirs = published(SPIN_PAPER, "11") | published(SPIN_PAPER, "12")
    for method, name in OURS.items():
        scores = [mean_text([score(row) for row in found.get(s, {}).get(method, [])]) for s in SETS]
        lines.append([f"ours: {method}", *scores])
        if name:
            lines.append([f"SPIN paper: {name}", *(theirs.get((s, name), "") for s in SETS)])
    npt = published(NPT_PAPER, "8") | published(NPT_PAPER, "11")
    lines.append(["NPT paper: NPT", *(npt.get(("NPT", s), "") for s in SETS)])
    return f"{markdown(lines)}\n\nMean ± standard deviation over folds (number of folds)."


SETS = (*REGRESSION, *CLASSIFICATION)


def _by_fold(rows: Sequence[dict[str, Any]]) -> dict[tuple[str, str, int], dict[int, dict[str, Any]]]:
    """Results by set, method and steps."""
    found: dict[tuple[str, str, int], dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        found[row["set"], row["method"], row["configuration"]["steps"]][row["fold"]] = row
    return found


def _in_form(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return "Not run yet: `python -m benchmarks.papers table11`."
    of_paper: dict[tuple[str, str], str] = defaultdict(str, published(SPIN_PAPER, "11"))
    table6 = published(SPIN_PAPER, "6")
    of_paper |= {
        ("boston", WITHOUT_XABD): table6["-XABD", "BH"],
        ("boston", WITHOUT_XABA): table6["-XABA", "BH"],
    }
    lines = [
        ["RMSE", "set", "ours", "context's labels shuffled", "paper", "weights", "steps", "folds", LAST_LOOKS]
    ]
    for (name, method, steps), of in sorted(_by_fold(rows).items()):
        first = next(iter(of.values()))
        lines.append([
            method, name, mean_text([row["found"][TRUE] for row in of.values()]),
            mean_text([row["found"][SHUFFLED] for row in of.values()]), of_paper[name, method],
            f"{first['parameters'] / 1e6:.2f}M", f"{steps:,}", ", ".join(str(fold) for fold in sorted(of)),
            unfinished_text(of.values()),
        ])  # fmt: skip
    return markdown(lines)


def _beside_npt_in_form(rows: Sequence[dict[str, Any]]) -> Claim:
    """Comparison on common folds with the most common steps; in part if behind by less than the error."""
    says = "SPIN in the paper's form is as good as NPT on small tables"
    found, level, told, unfinished = _by_fold(rows), {}, {}, False
    for (name, method, steps), of in sorted(found.items()):
        npt = found.get((name, "NPT", steps), {})
        folds = sorted(of.keys() & npt.keys())
        if method != "SPIN" or not folds:
            continue
        mine, theirs = (np.array([x[fold]["found"][TRUE] for fold in folds]) for x in (of, npt))
        error = np.std(mine - theirs, ddof=1) / len(folds) ** 0.5 if len(folds) > 1 else 0.0
        behind = float(np.mean(mine - theirs))
        unfinished |= any(is_unfinished(x[fold]) for fold in folds for x in (of, npt))
        level[name] = HOLDS if behind <= 0 else PARTLY if behind <= error else FAILS
        told[name] = (
            f"{name}, {steps:,} steps: SPIN {mine.mean():.2f}, NPT {theirs.mean():.2f}, difference "
            f"{behind:+.2f} ± {error:.2f} ({len(folds)} folds)"
        )
    if not level:
        return not_run("SPIN 11", says, "`python -m benchmarks.papers table11`")
    verdicts = set(level.values())
    level_of_all = verdicts.pop() if len(verdicts) == 1 else PARTLY
    return Claim("SPIN 11", says, level_of_all, "; ".join(told.values()), unfinished=unfinished)


def _ranks(found: Fits) -> str:
    lines = [
        [
            "mean rank",
            "ours",
            "paper: all ten sets",
            "ours, regression",
            "paper",
            "ours, classification",
            "paper",
        ]
    ]
    columns = []
    for table, sets in (("1", SETS), ("14", REGRESSION), ("15", CLASSIFICATION)):
        ranks = dict(
            zip(RANKED, mean_ranks({s: found[s] for s in sets if s in found}, RANKED)[0], strict=True)
        )
        columns.append((ranks, published(SPIN_PAPER, table)))
    for method in RANKED:
        line = [method]
        for ranks, theirs in columns:
            line += [f"{ranks[method]:.2f}", theirs["rank", OURS[method]]]
        lines.append(line)
    return (
        f"{markdown(lines)}\n\nRanks among these six methods, on the {len(SETS)} sets that are "
        "available to us."
    )


RANKED = tuple(method for method, name in OURS.items() if name)


def _ratios(memory: Sequence[dict[str, Any]], method: str, sets: Sequence[str] = ()) -> list[float]:
    """Ratios to NPT's peak, by set."""
    by = {(row["set"], row["method"]): row["peak_bytes"] for row in memory}
    names = [name for name, of in by if of == "NPT" and (not sets or name in sets)]
    return [by[name, method] / by[name, "NPT"] for name in names if (name, method) in by]


def _memory(memory: Sequence[dict[str, Any]]) -> str:
    lines = [["peak memory, of NPT's", "ours", "paper"]]
    theirs = published(SPIN_PAPER, "1")
    for method, name in (("NPT", "NPT"), ("SetTransformer", "Set-TF"), ("SPIN", "SPIN")):
        lines.append([method, mean_text(_ratios(memory, method)), theirs["memory of NPT's", name]])
    return (
        f"{markdown(lines)}\n\nMean ± standard deviation over sets (number of sets). SPIN is in the "
        "paper's form."
    )


def _poker(poker: Sequence[dict[str, Any]]) -> str:
    lines = [["accuracy, %", "context", "ours", "labels shuffled"]]
    lines += [
        [
            row["model"], f"{row['context']:,}", f"{100 * np.mean(row['accuracy']):.2f}",
            f"{100 * np.mean(row['labels_shuffled']):.2f}",
        ]
        for row in poker
    ]  # fmt: skip
    theirs = [["paper", *CONTEXTS]]
    figures = published(SPIN_PAPER, "2")
    theirs += [
        [of, *(figures.get((f"{of}, accuracy", size), "") for size in CONTEXTS)] for of in ("NPT", "SPIN")
    ]
    return f"{markdown(lines)}\n\n{markdown(theirs)}"


def _growth(costs: list[dict[str, Any]]) -> str:
    theirs = published(SPIN_PAPER, "21")
    lines = [
        ["power of the size", "rows: a step", "rows: predictions", "columns: a step", "paper, a step: rows"]
    ]
    for kind in ("SPIN", "NPT", "SetTransformer"):
        powers = [
            power(costs, kind, axis, measure)
            for axis, measure in (("rows", STEP), ("rows", "predict_seconds"), ("columns", STEP))
        ]
        lines.append(
            [
                kind,
                *("–" if one is None else f"{one:.2f}" for one in powers),
                theirs[OURS[kind], "power of rows"],
            ]
        )
    note = (
        "Exponents are estimated from the three largest sizes: 10,000 to 100,000 rows for SPIN, 1,000 "
        "to 10,000 "
        "for NPT. The paper's exponents are theoretical: linear in rows for SPIN and the Set Transformer, "
        "quadratic for NPT."
    )
    return f"{markdown(lines)}\n\n{note}"


STEP = "step_seconds"


def _linear(costs: list[dict[str, Any]]) -> Claim:
    says = (
        "The time of a SPIN step is linear in rows, that of NPT quadratic; the time of SPIN's "
        "predictions is constant"
    )
    spin, npt, asked = (
        power(costs, kind, "rows", measure)
        for kind, measure in (("SPIN", STEP), ("NPT", STEP), ("SPIN", "predict_seconds"))
    )
    if spin is None or npt is None or asked is None:
        return not_run("SPIN 21", says, "`python -m benchmarks.tabular cost`")
    told = f"Powers: SPIN {spin:.2f}, NPT {npt:.2f}, SPIN's predictions {asked:.2f}"
    return Claim("SPIN 21", says, verdict([spin < 1.2, npt > 1.5, asked < 0.2]), told)


CONTEXTS = ("4096", "10K", "15K", "30K")


def _ft_paper(found: Fits, california: Sequence[dict[str, Any]]) -> str:
    theirs = published(FT_PAPER, "2")
    lines = [["California, published settings", "RMSE", "paper"]]
    for method, name in PUBLISHED_SETTINGS.items():
        errors = [row["rmse"] for row in california if row["model"] == method]
        lines.append([method, mean_text(errors, 3), theirs[name, "california"]])
    ranks = [row["rank_correlation"] for row in california if row["model"] == "FTTransformer"]
    of_paper = published(FT_PAPER, "6")["attention", "california"]
    table6 = markdown([
        ["rank correlation of importances, California", "ours", "paper"],
        ["[CLS] attention against permutation", mean_text(ranks), of_paper],
    ])  # fmt: skip
    return f"{markdown(lines)}\n\n{_at_equal_seconds(found)}\n\n{table6}"


def _at_equal_seconds(found: Fits) -> str:
    """Comparison at equal seconds; the paper's tuned results where it has no default of a method."""
    theirs = published(FT_PAPER, "2") | published(FT_PAPER, "4")
    there = [m for m in OF_FT_PAPER if all(found.get(name, {}).get(m) for name in FT_SETS)]
    ranks = dict(zip(there, mean_ranks({name: found[name] for name in FT_SETS}, there)[0], strict=True))
    lines = [["120 seconds a fit", "California, RMSE", "paper", "Adult, accuracy", "paper", "mean rank"]]
    for method in sorted(there, key=lambda method: ranks[method]):
        name = OF_FT_PAPER[method]
        lines.append([
            method, f"{_score(found, 'california', method):.3f}", theirs[name, "california"],
            f"{_score(found, 'adult', method):.3f}", theirs[name, "adult"], f"{ranks[method]:.1f}",
        ])  # fmt: skip
    note = (
        "One fold and one seed. Boosted trees use the time to search for settings. Networks have their "
        "default "
        "settings, and the loss of FT-Transformer still falls at the end. In the paper, all methods "
        "are tuned."
    )
    return f"{markdown(lines)}\n\n{note}"


def _score(found: Fits, name: str, method: str) -> float:
    """The paper's measure: RMSE in 100,000 dollars, or share of right answers."""
    mean = _mean(found, name, method)
    assert mean is not None
    return mean / (1e5 if name == "california" else 100)


def _others_behind(found: Fits, california: Sequence[dict[str, Any]]) -> Claim:
    """Comparison at equal seconds, which do not finish FT-Transformer; on California with the finished one
    too.
    """
    says = "SNN, NODE, TabNet, GrowNet, DCN2 and AutoInt are less accurate than FT-Transformer"
    every = *ROW_BASELINES, *TREE_BASELINES
    there = [m for m in every if all(found.get(name, {}).get(m) for name in FT_SETS)]
    if not there:
        return not_run("FT-Transformer 2", says, "`python -m benchmarks.tabular tables`")
    ft = [_score(found, name, "FTTransformer") for name in FT_SETS]
    patient = np.mean([row["rmse"] for row in california if row["model"] == "FTTransformer"])
    behind, left = [], [m for m in every if m not in there]
    told = [f"FT-Transformer {ft[0]:.3f} ({patient:.3f} when its loss has stopped falling), {ft[1]:.3f}"]
    for method in there:
        mine = [_score(found, name, method) for name in FT_SETS]
        behind += [mine[0] > ft[0], mine[0] > patient, mine[1] < ft[1]]
        told.append(f"{method} {mine[0]:.3f}, {mine[1]:.3f}")
    return Claim(
        "FT-Transformer 2", says, at_most_partly(verdict(behind)),
        f"RMSE on California, accuracy on Adult, 120 seconds each, one fold: {'; '.join(told)}"
        + (f". Not run: {', '.join(left)}" if left else ""), blame=BUDGET,
    )  # fmt: skip


def _first_rank(found: Fits) -> Claim:
    ranks = dict(zip(RANKED, mean_ranks({s: found[s] for s in SETS if s in found}, RANKED)[0], strict=True))
    first = min(ranks, key=lambda method: ranks[method])
    told = ", ".join(
        f"{method} {rank:.2f}" for method, rank in sorted(ranks.items(), key=lambda pair: pair[1])
    )
    holds = at_most_partly(HOLDS if first == "SPIN" else FAILS)
    told = f"{told}. {OTHER_PROTOCOL}"
    return Claim("SPIN 1", "SPIN has the best mean rank", holds, told, blame=BUDGET)


def _beside_npt(found: Fits) -> Claim:
    better = {}
    for name in SETS:
        spin, npt = _mean(found, name, "SPIN"), _mean(found, name, "NPT")
        if spin is not None and npt is not None:
            better[name] = spin <= npt if name in REGRESSION else spin >= npt
    told = f"As good or better on {sum(better.values())} of {len(better)} sets. {OTHER_PROTOCOL}"
    return Claim(
        "SPIN 11, 12", "SPIN is as good as NPT", at_most_partly(verdict(list(better.values()))), told,
        blame=BUDGET,
    )  # fmt: skip


def _less_memory(memory: Sequence[dict[str, Any]]) -> Claim:
    says = "SPIN needs half of NPT's memory, the Set Transformer more than NPT"
    spin, set_tf = float(np.mean(_ratios(memory, "SPIN"))), float(np.mean(_ratios(memory, "SetTransformer")))
    half = published_number(SPIN_PAPER, "1", "memory of NPT's", "SPIN")
    holds = verdict([spin <= half + SLACK, set_tf > 1])
    return Claim(
        "SPIN 1", says, holds, f"Of NPT's peak: SPIN (paper's form) {spin:.2f}, Set Transformer {set_tf:.2f}"
    )


def _context_helps(poker: Sequence[dict[str, Any]]) -> Claim:
    says = "Poker: accuracy grows with the context, and NPT runs out of memory for large ones"
    spin = [row for row in poker if row["model"] == "SPIN"]
    if not spin:
        return not_run("SPIN 2", says, "`python -m benchmarks.tabular poker`")
    accuracy, shuffled = (
        [100 * float(np.mean(row[name])) for row in spin] for name in ("accuracy", "labels_shuffled")
    )
    told = (
        f"SPIN in the paper's form, context given at test time alone, {spin[0]['context']:,} to "
        f"{spin[-1]['context']:,} hands: {min(accuracy):.2f} to {max(accuracy):.2f} %, with shuffled labels "
        f"{min(shuffled):.2f} to {max(shuffled):.2f} %. The paper's context is the batch of training, too"
    )
    grows = HOLDS if accuracy[-1] - accuracy[0] > 1 else FAILS
    return Claim("SPIN 2", says, grows, told, unfinished=any(map(fit_is_unfinished, spin)))


def _ft_order(california: Sequence[dict[str, Any]]) -> Claim:
    says = "FT-Transformer is more accurate than ResNet, and ResNet than the MLP (California)"
    mean = {
        m: float(np.mean([row["rmse"] for row in california if row["model"] == m]))
        for m in PUBLISHED_SETTINGS
    }
    holds = [mean["FTTransformer"] < mean["ResNet"], mean["ResNet"] < mean["MLP"]]
    return Claim("FT-Transformer 2", says, verdict(holds), ", ".join(f"{m} {x:.3f}" for m, x in mean.items()))


def _importances(california: Sequence[dict[str, Any]]) -> Claim:
    says = "[CLS] attention ranks columns as permutation importance does"
    ranks = [row["rank_correlation"] for row in california if row["model"] == "FTTransformer"]
    least = published_number(FT_PAPER, "6", "attention", "california")
    spread = float(published(FT_PAPER, "6")["attention", "california"].partition(" ± ")[2])
    mean = float(np.mean(ranks))
    holds = HOLDS if mean >= least - 2 * spread else PARTLY if mean > 0.5 else FAILS
    return Claim(
        "FT-Transformer 6", says, holds, f"California: {mean_text(ranks)}, paper {least:.2f} ± {spread:.2f}"
    )


def _deep_beats_trees(found: Fits) -> Claim:
    says = "Boosted trees are more accurate than FT-Transformer on California and Adult"
    better, told = [], []
    for name in FT_SETS:
        ft = _score(found, name, "FTTransformer")
        trees = {m: _score(found, name, m) for m in ("xgboost", "catboost") if found[name].get(m)}
        better += [score < ft if name == "california" else score > ft for score in trees.values()]
        scores = ", ".join(f"{OF_FT_PAPER[m].partition(',')[0]} {score:.3f}" for m, score in trees.items())
        told.append(f"{name}: FT-Transformer {ft:.3f}, {scores}")
    return Claim(
        "FT-Transformer 4", says, verdict(better), f"At equal seconds, single models. {'; '.join(told)}"
    )
