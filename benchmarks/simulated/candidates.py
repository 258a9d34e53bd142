"""Accuracy by the numbers of candidates of haplotype attention, on a case of `benchmarks.imputation`.

usage: python benchmarks/simulated/candidates.py FOLDER [--model FILE] [--grid 6,160,4:24,640,2] [--out FILE]

A triple of numbers is: haplotypes searched at each typed site and side; haplotypes at most used there; and
typed sites around a block at which they are searched. FOLDER is made by `python -m benchmarks.imputation
simulate` or `relate`. Its seed must not occur in any table of results, because settings are chosen here.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import spinimpute
from benchmarks.imputation.cases import Case, find_case
from benchmarks.imputation.scoring import ALL
from spinimpute.hmm.pbwt import CandidateSettings
from spinimpute.predictors.haplotype_attention.predictor import HaplotypePredictor
from spinimpute.predictors.loading import load_predictor

GRID = "6,120,2:12,120,2:12,160,2:24,640,2"


def measure(case: Case, panel: Path, model: Path | None, numbers: str, work: Path) -> list[str]:
    """Return a row of the table: numbers, processor seconds, pooled r2 of all sites and by frequency."""
    base = load_predictor(model)
    assert isinstance(base, HaplotypePredictor)
    candidates = CandidateSettings(*(int(number) for number in numbers.split(",")))
    predictor = HaplotypePredictor(base.weights, base.settings, base.fingerprint, candidates=candidates)
    out = work / "out.bcf"
    started = time.process_time()
    settings = spinimpute.PredictorSettings(model=predictor)
    spinimpute.impute(case.target, out, panel, predictor=settings, force=True)
    seconds = time.process_time() - started
    result = spinimpute.evaluate(case.truth, out, case.panel, case.scored_without, bins=case.bins)
    r2 = {row["bin"]: row["pooled_r2"] for row in result.by_frequency if row["imputer"] == "imputed"}
    rest = [f"{name}:{value:.4f}" for name, value in r2.items() if name != ALL]
    return [numbers, f"{seconds:.1f}", f"{r2[ALL]:.4f}", *rest]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--grid", default=GRID)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    case = find_case(arguments.folder, Path())
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        panel = work / "panel.spin"
        spinimpute.build_panel(case.panel, panel, case.genetic_map).close()
        rows = [measure(case, panel, arguments.model, numbers, work) for numbers in arguments.grid.split(":")]
    text = "".join("\t".join(row) + "\n" for row in rows)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(f"# {case.name}\n{text}")


if __name__ == "__main__":
    main()
