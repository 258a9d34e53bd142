"""Run all imputers on a case: panels are built first, then the imputers take turns."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import spinimpute
from benchmarks.imputation.cases import Case
from benchmarks.imputation.measure import NO_LIMIT, Stage, run
from benchmarks.imputation.nearest import nearest_haplotypes
from benchmarks.imputation.programs import DEFAULT_FORMATS, Imputer

BUILD, IMPUTE = "build panel", "impute"


@dataclass(frozen=True)
class Imputed:
    """The outputs of the imputers by label, with their time and memory."""

    files: dict[str, Path]
    stages: list[Stage]


def build_panel(case: Case, imputer: Imputer, work: Path, limit: float = NO_LIMIT) -> list[Stage]:
    """Compile the panel, unless an imputer of the same program did. Imputation times do not include it."""
    panel = work / imputer.panel_name
    if panel.exists():
        return []
    return [run(imputer.program, BUILD, imputer.build(case, panel), work / "log.txt", limit=limit)]


def target_as_vcf(case: Case, work: Path) -> Path:
    """Return the target in the only format that all programs read."""
    target = work / "target.vcf.gz"
    subprocess.run(["bcftools", "view", "-Oz", "-o", target, case.target], check=True)
    subprocess.run(["bcftools", "index", "-f", "-t", target], check=True)
    return target


def imputed_file(imputer: Imputer, work: Path) -> Path:
    return work / f"{imputer.label}.vcf.gz"


def impute_once(
    case: Case,
    imputer: Imputer,
    panel: Path,
    target: Path,
    work: Path,
    formats: Sequence[str],
    threads: int,
    number: int = 1,
    limit: float = NO_LIMIT,
) -> Stage:
    """Run one imputer with a compiled panel and a target in VCF.gz."""
    command = imputer.impute(case, panel, target, imputed_file(imputer, work), formats, threads)
    return run(imputer.label, IMPUTE, command, work / "log.txt", number, limit)


def impute_case(
    case: Case,
    imputers: Sequence[Imputer],
    work: Path,
    threads: int,
    repeat: int = 1,
    formats: Sequence[str] = DEFAULT_FORMATS,
    panels: Path | None = None,
) -> Imputed:
    """Run the imputers in turns, `repeat` times, so that a slow period of the machine affects all imputers.

    work: an existing folder for the files. panels: folder of compiled panels; `work` if None.
    """
    print(f"-- {case.name}: {case.panel_haplotypes} panel and {case.target_haplotypes} target haplotypes")
    panels = panels or work
    stages = [stage for imputer in imputers for stage in build_panel(case, imputer, panels)]
    target = target_as_vcf(case, work)
    files = {imputer.label: imputed_file(imputer, work) for imputer in imputers}
    for number in range(1, repeat + 1):
        for imputer in imputers:
            panel = panels / imputer.panel_name
            stages.append(impute_once(case, imputer, panel, target, work, formats, threads, number))
    return Imputed(files, stages)


def add_nearest(case: Case, imputed: Imputed, work: Path) -> None:
    """Add the baseline of the nearest haplotypes to the files; it is not timed."""
    out = work / "nearest.bcf"
    with spinimpute.Panel.open(work / "panel.spin") as panel:
        nearest_haplotypes(panel, case.target, out)
    imputed.files["10_nearest_haplotypes"] = out
