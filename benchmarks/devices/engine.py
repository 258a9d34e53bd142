"""Speed of SPIN's engine on a GPU, and agreement with its results on the CPU, in one process.

FOLDER contains NAME.spin, a prepared panel, NAME.bcf, phased targets, and NAME.truth.bcf, their true
genotypes. The engine is timed from typed alleles in memory to probabilities in memory. The
first run of each size is not timed, because it compiles kernels.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

import spinimpute
from benchmarks.devices.report import Machine
from benchmarks.imputation.tables import markdown, number
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.sites import match_sites
from spinimpute.panels.panel import Panel
from spinimpute.predictors.interface import ImputationJob
from spinimpute.runtime.devices import choose_threads
from spinimpute.vcf.reader import read_haplotypes

RESULTS = Path(__file__).parent / "results"
TOLERANCE = 1e-3  # dosages that differ by more are counted
PIECES = 6  # haplotypes of a target of which another sample is composed
ERROR = 0.002  # share of its alleles that are changed


@dataclass(frozen=True)
class Measured:
    """One line of the report: SPIN on a set. Times are in seconds; nan: not measured."""

    name: str
    inducing_points: int
    samples: int
    seconds: float
    megabases: float
    busy_share: float = float("nan")  # share of the time in which the GPU computes
    gpu_mb: float = float("nan")
    r2: float = float("nan")  # pooled, at the sites that are not typed
    cpu_seconds: float = float("nan")  # with all threads
    cpu_r2: float = float("nan")
    dosages: int = 0  # compared with those of the CPU
    largest: float = float("nan")  # difference
    differing: int = 0  # dosages that differ by more than TOLERANCE


class Case(NamedTuple):
    """A panel and targets."""

    name: str
    panel: Panel
    typed_index: np.ndarray
    typed_TQ: np.ndarray
    truth_index: np.ndarray  # panel sites of the truth, without typed sites
    truth_XQ: np.ndarray

    @classmethod
    def read(cls, folder: Path, name: str) -> Case:
        panel = Panel.open(folder / f"{name}.spin")
        target = read_haplotypes(folder / f"{name}.bcf")
        truth = read_haplotypes(folder / f"{name}.truth.bcf", allow_unphased=True)
        typed, true = (match_sites(panel.sites, some.sites) for some in (target, truth))
        hidden = ~np.isin(true.panel_index, typed.panel_index)
        return cls(
            name,
            panel,
            typed.panel_index,
            np.ascontiguousarray(target.alleles[typed.target_index]),
            true.panel_index[hidden],
            truth.alleles[true.target_index[hidden]],
        )

    def impute(
        self, points: int, device: str, typed_TQ: np.ndarray, *, keep: bool
    ) -> tuple[float, np.ndarray]:
        """Return the engine's seconds, and P(ALT), float32 (U, Q), if it is kept."""
        predictor = spinimpute.load_predictor(name="spin", device=device, options={"inducing_points": points})
        job = ImputationJob(self.panel, self.typed_index, choose_threads(None), typed_TQ.shape[1])
        start = time.perf_counter()
        with predictor.engine(job) as engine:
            windows = engine.windows(Interval(0, self.panel.n_sites))
            kept = [p_UQ if keep else p_UQ[:0] for p_UQ in engine.impute_windows(windows, typed_TQ)]
        return time.perf_counter() - start, np.concatenate(kept)

    def r2(self, p_UQ: np.ndarray) -> float:
        """Return the squared correlation of dosages and true genotypes, over all sites and samples."""
        dosage, true = (x[:, ::2] + x[:, 1::2] for x in (p_UQ[self.truth_index], self.truth_XQ))
        flip_X1 = self.panel.frequency[self.truth_index, None] > 0.5
        dosage, true = (np.where(flip_X1, 2 - x, x) for x in (dosage, true.astype(np.float32)))
        return float(np.corrcoef(dosage.ravel(), true.ravel())[0, 1] ** 2)


def measure(case: Case, points: int, repeat: int, *, on_cpu: bool) -> Measured:
    """Measure the samples of a set."""
    runs = [case.impute(points, "cuda", case.typed_TQ, keep=True) for _ in range(1 + repeat)]
    p_UQ = runs[-1][1]
    done = replace(
        _timed(case, points, case.typed_TQ, [seconds for seconds, _ in runs[1:]]),
        busy_share=busy_share(case, points),
        r2=case.r2(p_UQ),
    )
    if not on_cpu:
        return done
    cpu_seconds, expected_UQ = case.impute(points, "cpu", case.typed_TQ, keep=True)
    difference = np.abs(sum((p_UQ - expected_UQ)[:, side::2] for side in (0, 1)))
    return replace(
        done,
        cpu_seconds=cpu_seconds,
        cpu_r2=case.r2(expected_UQ),
        dosages=difference.size,
        largest=float(difference.max()),
        differing=int((difference > TOLERANCE).sum()),
    )


def measure_many(case: Case, points: int, samples: int, repeat: int) -> Measured:
    """Measure a number of samples, which are composed of the set's haplotypes."""
    typed_TQ = compose(case.typed_TQ, samples, np.random.default_rng(samples))
    runs = [case.impute(points, "cuda", typed_TQ, keep=False)[0] for _ in range(1 + repeat)]
    return _timed(case, points, typed_TQ, runs[1:])


def _timed(case: Case, points: int, typed_TQ: np.ndarray, seconds: list[float]) -> Measured:
    megabases = float(case.panel.position[-1] - case.panel.position[0]) / 1e6
    gpu_mb = torch.cuda.max_memory_allocated() / 2**20
    torch.cuda.reset_peak_memory_stats()
    return Measured(
        case.name, points, typed_TQ.shape[1] // 2, float(np.median(seconds)), megabases, gpu_mb=gpu_mb
    )


def compose(typed_TQ: np.ndarray, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Return haplotypes of samples; each is composed of PIECES haplotypes, with a few changed alleles."""
    sites, n = len(typed_TQ), 2 * samples
    source_PQ = rng.integers(0, typed_TQ.shape[1], (PIECES, n))
    cut_PQ = np.sort(rng.integers(0, sites, (PIECES - 1, n)), axis=0)
    out_TQ = np.empty((sites, n), np.int8)
    for t in range(sites):
        out_TQ[t] = typed_TQ[t, source_PQ[(t >= cut_PQ).sum(0), np.arange(n)]]
    flip_TQ = (rng.random(out_TQ.shape) < ERROR) & (out_TQ >= 0)
    return np.where(flip_TQ, 1 - out_TQ, out_TQ)


def busy_share(case: Case, points: int) -> float:
    """Return the share of the engine's time in which the GPU runs a kernel or copies."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        seconds, _ = case.impute(points, "cuda", case.typed_TQ, keep=False)
        torch.cuda.synchronize()
    events = [e for e in profiler.events() if e.device_type == torch.autograd.DeviceType.CUDA]
    busy, end = 0.0, float("-inf")
    for start, stop in sorted((e.time_range.start, e.time_range.end) for e in events):
        busy += max(0.0, stop - max(start, end))
        end = max(end, stop)
    return busy / 1e6 / seconds


def report(machine: Machine, lines: list[Measured]) -> str:
    """Return the report page."""
    packages = ", ".join(f"{name} {value}" for name, value in machine.versions.items())
    head = [
        "set", "inducing points", "samples", "seconds", "samples a second and megabase", "GPU busy",
        "GPU memory, MB", "r²", "CPU, seconds", "CPU, r²", "largest difference", f"above {TOLERANCE:g}",
    ]  # fmt: skip
    body = [
        [
            one.name, f"{one.inducing_points:,}", f"{one.samples:,}", f"{one.seconds:.2f}",
            f"{one.samples * one.megabases / one.seconds:,.0f}", number(one.busy_share, 2),
            number(one.gpu_mb, 0), number(one.r2, 5), number(one.cpu_seconds, 1), number(one.cpu_r2, 5),
            number(one.largest, 4), f"{one.differing:,} of {one.dosages:,}" if one.dosages else "–",
        ]
        for one in lines
    ]  # fmt: skip
    parts = [
        "# SPIN on a GPU",
        f"GPU: {machine.gpu}. {machine.processor}, {machine.cores} cores. Python "
        f"{machine.python}, {packages}.",
        markdown([head, *body]),
        "The time of the engine does not include reading, writing and loading. The last two columns compare "
        "dosages on the GPU and on the CPU. r² is pooled over all sites that are not typed.",
    ]
    return "\n\n".join(parts) + "\n"


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.devices.engine",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )

    def words(text: str) -> list[str]:
        return text.split(",")

    def numbers(text: str) -> list[int]:
        return [int(part) for part in words(text)]

    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", type=words, required=True, help="NAMEs; --samples uses the first")
    parser.add_argument("--inducing-points", type=numbers, default=[1_024, 256], help="default: 1024,256")
    parser.add_argument("--samples", type=numbers, default=[1_000, 5_000], help="default: 1000,5000")
    parser.add_argument("--repeat", type=int, default=3, help="timed runs; the median counts (default: 3)")
    parser.add_argument("--without-cpu", action="store_true", help="do not compare with the CPU")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--name", default="engine", help="of the result folder, after the date")
    parser.add_argument("--commit", help="of the sources, where they are no repository")
    return parser


def main() -> None:
    arguments = make_parser().parse_args()
    machine = Machine.here(["cuda"], arguments.commit)
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    out = arguments.results / f"{today}-{arguments.name}"
    out.mkdir(parents=True, exist_ok=True)
    lines: list[Measured] = []

    def note(line: Measured) -> None:
        lines.append(line)
        print(line, flush=True)
        content = {"machine": asdict(machine), "lines": [asdict(line) for line in lines]}
        (out / "engine.json").write_text(json.dumps(content, indent=1) + "\n")
        (out / "report.md").write_text(report(machine, lines))

    cases = [Case.read(arguments.folder, name) for name in arguments.sets]
    for samples in arguments.samples:
        note(measure_many(cases[0], arguments.inducing_points[0], samples, arguments.repeat))
    for points in arguments.inducing_points:
        for case in cases:
            note(measure(case, points, arguments.repeat, on_cpu=not arguments.without_cpu))
    print((out / "report.md").read_text())


if __name__ == "__main__":
    main()
