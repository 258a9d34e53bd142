"""Wrong phase of rare alleles in panels: how frequent is it, and are the moved alleles the wrong ones?

Simulated panels with the errors of real panels are compared with the same panels without errors. By number of
carriers, the tables show how many alleles are on the wrong haplotype, the estimate of this number, how many
alleles are moved, and how many of these were wrong. In real panels the truth is unknown: only the estimated
and moved alleles are counted. Installs nothing; data as for `benchmarks.imputation`.

Axes: X sites, N panel haplotypes.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from pathlib import Path

import numpy as np

import spinimpute
from benchmarks.imputation.cases import DATA, REAL, Case, find_case
from benchmarks.imputation.cast import TEXTBOOK, Conditions
from benchmarks.imputation.results import commit, processor
from benchmarks.imputation.scale import simulated_sets
from benchmarks.imputation.simulated_set import History, Sizes
from benchmarks.imputation.tables import markdown, write_tsv
from spinimpute.panels.trust.rare_phase import COMMON, MAX_CARRIERS, find_moves

RESULTS = Path(__file__).parent / "results"
HEAD = ["panel", "carriers", "alleles", "wrong", "estimated", "moved", "of these wrong"]


def main() -> None:
    """Write a folder of results."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--cache", type=Path, required=True, help="folder where simulated data are kept")
    parser.add_argument("--panel", type=int, nargs="+", default=[5_000, 20_000], help="panel haplotypes")
    parser.add_argument("--length", type=int, default=500_000, help="bp of the simulated region")
    parser.add_argument("--seed", type=int, default=1, help="of the simulated history")
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--name", default="rare-phase")
    arguments = parser.parse_args()
    rows = []
    for n in arguments.panel:
        sizes, flawed = Sizes(n, 40, 60), Conditions(True, 0.0)
        people = max(sizes.people(flawed), sizes.people(TEXTBOOK))
        history = History(people, arguments.length, arguments.length / 1e6, arguments.seed)
        clean, spoiled = (
            simulated_sets(history, [sizes], arguments.cache, these)[sizes] for these in (TEXTBOOK, flawed)
        )
        rows += _rows(f"simulated, {n:,} haplotypes, with flaws", spoiled, clean)
        rows += _rows(f"simulated, {n:,} haplotypes, without", clean, clean)
    for name in REAL:
        rows += _rows(name, find_case(name, arguments.data))
    out = RESULTS / f"{datetime.date.today().isoformat()}-{arguments.name}"
    out.mkdir(parents=True, exist_ok=True)
    write_tsv(out / "table.tsv", [HEAD, *rows])
    (out / "report.md").write_text(f"# {out.name}\n\n{markdown([HEAD, *rows])}\n")
    chosen = {key: getattr(arguments, key) for key in ("panel", "length", "seed")}
    made = chosen | {"commit": commit(), "processor": processor()}
    (out / "configuration.json").write_text(json.dumps(made, indent=1) + "\n")
    print((out / "report.md").read_text())


def _rows(label: str, case: Case, truth: Case | None = None) -> list[list[str]]:
    """A row for alleles of each number of carriers."""
    with tempfile.TemporaryDirectory() as work:

        def build(one: Case, name: str) -> spinimpute.Panel:
            return spinimpute.build_panel(one.panel, Path(work) / name, one.genetic_map, keep_phase=True)

        with build(case, "panel.spin") as panel:
            moves = find_moves(panel)
            count_X = np.minimum(panel.allele_count, panel.n_haplotypes - panel.allele_count.astype(int))
            rare_X = (count_X >= 2) & (count_X < COMMON * panel.n_haplotypes)
            wrong_M, wrong_by_carriers = None, np.zeros(MAX_CARRIERS[-1] + 1, int)
            if truth is not None:
                with build(truth, "truth.spin") as true_panel:
                    row_of = {key: row for row, key in enumerate(true_panel.sites.keys())}
                    keys = panel.sites.keys()
                    row_X = np.array([row_of[key] for key in keys])
                    true_XN = true_panel.alleles(0, true_panel.n_sites)[row_X]
                wrong_XN = _wrong(panel.alleles(0, panel.n_sites), true_XN, panel.allele_count)
                wrong_M = wrong_XN[moves.site_M, moves.from_M]
                for carriers in range(2, len(wrong_by_carriers)):
                    wrong_by_carriers[carriers] = wrong_XN[rare_X & (count_X == carriers)].sum()
    rows, least = [], 2
    for most in MAX_CARRIERS:
        in_class_X = rare_X & (count_X >= least) & (count_X <= most)
        name = f"{least}-{most}" if least < most else str(most)
        if in_class_X.any():
            alleles = int(count_X[in_class_X].sum())
            moved_M = in_class_X[moves.site_M]
            wrong, right = "–", "–"
            if wrong_M is not None:
                wrong = f"{wrong_by_carriers[least : most + 1].sum() / alleles:.2%}"
                right = f"{wrong_M[moved_M].mean():.1%}" if moved_M.any() else "–"
            share = moves.wrong_share.get(name)
            estimated = "–" if share is None else f"{share:.2%}"
            rows.append([label, name, str(alleles), wrong, estimated, str(moved_M.sum()), right])
        least = most + 1
    return rows


def _wrong(alleles_XN: np.ndarray, true_XN: np.ndarray, count_X: np.ndarray) -> np.ndarray:
    """Minor alleles that the truth has on the other haplotype of their carrier, bool (X, N)."""
    n = alleles_XN.shape[1]
    minor_XN = alleles_XN == (count_X <= n // 2)[:, None]
    sibling_N = np.arange(n) ^ 1
    differ_XN = alleles_XN != true_XN
    return minor_XN & differ_XN & differ_XN[:, sibling_N] & ~minor_XN[:, sibling_N]


if __name__ == "__main__":
    main()
