"""Section of the page on windows of the genome: Tables 3 and 7 of the SPIN paper, and changes of SPIN-16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.papers import section_settings
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
    published,
    published_number,
    verdict,
)
from benchmarks.papers.genomics import SHUFFLED
from benchmarks.papers.training import LAST_LOOKS, is_unfinished, on_cpu, unfinished_text
from benchmarks.papers.window_baselines import BEAGLE, BEAGLE_NEAR, FREQUENCIES, GBT, GBT_PUBLISHED, KNN, MLP
from benchmarks.papers.window_networks import NPT_16, SET_TF_16, SPIN_16
from benchmarks.papers.window_rows import (
    CLOSE,
    Place,
    Row,
    at_equal_steps,
    best_settings,
    by_method,
    by_settings,
    deciding,
    longest_text,
    of_sets,
    place_of,
    points,
    preferred,
    seeds_text,
    shared_windows,
    steps_of,
)
from benchmarks.papers.window_scores import R2, R2_COMMON, R2_HAPLOTYPES, R2_MINOR, R2_RARE

MOST = 0.5  # of the windows: less is not "in part"
FAR = 1.0  # points
IGNORED = 0.1  # points: a context that makes less difference is not read
NAMES = {GBT_PUBLISHED: "GBT"}  # what the paper calls a method, where it is not our name
CHANGED = ("table5", "table6", "table9", "table10", "table20")


def section(results: Path) -> Section:
    rows = read_results("table3", results)
    more = [row for table in CHANGED for row in read_results(table, results)]
    parts = [protocol("genomics"), _budget(rows + more)]
    if rows:
        parts += ["### Table 3", _table3(rows), "### Table 7: window by window", _table7(rows)]
        parts += ["### Memory and time of a training step", _costs(rows)]
    parts += section_settings.parts(rows, results)
    claims = [_alike(rows), _beside_beagle(rows), _classical(rows), _resources(rows), _reads_context(rows)]
    claims += section_settings.claims(rows, results)
    return Section("Genotype imputation (SPIN paper, 4.3, 4.4, A.3, A.10)", parts, claims)


def _budget(rows: Sequence[Row]) -> str:
    trained = [row for row in rows if "training" in row]
    if not trained:
        return "No network has been trained yet."
    steps = sorted({row["configuration"]["steps"] for row in trained})
    seeds = sorted({row["seed"] for row in trained})
    return (
        f"Networks were trained for {', '.join(f'{n:,}' for n in steps)} steps, with seeds "
        f"{', '.join(map(str, seeds))}, on {len({place_of(row) for row in trained})} of ten windows. "
        "All cells, "
        f"including the other methods, took {sum(row['seconds'] for row in rows) / 60:.0f} CPU minutes."
    )


def _table3(rows: Sequence[Row]) -> str:
    """Means over the windows that SPIN-16 was trained on, by set."""
    theirs = published(SPIN_PAPER, "3")
    places = shared_windows(rows, [SPIN_16])
    cases = sorted({case for case, _ in places})
    lines = [["", "paper: R²", "set", "windows × seeds", *SCORES, LAST_LOOKS]]
    for method, name, mine in by_settings([row for row in rows if place_of(row) in places]):
        for case in cases:
            of_window = defaultdict(list)
            for row in mine:
                if row["case"] == case:
                    of_window[row["window"]].append(row)
            if of_window:
                seeds = "–".join(map(str, sorted({len(of) for of in of_window.values()})))
                means = [
                    np.mean([points(of, score) for of in of_window.values()]) for score in SCORES.values()
                ]
                lines.append([
                    name, theirs.get(("R2", NAMES.get(method, method)), ""), case,
                    f"{', '.join(map(str, sorted(of_window)))} × {seeds}", *(f"{mean:.2f}" for mean in means),
                    unfinished_text(row for of in of_window.values() for row in of),
                ])  # fmt: skip
    note = (
        "R² is the paper's measure: the squared correlation of true and imputed dosages of ALT, over "
        "all people "
        "and SNPs. r² is the same for dosages of the minor allele: over all sites, over those with a "
        "frequency "
        "of up to 1 % in the panel, and over the others. R² of haplotypes compares single haplotypes; "
        "it is low "
        "if the phase of targets and truth differs. Windows: those that SPIN-16 was trained on."
    )
    return f"{markdown(lines)}\n\n{note}"


SCORES = {
    "R²": R2, "r²": R2_MINOR, "r², up to 1 %": R2_RARE, "r², above": R2_COMMON,
    "R² of haplotypes": R2_HAPLOTYPES,
}  # fmt: skip


def _table7(rows: Sequence[Row]) -> str:
    labelled, places = by_settings(rows), sorted({place_of(row) for row in rows})
    lines = [["R²", "positions", *(name for _, name, _ in labelled)]]
    for place in places:
        start, stop = next(row["untyped"] for row in rows if place_of(row) == place)
        of_place = [[row for row in mine if place_of(row) == place] for _, _, mine in labelled]
        cells = [f"{points(mine):.2f}" if mine else "–" for mine in of_place]
        lines.append([f"{place[0]} {place[1]}", f"{start:,}–{stop:,}", *cells])
    theirs = published(SPIN_PAPER, "7")
    windows = dict.fromkeys(row for row, _ in theirs if row.startswith("SNPs") and "epoch" not in row)
    lines += [
        [f"paper: {window}", "", *(theirs.get((window, NAMES.get(m, m)), "") for m, _, _ in labelled)]
        for window in windows
    ]
    return markdown(lines)


def _costs(rows: Sequence[Row]) -> str:
    """Costs relative to NPT's for the same window and seed, where NPT has one."""
    lines = [[
        "", "weights", "paper", "peak MB", "of which weights, gradients, optimiser", "of NPT's peak", "paper",
        "s a step", "of NPT's", "paper",
    ]]  # fmt: skip
    found = by_method(on_cpu(rows))
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
        "Peak: the increase of the process's largest resident set by the first steps. Seconds are CPU "
        "seconds. "
        "The paper's numbers are peak GPU memory and seconds for an epoch, as means over Table 7."
    )
    return f"{markdown(lines)}\n\n{note}"


PEAK, STEP = "peak bytes of training", "seconds a step"
FIXED = "bytes of weights, gradients and optimiser"


def _epoch_ratio(method: str) -> float:
    theirs = published(SPIN_PAPER, "7")
    windows = [row for row, column in theirs if row.endswith("epoch") and column == method]
    return float(np.mean([float(theirs[w, method]) / float(theirs[w, NPT_16]) for w in windows]))


def _ratio_to_npt(rows: Sequence[Row], method: str, name: str) -> float | None:
    found = by_method(on_cpu(rows))
    shared = [place for place in found[method] if place in found[NPT_16]]
    if not shared:
        return None

    def mean(of: str) -> float:
        return float(np.mean([row["training"][name] for place in shared for row in found[of][place]]))

    return mean(method) / mean(NPT_16)


def _times(ratio: float | None) -> str:
    return "–" if ratio is None else f"{ratio:.2f}"


def _alike(rows: Sequence[Row]) -> Claim:
    says = "SPIN-16, NPT-16 and the Set Transformer have similar R² (within .5 points)"
    methods = (SPIN_16, NPT_16, SET_TF_16)
    compared, places = at_equal_steps(rows, methods)
    if not places:
        return not_run("SPIN 3", says, "No window has all three yet.")
    found = by_method(compared)
    mean = {m: [points(found[m][place]) for place in places] for m in methods}
    close = [
        abs(mine - other) <= CLOSE
        for m in methods[1:]
        for mine, other in zip(mean[SPIN_16], mean[m], strict=True)
    ]
    told = "; ".join(
        f"{case} {number}: {', '.join(f'{m} {mean[m][i]:.2f}' for m in methods)}"
        for i, (case, number) in enumerate(places)
    )
    told += f" (equal steps, {seeds_text(compared)})"
    pairs, further = at_equal_steps(rows, (SPIN_16, NPT_16))
    found = by_method(pairs)
    ahead = [points(found[SPIN_16][place]) - points(found[NPT_16][place]) for place in further]
    close += [abs(gap) <= CLOSE for gap, place in zip(ahead, further, strict=True) if place not in places]
    less_npt = f"SPIN-16 less NPT-16, points: {of_sets(ahead, further)}"
    told += f". {less_npt}"
    longer = _longer(rows, compared, methods)
    less_set_tf = [mine - other for mine, other in zip(mean[SPIN_16], mean[SET_TF_16], strict=True)]
    in_short = f"{less_npt}; less the Set Transformer: {of_sets(less_set_tf, places)}"
    told = f"{told}. With more: {longer}" if longer else told
    unfinished = any(map(is_unfinished, [*compared, *pairs]))
    return Claim("SPIN 3", says, verdict(close), told, in_short, unfinished=unfinished)


def _longer(rows: Sequence[Row], compared: Sequence[Row], methods: Sequence[str]) -> str:
    """Results of the same windows with more steps than those compared."""
    steps = {place_of(row): steps_of(row) for row in compared}
    more = [
        row
        for row in best_settings(rows)
        if row["method"] in methods and steps_of(row) > steps.get(place_of(row), steps_of(row))
    ]
    return ", ".join(
        f"{row['method']} {points([row]):.2f} ({row['case']} {row['window']}, {steps_of(row):,} steps)"
        for row in sorted(more, key=lambda row: (place_of(row), methods.index(row["method"]), steps_of(row)))
    )


def _beside_beagle(rows: Sequence[Row]) -> Claim:
    says = "SPIN-16 is as accurate as Beagle, or more accurate"
    mine, decided = deciding(rows, SPIN_16)
    kept = [*mine, *(row for row in preferred(rows) if row["method"] != SPIN_16)]
    places = shared_windows(kept, (SPIN_16, BEAGLE))
    if not places:
        return not_run("SPIN 3", says, "No window has both yet.")
    found = by_method(kept)
    ahead = [points(found[SPIN_16][p]) - points(found[BEAGLE][p]) for p in places]
    rare = [points(found[SPIN_16][p], R2_RARE) - points(found[BEAGLE][p], R2_RARE) for p in places]
    told = (
        f"SPIN-16 less Beagle, points: {of_sets(ahead, places)}, {seeds_text(mine)}; "
        f"r² of SNPs up to 1 %: {of_sets(rare, places)}"
    )
    same = shared_windows(kept, (SPIN_16, BEAGLE_NEAR))
    if same:
        less = [points(found[SPIN_16][p]) - points(found[BEAGLE_NEAR][p]) for p in same]
        told += f"; R² less that of Beagle with the same typed sites: {of_sets(less, same)}"
    level = float(np.mean([gap >= -CLOSE for gap in ahead]))
    found_level = HOLDS if level == 1 else PARTLY if level >= MOST else FAILS
    within = f"Within .5 points on {round(level * len(ahead))} of {len(ahead)} windows"
    in_short = f"{within}; SPIN-16 less Beagle, points: {of_sets(ahead, places)}"
    told = f"{within}. {told}. {_decided_by(rows, places, decided)}"
    return Claim("SPIN 3", says, found_level, told, in_short, unfinished=not decided)


def _decided_by(rows: Sequence[Row], places: Sequence[Place], decided: bool) -> str:
    """Name the windows, and the longest trainings of SPIN-16 there."""
    windows = "Windows whose longest training has ended" if decided else "Longest trainings"
    return f"{windows}: {longest_text([row for row in rows if row['method'] == SPIN_16], places)}"


def _classical(rows: Sequence[Row]) -> Claim:
    says = "Among the classical methods the MLP is best; k-NN and boosting are much less accurate"
    methods = (MLP, KNN, GBT_PUBLISHED, FREQUENCIES)
    places = shared_windows(rows, methods)
    if not places:
        return not_run("SPIN 3", says, "Not all of them have been run.")
    found, told, holds = by_method(rows), [], []
    for case in dict.fromkeys(case for case, _ in places):
        mine = [place for place in places if place[0] == case]
        with_trees = [GBT] if all(place in found[GBT] for place in mine) else []
        mean = {m: float(np.mean([points(found[m][p]) for p in mine])) for m in (*methods, *with_trees)}
        holds += [mean[MLP] >= mean[m] + FAR for m in mean if m != MLP]
        scores = ", ".join(f"{m} {x:.2f}" for m, x in mean.items())
        told.append(f"{case}, mean of {len(mine)} windows: {scores}")
    return Claim("SPIN 3", says, verdict(holds), "; ".join(told))


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


def _reads_context(rows: Sequence[Row]) -> Claim:
    says = "SPIN uses the training set in predictions, through its inducing points"
    mine, decided = deciding(rows, SPIN_16)
    if not mine:
        return not_run("SPIN 3", says, "`python -m benchmarks.papers table3`")
    found = by_method(mine)[SPIN_16]
    places = sorted(found)
    gained = [points(found[p], R2, SHUFFLED) - points(found[p]) for p in places]
    told = f"Labels of the context shuffled at test time, change in points: {of_sets(gained, places)}"
    if min(gained) > -IGNORED:
        told += ": it does not read them, and what it knows of the panel is in its weights"
    holds = FAILS if min(gained) > -IGNORED else PARTLY if min(gained) > -CLOSE else HOLDS
    most = max(abs(gap) for gap in gained)
    in_short = f"Labels of the context shuffled at test time: R² changes by {most:.2f} points at most"
    told += f" ({seeds_text(mine)}). {_decided_by(rows, places, decided)}"
    return Claim("SPIN 3", says, holds, told, in_short, unfinished=not decided)
