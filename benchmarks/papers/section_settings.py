"""Tables 5, 6, 9, 10 and 20 of the SPIN paper: effects of masking, parts, panel and sizes on SPIN-16."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from benchmarks.imputation.tables import markdown
from benchmarks.papers.cells import read_results
from benchmarks.papers.claims import (
    BUDGET,
    CLAIM,
    FAILS,
    HOLDS,
    PARTLY,
    SPIN_PAPER,
    Claim,
    not_run,
    published,
    published_number,
    published_table,
    verdict,
)
from benchmarks.papers.genomics import KEPT_APART, SHUFFLED
from benchmarks.papers.training import LAST_LOOKS, is_unfinished, unfinished_text
from benchmarks.papers.window_networks import NPT_16, SET_TF_16, SPIN_16, WITHOUT_XABA, WITHOUT_XABD
from benchmarks.papers.window_rows import (
    CLOSE,
    Place,
    Row,
    at_equal_steps,
    best_settings,
    by_method,
    named,
    place_of,
    points,
    seeds_text,
    steps_of,
)
from benchmarks.papers.window_scores import R2, R2_MINOR

TOKEN = f"{SPIN_16}, token masking"
RUN = "`python -m benchmarks.papers {}`"
Setting = tuple[float, ...]


def parts(rows: Sequence[Row], results: Path) -> list[str]:
    """Return sections from the rows of Table 3."""
    told = []
    if rows:
        told += ["### Table 6, and contexts with shuffled labels"]
        told += [_table6([*rows, *read_results("table6", results)])]
    searched = read_results("table10", results)
    if searched:
        told += ["### Table 10: what was searched", _table10(searched)]
    for table, title in (("9", "fewer panel haplotypes"), ("20", "other numbers of inducing points")):
        told.append(f"### Table {table}: {title}")
        found = SETTINGS[table].by_place(rows, read_results(f"table{table}", results))
        if found:
            told.append(SETTINGS[table].table(found))
        told.append(published_table(SPIN_PAPER, table))
    return told


def claims(rows: Sequence[Row], results: Path) -> list[Claim]:
    """Return claims; rows: rows of Table 3."""
    found = [
        _ablation([*rows, *read_results("table6", results)]),
        _masking(rows, read_results("table5", results)),
    ]
    return found + [
        SETTINGS[table].claim(SETTINGS[table].by_place(rows, read_results(f"table{table}", results)))
        for table in SETTINGS
    ]


def _table6(rows: Sequence[Row]) -> str:
    """Networks without a part, beside the whole network with the same steps."""
    whole, _ = at_equal_steps(rows, (SPIN_16, WITHOUT_XABD, WITHOUT_XABA))
    others = [row for row in best_settings(rows) if row["method"] in (NPT_16, SET_TF_16)]
    found = by_method([*(whole or best_settings(rows)), *others])
    names = {SPIN_16: "SPIN", WITHOUT_XABD: "-XABD", WITHOUT_XABA: "-XABA"}
    theirs = published(SPIN_PAPER, "6")
    lines = [["R²", "paper: GEN", "paper: Boston, RMSE", "windows", "ours", "labels of the context shuffled"]]
    lines[0].append(LAST_LOOKS)
    for method in (SPIN_16, NPT_16, SET_TF_16, WITHOUT_XABD, WITHOUT_XABA):
        places = sorted(found[method])
        if not places:
            continue
        name = names.get(method, "")
        lines.append([
            method, theirs.get((name, "GEN"), ""), theirs.get((name, "BH"), ""),
            ", ".join(f"{case} {number}" for case, number in places),
            ", ".join(f"{points(found[method][place]):.2f}" for place in places),
            ", ".join(f"{points(found[method][place], R2, SHUFFLED):.2f}" for place in places),
            unfinished_text(row for place in places for row in found[method][place]),
        ])  # fmt: skip
    note = (
        "Shuffled: in the test, each haplotype of the panel has the untyped alleles of another haplotype. "
        "Without XABA, latent attributes stay linear maps of a datapoint's attributes. SPIN-16 and its "
        "variants "
        "have equal numbers of steps on a window. Ablations on Boston Housing are in the section on Table 11."
    )
    return f"{markdown(lines)}\n\n{note}"


def _table10(rows: Sequence[Row]) -> str:
    lines = [
        ["window", "network", "dropout", "learning rate", "steps", "best loss", "at step", "R²", "r² minor"]
    ]
    for row in sorted(rows, key=lambda row: (place_of(row), row["method"], row["configuration"]["steps"])):
        looks = row["training"]["looks"]
        best = min(looks, key=lambda look: look["validation loss"])
        setting = row["configuration"]
        lines.append([
            f"{row['case']} {row['window']}", row["method"], f"{setting['dropout']:g}",
            f"{setting['learning_rate']:g}", f"{setting['steps']:,}", f"{best['validation loss']:.4f}",
            f"{best['step']:,}{' (last)' if is_unfinished(row) else ''}",
            f"{points([row], R2, KEPT_APART):.2f}", f"{points([row], R2_MINOR, KEPT_APART):.2f}",
        ])  # fmt: skip
    return f"{markdown(lines)}\n\nScored on held-out people of the panel, never on targets."


def _ablation(rows: Sequence[Row]) -> Claim:
    says = "XABD and XABA are crucial"
    both, places = at_equal_steps(rows, (SPIN_16, WITHOUT_XABD, WITHOUT_XABA))
    if not places:
        return not_run("SPIN 6", says, RUN.format("table6"))
    found = by_method(both)
    lost = {
        m: [points(found[SPIN_16][p]) - points(found[m][p]) for p in places]
        for m in (WITHOUT_XABD, WITHOUT_XABA)
    }
    # the largest value that the paper reports
    least = published_number(SPIN_PAPER, "6", "SPIN", "GEN") - published_number(
        SPIN_PAPER, "6", "-XABD", "GEN"
    )
    told = "; ".join(f"{m}: {', '.join(f'{-x:+.2f}' for x in xs)}" for m, xs in lost.items())
    holds = [x >= least / 2 for xs in lost.values() for x in xs]
    told += f" ({named(places)}, {seeds_text(both)})"
    told = f"Change of R², points: {told}"
    return Claim("SPIN 6", says, verdict(holds), told, unfinished=any(map(is_unfinished, both)))


def _masking(rows: Sequence[Row], token: Sequence[Row]) -> Claim:
    """Masking on single windows; the paper uses several."""
    says = "Chunk masking is much more accurate than token masking, on single windows"
    both, places = at_equal_steps([*rows, *({**row, "method": TOKEN} for row in token)], (SPIN_16, TOKEN))
    if not places:
        return not_run("SPIN 5", says, RUN.format("table5"))
    found = by_method(both)
    gained = [points(found[SPIN_16][p]) - points(found[TOKEN][p]) for p in places]
    theirs = published_number(SPIN_PAPER, "5", "Chunk", "R2") - published_number(
        SPIN_PAPER, "5", "Token", "R2"
    )
    mean = float(np.mean(gained))
    holds = HOLDS if mean >= theirs / 2 else PARTLY if mean > CLOSE else FAILS
    told = f"Chunk less token masking, points: {', '.join(f'{x:+.2f}' for x in gained)} ({named(places)})"
    return Claim("SPIN 5", says, holds, told, unfinished=any(map(is_unfinished, both)))


class _Settings:
    """SPIN-16 with values of a setting, on windows; Table 3 has the common value."""

    def __init__(
        self,
        table: str,
        says: str,
        setting: Callable[[Row], Setting],
        name: str,
        judge: Callable[[Sequence[Mapping[Setting, float]]], str],
        blame: str = CLAIM,
    ) -> None:
        self.table_number, self.says = table, says
        self.setting, self.name, self.judge, self.blame = setting, name, judge, blame

    def by_place(self, rows: Iterable[Row], more: Sequence[Row]) -> dict[Place, dict[Setting, list[Row]]]:
        """Cells of a window with equal steps and dropout; {} without such cells."""
        alike = {(place_of(row), steps_of(row), row["configuration"]["dropout"]) for row in more}
        common = [
            row
            for row in rows
            if row["method"] == SPIN_16
            and (place_of(row), steps_of(row), row["configuration"]["dropout"]) in alike
            and row["seed"] in {other["seed"] for other in more}
        ]
        found: dict[Place, dict[Setting, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in [*more, *common]:
            found[place_of(row)][self.setting(row)].append(row)
        return {place: dict(sorted(of.items())) for place, of in sorted(found.items())}

    def table(self, found: Mapping[Place, Mapping[Setting, Sequence[Row]]]) -> str:
        lines = [["window", self.name, "steps", "dropout", "R²", "r²", "peak MB", "seeds", LAST_LOOKS]]
        for (case, number), of in found.items():
            for setting, rows in of.items():
                peak = np.mean([row["training"]["peak bytes of training"] for row in rows]) / 1e6
                lines.append([
                    f"{case} {number}", _text(setting), f"{steps_of(rows[0]):,}",
                    f"{rows[0]['configuration']['dropout']:g}", f"{points(rows):.2f}",
                    f"{points(rows, R2_MINOR):.2f}", f"{peak:.0f}", str(len(rows)), unfinished_text(rows),
                ])  # fmt: skip
        return markdown(lines)

    def claim(self, found: Mapping[Place, Mapping[Setting, Sequence[Row]]]) -> Claim:
        source = f"SPIN {self.table_number}"
        if not found:
            return not_run(source, self.says, RUN.format(f"table{self.table_number}"))
        means = [{setting: points(rows) for setting, rows in of.items()} for of in found.values()]
        told = "; ".join(
            f"{case} {number}: " + ", ".join(f"{_text(setting)} {mean:.2f}" for setting, mean in of.items())
            for (case, number), of in zip(found, means, strict=True)
        )
        rows = [row for of in found.values() for mine in of.values() for row in mine]
        told = f"R² by {self.name}: {told} ({seeds_text(rows)})"
        unfinished = any(map(is_unfinished, rows))
        return Claim(source, self.says, self.judge(means), told, blame=self.blame, unfinished=unfinished)


def _text(setting: Setting) -> str:
    return "/".join(f"{number:,.0f}" for number in setting)


def _grows(means: Sequence[Mapping[Setting, float]]) -> str:
    """Holds if the gain is larger with the largest panel; in part at most, because NPT was not measured."""
    return PARTLY if any(of[max(of)] > of[min(of)] for of in means) else FAILS


def _alike(means: Sequence[Mapping[Setting, float]]) -> str:
    return verdict([max(of.values()) - min(of.values()) <= 2 * CLOSE for of in means])


SETTINGS = {
    "9": _Settings(
        "9", "Accuracy grows with the panel; NPT runs out of memory",
        lambda row: (row["panel haplotypes"]["training"],), "panel haplotypes that train", _grows,
        BUDGET,
    ),
    "20": _Settings(
        "20", "Accuracy hardly depends on h and f",
        lambda row: (row["configuration"]["h"], row["configuration"]["f"]), "h/f", _alike,
    ),
}  # fmt: skip
