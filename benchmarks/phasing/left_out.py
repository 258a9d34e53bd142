"""Switch errors of people who are left out of a panel; their phase in the panel is taken as the truth.

The settings of phasing were chosen with this command, never with the targets. `--set` changes a constant of
`spinimpute.phasing.phase` or `spinimpute.hmm.parameters` to measure its effect. Installs nothing; data as for
`benchmarks.imputation`.
"""

from __future__ import annotations

import argparse
import ast
import datetime
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from benchmarks.imputation.cases import DATA, REAL, Case, find_case
from benchmarks.imputation.results import commit, processor
from benchmarks.imputation.tables import markdown
from spinimpute.hmm import parameters
from spinimpute.phasing import phase as phasing
from spinimpute.pipeline.maps.build import build_panel
from spinimpute.vcf.reader import read_haplotypes

RESULTS = Path(__file__).parent / "results"
MISSING = 0.01  # of the calls
PEOPLE = {"chr20_eur": 100, "chr22_1kg": 400}
SETTINGS = ("CORE", "FLANK", "PHASING_MISMATCH", "FACTORS", "DOUBTFUL", "VOTES", "MAX_OTHER_HAPLOTYPES")


@dataclass(frozen=True)
class LeftOut:
    """Typed sites of the remaining panel, in the form that `phasing.phase` needs, and calls of the others."""

    alleles_TN: np.ndarray
    cM: np.ndarray
    position: np.ndarray
    trust: np.ndarray
    truth_TX2: np.ndarray
    calls_TQ: np.ndarray
    unphased_TX: np.ndarray

    @property
    def n_haplotypes(self) -> int:
        return self.alleles_TN.shape[1]

    @property
    def frequency(self) -> np.ndarray:
        return self.alleles_TN.mean(axis=1)

    def packed_rows(self, index: np.ndarray) -> np.ndarray:
        return np.packbits(self.alleles_TN[index], axis=1)


def leave_out(name: str, data: Path, people: int, seed: int) -> LeftOut:
    """Return the panel of a case at its typed sites, without `people` people drawn at random."""
    case = find_case(name, data)
    panel = read_haplotypes(case.panel, role="panel", allow_missing=False)
    row_of: dict[tuple[int, str, str], int] = {}  # the first of duplicates, as in a panel that is built
    for row, key in enumerate(panel.sites.keys()):
        row_of.setdefault(key, row)
    keys = sorted(row_of.keys() & set(read_haplotypes(case.target).sites.keys()))
    rows = np.array([row_of[key] for key in keys])
    rng = np.random.default_rng(seed)
    out = np.zeros(len(panel.samples), bool)
    out[rng.permutation(len(out))[:people]] = True
    typed_TN = panel.alleles[rows]
    truth_TX2 = typed_TN[:, np.repeat(out, 2)].reshape(len(rows), people, 2)
    missing_TX = rng.random(truth_TX2.shape[:2]) < MISSING
    calls_TX2 = np.where(missing_TX[:, :, None], -1, np.sort(truth_TX2, axis=2))
    position = panel.sites.position[rows]
    return LeftOut(
        np.ascontiguousarray(typed_TN[:, np.repeat(~out, 2)]).astype(np.uint8),
        case.read_map(panel.sites.chrom).cM(position),
        position,
        _trust(case, np.array(panel.samples)[~out].tolist(), keys),
        truth_TX2,
        calls_TX2.reshape(len(rows), -1).astype(np.int8),
        calls_TX2[:, :, 0] != calls_TX2[:, :, 1],
    )


def _trust(case: Case, stayed: list[str], keys: list[tuple[int, str, str]]) -> np.ndarray:
    """The trust of some sites in a panel that is built of those who stay."""
    with (
        tempfile.TemporaryDirectory() as work,
        build_panel(case.panel, Path(work) / "stayed.spin", case.genetic_map, samples=stayed) as panel,
    ):
        site_of = {key: site for site, key in enumerate(panel.sites.keys())}
        return panel.trust[[site_of[key] for key in keys]]


def switch_error(phased_TX2: np.ndarray, truth_TX2: np.ndarray, open_TX: np.ndarray) -> tuple[int, int]:
    """Return the number of switch errors, and of all pairs of neighbouring heterozygotes."""
    errors = pairs = 0
    for x in range(open_TX.shape[1]):
        same = (phased_TX2[:, x, 0] == truth_TX2[:, x, 0])[open_TX[:, x]]
        errors, pairs = errors + int((same[1:] != same[:-1]).sum()), pairs + max(0, len(same) - 1)
    return errors, pairs


def measure(name: str, arguments: argparse.Namespace) -> list[str]:
    """Return a row of the table: means over the seeds."""
    errors, seconds = [], 0.0
    for seed in arguments.seeds:
        left = leave_out(name, arguments.data, arguments.people or PEOPLE.get(name, 50), seed)
        ploidy = np.full(left.truth_TX2.shape[1], 2)
        start = time.perf_counter()
        phased_TQ = phasing.phase_haplotypes(
            left,  # type: ignore[arg-type]  # all that it asks for
            np.arange(len(left.position)),
            left.calls_TQ,
            left.unphased_TX,
            ploidy,
            arguments.threads,
        )
        seconds += time.perf_counter() - start
        wrong, pairs = switch_error(phased_TQ.reshape(left.truth_TX2.shape), left.truth_TX2, left.unphased_TX)
        errors.append(wrong / pairs)
        print(f"{name}, seed {seed}: {wrong} of {pairs}, {errors[-1]:.5f}", flush=True)
    return [name, f"{np.mean(errors):.5f}", ", ".join(f"{e:.5f}" for e in errors), f"{seconds:.1f}"]


def _module_of(setting: str) -> ModuleType:
    return parameters if hasattr(parameters, setting) else phasing


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.phasing.left_out", description=__doc__)
    parser.add_argument("cases", nargs="*", default=list(REAL))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--people", type=int, help=f"left out (default: {PEOPLE})")
    parser.add_argument("--seeds", type=int, nargs="+", default=[5, 6])
    parser.add_argument("--threads", type=int, default=2)
    text = f"NAME=VALUE, NAME of {', '.join(SETTINGS)}; repeatable"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)
    parser.add_argument("--name", help="write the table to results/DATE-NAME")
    arguments = parser.parse_args()
    for setting in arguments.set:
        name, _, value = setting.partition("=")
        if name not in SETTINGS:
            raise SystemExit(f"--set {setting}: {text}")
        setattr(_module_of(name), name, ast.literal_eval(value))
    rows = [["panel", "switch errors", "by seed", "seconds"]]
    rows += [measure(name, arguments) for name in arguments.cases]
    table = markdown(rows)
    print(table)
    if arguments.name:
        today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
        folder = RESULTS / f"{today}-{arguments.name}"
        folder.mkdir(parents=True, exist_ok=True)
        used = {name: getattr(_module_of(name), name) for name in SETTINGS}
        configuration = {
            "date": today, "commit": commit(), "processor": processor(),
            "threads": arguments.threads, "seeds": arguments.seeds, "settings": used,
        }  # fmt: skip
        (folder / "report.md").write_text(f"{table}\n")
        (folder / "configuration.json").write_text(json.dumps(configuration, indent=1) + "\n")


if __name__ == "__main__":
    main()
