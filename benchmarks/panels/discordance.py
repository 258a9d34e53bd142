"""What predictions are worth where a panel's alleles contradict the haplotypes around them.

People are left out of a panel by turns and imputed from the array's sites. For sites by their discordance:
how many, and the slope of the truth on predictions, which `spinimpute.panels.trust.site_trust.trust` is to
be; then r² of predictions alone, and as they are imputed. The function of trust was chosen by this, never by
the targets.
Installs nothing; data as for `benchmarks.imputation`.

Axes: S sites, X people left out.
"""

from __future__ import annotations

import argparse
import datetime
import json
import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np

import spinimpute
from benchmarks.imputation.cases import DATA, REAL, find_case
from benchmarks.imputation.results import commit, processor
from benchmarks.imputation.tables import markdown, write_tsv
from spinimpute.panels.panel import Panel
from spinimpute.predictors.engine import ImputationJob
from spinimpute.predictors.loading import predictor_for
from spinimpute.vcf.reader import read_haplotypes

RESULTS = Path(__file__).parent / "results"
DISCORDANCE = (0.0, 0.01, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 1.3)
FREQUENCIES = (0.01, 0.05, 0.5)
SEED = 11


def measure(name: str, arguments: argparse.Namespace) -> list[list[str]]:
    """Two tables, one below the other, of a case."""
    case = find_case(name, arguments.data)
    typed = set(read_haplotypes(case.target).sites.keys())
    truth = read_haplotypes(case.panel, role="panel", allow_missing=False)
    row_of = {key: row for row, key in enumerate(truth.sites.keys())}
    order = np.random.default_rng(SEED).permutation(len(truth.samples))
    # of all sites and draws: discordance, frequency, and sums over people of products
    seen = []
    for fold in range(arguments.folds):
        out_X = np.sort(order[fold :: arguments.of])
        names = set(np.array(truth.samples)[out_X].tolist())
        with tempfile.TemporaryDirectory() as work:
            stay = [sample for sample in truth.samples if sample not in names]
            path = Path(work) / "panel.spin"
            with spinimpute.build_panel(case.panel, path, case.genetic_map, samples=stay) as panel:
                keys = panel.sites.keys()
                row_S = np.array([row_of[key] for key in keys])
                is_typed_S = np.array([key in typed for key in keys])
                alleles_SQ = truth.alleles[row_S][:, np.repeat(2 * out_X, 2) + np.tile([0, 1], len(out_X))]
                predicted_SX, imputed_SX = _dosages(panel, np.flatnonzero(is_typed_S), alleles_SQ)
                true_SX = alleles_SQ[:, ::2].astype(float) + alleles_SQ[:, 1::2]
                mean_S = 2 * panel.frequency
                frequency_S = np.minimum(panel.frequency, 1 - panel.frequency)
                products = [
                    _products(x - mean_S[:, None], true_SX - mean_S[:, None])
                    for x in (predicted_SX, imputed_SX)
                ]
                kept = ~is_typed_S & (frequency_S > FREQUENCIES[0])
                seen.append(np.stack([panel.discordance, frequency_S, *np.concatenate(products)])[:, kept])
        print(f"{name}: {fold + 1} of {arguments.folds} draws", flush=True)
    return _tables(np.concatenate(seen, axis=1))


def _dosages(panel: Panel, typed_index: np.ndarray, alleles_SQ: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Float32 (S, X): as predicted, and as imputed."""
    typed_TQ = alleles_SQ[typed_index].astype(np.int8)
    predictor, options = predictor_for(panel, None)
    found = []
    with predictor.engine(ImputationJob(panel, typed_index, 1, typed_TQ.shape[1], options)) as engine:
        windows = engine.windows(0, panel.n_sites)
        for results in (engine.predict_windows, engine.impute_windows):
            p_SQ = np.concatenate([p.copy() for p in results(windows, typed_TQ)])
            found.append(p_SQ[:, ::2] + p_SQ[:, 1::2])
    return found[0], found[1]


def _products(x_SX: np.ndarray, y_SX: np.ndarray) -> np.ndarray:
    """Sums over people of x², x y and y², float64 (3, S)."""
    x_SX = x_SX.astype(float)
    return np.stack([(x_SX * x_SX).sum(1), (x_SX * y_SX).sum(1), (y_SX * y_SX).sum(1)])


def _tables(seen: np.ndarray) -> list[list[str]]:
    discordance, frequency, *sums = seen
    rows = [["discordance", "sites", "slope of truth on predictions"]]
    for low, high in pairwise(DISCORDANCE):
        here = (discordance >= low) & (discordance < high) & (frequency > FREQUENCIES[-2])
        if here.any():
            slope = sums[1][here].sum() / sums[0][here].sum()
            rows.append([f"{low:g} to {high:g}", str(int(here.sum())), f"{slope:.3f}"])
    rows.append(["frequency", "r² of predictions, about the panel's frequencies", "as imputed"])
    for low, high in pairwise(FREQUENCIES):
        here = (frequency > low) & (frequency <= high)
        both = [_r2(*(x[here].sum() for x in sums[first : first + 3])) for first in (0, 3)]
        rows.append([f"{low:g} to {high:g}", *(f"{r2:.4f}" for r2 in both)])
    return rows


def _r2(xx: float, xy: float, yy: float) -> float:
    """Pooled r² if the means of both are those of the panel."""
    return xy * xy / (xx * yy)


def main() -> None:
    """Print the tables, and write them beside their configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(REAL))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--folds", type=int, default=5, help="draws of people")
    parser.add_argument("--of", type=int, default=10, help="one person in so many is left out at a time")
    parser.add_argument("--name", default="discordance")
    arguments = parser.parse_args()
    folder = RESULTS / f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d}-{arguments.name}"
    folder.mkdir(parents=True, exist_ok=True)
    report = []
    for name in arguments.cases:
        rows = measure(name, arguments)
        write_tsv(folder / f"{Path(name).name}.tsv", rows)
        cut = next(i for i, row in enumerate(rows) if row[0] == "frequency")
        report += [f"# {Path(name).name}", markdown(rows[:cut]), markdown(rows[cut:])]
    (folder / "report.md").write_text("\n\n".join(report) + "\n")
    configuration = {"cases": arguments.cases, "folds": arguments.folds, "of": arguments.of, "seed": SEED}
    configuration |= {"commit": commit(), "processor": processor()}
    (folder / "configuration.json").write_text(json.dumps(configuration, indent=2) + "\n")
    print("\n\n".join(report))


if __name__ == "__main__":
    main()
