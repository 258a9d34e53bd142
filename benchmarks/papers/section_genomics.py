"""The page's part on windows of the genome: Tables 3 to 10 and 20 of the SPIN paper."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.imputation.cases import REAL
from benchmarks.imputation.tables import markdown
from benchmarks.papers.cells import read_results
from benchmarks.papers.claims import (
    FAILS,
    HOLDS,
    PARTLY,
    SPIN_PAPER,
    Claim,
    Section,
    mean_text,
    not_run,
    protocol,
    published,
    published_number,
    published_table,
    verdict,
)
from benchmarks.papers.genomics import KEPT_APART, METHODS, SHUFFLED, TRUE
from benchmarks.papers.window_baselines import BEAGLE, FREQUENCIES, GBT, GBT_PUBLISHED, KNN, MLP
from benchmarks.papers.window_networks import NPT_16, SET_TF_16, SPIN_16, WITHOUT_XABA, WITHOUT_XABD
from benchmarks.papers.window_scores import R2, R2_COMMON, R2_HAPLOTYPES, R2_MINOR, R2_RARE
from benchmarks.papers.windows import Cut

Row = dict[str, Any]
CLOSE = 0.5  # points: what the paper calls significant
IGNORED = 0.1  # points: a context that makes less difference is not read
NAMES = {GBT_PUBLISHED: "GBT"}  # what the paper calls a method, where it is not our name


def section(results: Path) -> Section:
    rows = read_results("table3", results)
    more = read_results("table6", results)
    parts = [protocol("genomics"), _budget(rows + more)]
    if rows:
        parts += ["### Table 3", _table3(rows), "### Table 7: window by window", _table7(rows)]
        parts += ["### Memory and time of a training step", _costs(rows)]
        parts += ["### Table 6, and contexts with shuffled labels", _table6(rows, more)]
    searched = read_results("table10", results)
    if searched:
        parts += ["### Table 10: what was searched", _table10(searched)]
    parts += ["### Tables 9 and 20, as they are in the paper"]
    parts += [published_table(SPIN_PAPER, table) for table in ("9", "20")]
    return Section(
        "Genotype imputation (SPIN paper, 4.3, 4.4, A.3, A.10)", parts, _claims(rows, more, results)
    )


def _budget(rows: Sequence[Row]) -> str:
    trained = [row for row in rows if "training" in row]
    if not trained:
        return "No network has been trained yet."
    steps = sorted({row["configuration"]["steps"] for row in trained})
    seeds = sorted({row["seed"] for row in trained})
    return (
        f"Budget so far: {', '.join(f'{n:,}' for n in steps)} steps a network, seeds "
        f"{', '.join(map(str, seeds))}, {len({_place(row) for row in trained})} of ten windows; "
        f"{sum(row['seconds'] for row in rows) / 60:.0f} minutes of the processor in all, baselines included."
    )


def _place(row: Row) -> tuple[str, int]:
    return row["case"], row["window"]


def _by_method(rows: Sequence[Row]) -> dict[str, dict[tuple[str, int], list[Row]]]:
    found: dict[str, dict[tuple[str, int], list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["method"]][_place(row)].append(row)
    return found


def _steps(row: Row) -> int:
    """0 for what is not trained in steps."""
    steps: int = row["configuration"].get("steps", 0)
    return steps


def _by_steps(rows: Sequence[Row]) -> list[tuple[str, str, list[Row]]]:
    """Method, its name with steps and dropout of training, and its rows; in the order of METHODS."""
    found: dict[tuple[int, int, float], list[Row]] = defaultdict(list)
    for row in rows:
        dropout = row["configuration"].get("dropout", 0.0)
        found[METHODS.index(row["method"]), _steps(row), dropout].append(row)
    return [
        (METHODS[i], METHODS[i] + (f", {steps:,} steps, dropout {dropout:g}" if steps else ""), of)
        for (i, steps, dropout), of in sorted(found.items(), key=lambda pair: pair[0])
    ]


def _equal_steps(rows: Sequence[Row], methods: Sequence[str]) -> tuple[list[Row], list[tuple[str, int]]]:
    """Of the networks those with the most steps that all these methods have on some window; the windows."""
    for steps in sorted({_steps(row) for row in rows} - {0}, reverse=True):
        chosen = [row for row in rows if _steps(row) in (0, steps)]
        places = shared_windows(chosen, methods)
        if places:
            return chosen, places
    return [], []


def _longest(rows: Sequence[Row]) -> list[Row]:
    """On every window the rows of a method with the most steps."""
    most: dict[tuple[str, tuple[str, int]], int] = defaultdict(int)
    for row in rows:
        key = row["method"], _place(row)
        most[key] = max(most[key], _steps(row))
    return [row for row in rows if _steps(row) == most[row["method"], _place(row)]]


def _points(rows: Sequence[Row], score: str = R2, context: str = TRUE) -> float:
    """Mean over seeds, in points."""
    return 100 * float(np.mean([row["found"][context][score] for row in rows]))


def shared_windows(rows: Sequence[Row], methods: Sequence[str]) -> list[tuple[str, int]]:
    """Windows that all of the methods have."""
    found = _by_method(rows)
    return sorted(set.intersection(*(set(found[method]) for method in methods)))


def _table3(rows: Sequence[Row]) -> str:
    """Means over the windows that SPIN-16 was trained on, set by set."""
    theirs = published(SPIN_PAPER, "3")
    places = shared_windows(rows, [SPIN_16])
    cases = sorted({case for case, _ in places})
    lines = [["", "paper: R²", "set", "windows × seeds", *SCORES]]
    for method, name, mine in _by_steps([row for row in rows if _place(row) in places]):
        for case in cases:
            of_window = defaultdict(list)
            for row in mine:
                if row["case"] == case:
                    of_window[row["window"]].append(row)
            if of_window:
                seeds = "–".join(map(str, sorted({len(of) for of in of_window.values()})))
                means = [
                    np.mean([_points(of, score) for of in of_window.values()]) for score in SCORES.values()
                ]
                lines.append([
                    name, theirs.get(("R2", NAMES.get(method, method)), ""), case,
                    f"{', '.join(map(str, sorted(of_window)))} × {seeds}", *(f"{mean:.2f}" for mean in means),
                ])  # fmt: skip
    note = (
        "R²: the paper's, all people and SNPs together. r²: the same of dosages turned to the minor allele, "
        "over all sites, over those with a frequency of up to 1 % in the panel, and above. Of haplotypes: "
        "the paper's R² of single haplotypes, which means little where phase differs. Windows: those that "
        "SPIN-16 was trained on."
    )
    return f"{markdown(lines)}\n\n{note}"


SCORES = {
    "R²": R2, "r²": R2_MINOR, "r², up to 1 %": R2_RARE, "r², above": R2_COMMON,
    "R² of haplotypes": R2_HAPLOTYPES,
}  # fmt: skip


def _table7(rows: Sequence[Row]) -> str:
    labelled, places = _by_steps(rows), sorted({_place(row) for row in rows})
    lines = [["R²", "positions", *(name for _, name, _ in labelled)]]
    for place in places:
        start, stop = next(row["untyped"] for row in rows if _place(row) == place)
        of_place = [[row for row in mine if _place(row) == place] for _, _, mine in labelled]
        cells = [f"{_points(mine):.2f}" if mine else "–" for mine in of_place]
        lines.append([f"{place[0]} {place[1]}", f"{start:,}–{stop:,}", *cells])
    theirs = published(SPIN_PAPER, "7")
    windows = dict.fromkeys(row for row, _ in theirs if row.startswith("SNPs") and "epoch" not in row)
    lines += [
        [f"paper: {window}", "", *(theirs.get((window, NAMES.get(m, m)), "") for m, _, _ in labelled)]
        for window in windows
    ]
    return markdown(lines)


def _costs(rows: Sequence[Row]) -> str:
    """Relative to NPT's of the same window and seed, where there is one."""
    lines = [[
        "", "weights", "paper", "peak MB", "of which weights, gradients, optimiser", "of NPT's peak", "paper",
        "s a step", "of NPT's", "paper",
    ]]  # fmt: skip
    found = _by_method(rows)
    for method in (SPIN_16, NPT_16, SET_TF_16):
        mine = [row for of in found[method].values() for row in of]
        if not mine:
            continue
        peak, seconds = _ratio_to_npt(rows, method, PEAK), _ratio_to_npt(rows, method, STEP)
        theirs = published_number(SPIN_PAPER, "7", "GB", method) / published_number(
            SPIN_PAPER, "7", "GB", NPT_16
        )
        lines.append([
            method, f"{mine[0]['parameters'] / 1e6:.2f}M", published(SPIN_PAPER, "3")["parameters", method],
            f"{np.mean([row['training'][PEAK] for row in mine]) / 1e6:.0f}",
            f"{mine[0]['training'][FIXED] / 1e6:.0f}", _times(peak), f"{theirs:.2f}",
            f"{np.mean([row['training'][STEP] for row in mine]):.2f}", _times(seconds),
            f"{_epoch_ratio(method):.2f}",
        ])  # fmt: skip
    note = (
        "Peak: by how much the first steps outgrow what the process had before (the largest resident set); "
        "seconds of the processor. The paper's are peak GPU memory and seconds an epoch, mean of Table 7."
    )
    return f"{markdown(lines)}\n\n{note}"


PEAK, STEP = "peak bytes of training", "seconds a step"
FIXED = "bytes of weights, gradients and optimiser"


def _epoch_ratio(method: str) -> float:
    theirs = published(SPIN_PAPER, "7")
    windows = [row for row, column in theirs if row.endswith("epoch") and column == method]
    return float(np.mean([float(theirs[w, method]) / float(theirs[w, NPT_16]) for w in windows]))


def _ratio_to_npt(rows: Sequence[Row], method: str, name: str) -> float | None:
    found = _by_method(rows)
    shared = [place for place in found[method] if place in found[NPT_16]]
    if not shared:
        return None

    def mean(of: str) -> float:
        return float(np.mean([row["training"][name] for place in shared for row in found[of][place]]))

    return mean(method) / mean(NPT_16)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _table6(rows: Sequence[Row], more: Sequence[Row]) -> str:
    steps = {_steps(row) for row in more} or {_steps(row) for row in rows}
    found = _by_method([row for row in [*rows, *more] if _steps(row) in steps])
    names = {SPIN_16: "SPIN", WITHOUT_XABD: "-XABD", WITHOUT_XABA: "-XABA"}
    theirs = published(SPIN_PAPER, "6")
    lines = [["R²", "paper: GEN", "paper: Boston, RMSE", "windows", "ours", "labels of the context shuffled"]]
    for method in (SPIN_16, NPT_16, SET_TF_16, WITHOUT_XABD, WITHOUT_XABA):
        places = sorted(found[method])
        if not places:
            continue
        name = names.get(method, "")
        lines.append([
            method, theirs.get((name, "GEN"), ""), theirs.get((name, "BH"), ""),
            ", ".join(f"{case} {number}" for case, number in places),
            ", ".join(f"{_points(found[method][place]):.2f}" for place in places),
            ", ".join(f"{_points(found[method][place], R2, SHUFFLED):.2f}" for place in places),
        ])  # fmt: skip
    note = (
        "Shuffled: at test time each haplotype of the panel shows the untyped alleles of another. Without "
        "XABA latent attributes stay linear maps of a datapoint's attributes. Networks of equal steps. "
        "Ablations on Boston Housing: not run yet."
    )
    return f"{markdown(lines)}\n\n{note}"


def _table10(rows: Sequence[Row]) -> str:
    lines = [["window", "dropout", "learning rate", "steps", "best loss", "at step", "R²", "r² minor"]]
    for row in sorted(rows, key=lambda row: (_place(row), row["configuration"]["learning_rate"])):
        looks = row["training"]["looks"]
        best = min(looks, key=lambda look: look["validation loss"])
        setting = row["configuration"]
        lines.append([
            f"{row['case']} {row['window']}", f"{setting['dropout']:g}", f"{setting['learning_rate']:g}",
            f"{setting['steps']:,}", f"{best['validation loss']:.4f}", f"{best['step']:,}",
            f"{_points([row], R2, KEPT_APART):.2f}", f"{_points([row], R2_MINOR, KEPT_APART):.2f}",
        ])  # fmt: skip
    return (
        f"{markdown(lines)}\n\nSPIN-16, scored on people of the panel that are kept apart; no target is read."
    )


def _claims(rows: Sequence[Row], more: Sequence[Row], results: Path) -> list[Claim]:
    run = "`python -m benchmarks.papers {}`"
    claims = [
        _alike(rows), _beside_beagle(rows), _classical(rows), _resources(rows), _ablation(rows, more),
        _reads_context(rows),
    ]  # fmt: skip
    claims += [
        _masking(rows, read_results("table5", results)),
    ]
    for table, says in (
        ("9", "Accuracy grows with the panel; NPT runs out of memory"),
        ("20", "Accuracy hardly depends on h and f"),
    ):
        found = read_results(f"table{table}", results)
        claims.append(
            _by_setting(found, table, says)
            if found
            else not_run(f"SPIN {table}", says, run.format(f"table{table}"))
        )
    return claims


def _masking(rows: Sequence[Row], token: Sequence[Row]) -> Claim:
    """On single windows, which the paper does with several."""
    says = "Chunk masking is far ahead of token masking, on single windows"
    named = [{**row, "method": TOKEN} for row in token]
    both, places = _equal_steps([*rows, *named], (SPIN_16, TOKEN))
    if not places:
        return not_run("SPIN 5", says, "`python -m benchmarks.papers table5`")
    found = _by_method(both)
    gained = [_points(found[SPIN_16][p]) - _points(found[TOKEN][p]) for p in places]
    theirs = published_number(SPIN_PAPER, "5", "Chunk", "R2") - published_number(
        SPIN_PAPER, "5", "Token", "R2"
    )
    mean = float(np.mean(gained))
    holds = HOLDS if mean >= theirs / 2 else PARTLY if mean > CLOSE else FAILS
    told = f"Chunk less token masking, points: {', '.join(f'{x:+.2f}' for x in gained)} ({_named(places)})"
    return Claim("SPIN 5", says, holds, told)


TOKEN = f"{SPIN_16}, token masking"


def _alike(rows: Sequence[Row]) -> Claim:
    says = "SPIN-16, NPT-16 and the Set Transformer have similar R² (within .5 points)"
    methods = (SPIN_16, NPT_16, SET_TF_16)
    rows, places = _equal_steps(rows, methods)
    if not places:
        return not_run("SPIN 3", says, "No window has all three yet.")
    found = _by_method(rows)
    mean = {m: [_points(found[m][place]) for place in places] for m in methods}
    close = [bool(abs(np.mean(mean[SPIN_16]) - np.mean(mean[m])) <= CLOSE) for m in methods[1:]]
    told = "; ".join(f"{m} {', '.join(f'{x:.2f}' for x in mean[m])}" for m in methods)
    return Claim("SPIN 3", says, verdict(close), f"{told} ({_named(places)})")


def _beside_beagle(rows: Sequence[Row]) -> Claim:
    says = "SPIN-16 is level with Beagle or ahead"
    places = shared_windows(rows, (SPIN_16, BEAGLE))
    if not places:
        return not_run("SPIN 3", says, "No window has both yet.")
    found = _by_method(_longest(rows))
    behind = [_points(found[BEAGLE][p]) - _points(found[SPIN_16][p]) for p in places]
    rare = [_points(found[SPIN_16][p], R2_RARE) - _points(found[BEAGLE][p], R2_RARE) for p in places]
    told = (
        f"SPIN-16 less Beagle, points: {', '.join(f'{-gap:+.2f}' for gap in behind)} ({_named(places)}); "
        f"r² of SNPs up to 1 %: {', '.join(f'{gap:+.2f}' for gap in rare)}"
    )
    return Claim("SPIN 3", says, verdict([gap <= CLOSE for gap in behind]), told)


def _classical(rows: Sequence[Row]) -> Claim:
    says = "Of the classical methods the MLP is best; k-NN and boosting are far behind"
    methods = (MLP, KNN, GBT_PUBLISHED, GBT, FREQUENCIES)
    places = shared_windows(rows, methods)
    if not places:
        return not_run("SPIN 3", says, "Not all of them have been run.")
    found = _by_method(rows)
    mean = {m: float(np.mean([_points(found[m][place]) for place in places])) for m in methods}
    holds = [mean[MLP] >= mean[m] for m in methods[1:]]
    told = ", ".join(f"{m} {x:.2f}" for m, x in mean.items())
    return Claim("SPIN 3", says, verdict(holds), f"{told} (mean of {_named(places)})")


def _resources(rows: Sequence[Row]) -> Claim:
    says = "SPIN-16 needs less memory than NPT-16, the Set Transformer more; half as many weights"
    of_spin, set_tf = (_ratio_to_npt(rows, method, PEAK) for method in (SPIN_16, SET_TF_16))
    if of_spin is None or set_tf is None:
        return not_run("SPIN 3, 7", says, "NPT-16 has not been run on a window of both.")
    step = _ratio_to_npt(rows, SPIN_16, STEP)
    told = (
        f"Of NPT's peak: SPIN {of_spin:.2f}, Set Transformer {set_tf:.2f}; of its time a step: {_times(step)}"
    )
    return Claim("SPIN 3, 7", says, verdict([of_spin < 1, set_tf > 1]), told)


def _ablation(rows: Sequence[Row], more: Sequence[Row]) -> Claim:
    says = "XABD and XABA are crucial"
    both, places = _equal_steps([*rows, *more], (SPIN_16, WITHOUT_XABD, WITHOUT_XABA))
    if not places:
        return not_run("SPIN 6", says, "`python -m benchmarks.papers table6`")
    found = _by_method(both)
    lost = {
        m: [_points(found[SPIN_16][p]) - _points(found[m][p]) for p in places]
        for m in (WITHOUT_XABD, WITHOUT_XABA)
    }
    # as much as the paper reports at the most
    least = published_number(SPIN_PAPER, "6", "SPIN", "GEN") - published_number(
        SPIN_PAPER, "6", "-XABD", "GEN"
    )
    told = "; ".join(f"{m}: {', '.join(f'{-x:+.2f}' for x in xs)}" for m, xs in lost.items())
    holds = [float(np.mean(xs)) >= least / 2 for xs in lost.values()]
    return Claim("SPIN 6", says, verdict(holds), f"Change of R², points: {told} ({_named(places)})")


def _reads_context(rows: Sequence[Row]) -> Claim:
    says = "SPIN predicts from the training set, by its inducing points"
    places = shared_windows(rows, [SPIN_16])
    if not places:
        return not_run("SPIN 3", says, "`python -m benchmarks.papers table3`")
    found = _by_method(_longest(rows))
    lost = [_points(found[SPIN_16][p]) - _points(found[SPIN_16][p], R2, SHUFFLED) for p in places]
    told = (
        f"Labels of the context shuffled at test time cost {', '.join(f'{abs(x):.2f}' for x in lost)} points"
    )
    if max(lost) < IGNORED:
        told += ": it does not read them, and what it knows of the panel is in its weights"
    holds = FAILS if max(lost) < IGNORED else PARTLY if max(lost) < CLOSE else HOLDS
    return Claim("SPIN 3", says, holds, f"{told} ({_named(places)})")


def _by_setting(rows: Sequence[Row], table: str, says: str) -> Claim:
    """Cells whose only difference is one setting."""
    by_setting: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if table == "9":
            name = f"{row['panel haplotypes']['training']} haplotypes"
        else:
            name = f"h {row['configuration']['h']}, f {row['configuration']['f']}"
        by_setting[name].append(_points([row]))
    means = [float(np.mean(values)) for values in by_setting.values()]
    told = ", ".join(f"{name}: {mean_text(values)}" for name, values in by_setting.items())
    holds = means == sorted(means) if table == "9" else float(np.std(means)) <= CLOSE
    return Claim(f"SPIN {table}", says, HOLDS if holds else FAILS, f"R²: {told}")


def _named(places: Sequence[tuple[str, int]]) -> str:
    of_all = f"{len(places)} of {Cut.windows * len(REAL)} windows"
    return f"{', '.join(f'{case} {number}' for case, number in places)}: {of_all}"
