"""`two-panels`: a panel is cut into two with different people and sites; how much do both together improve?

Targets are people taken out of the case's panel; the rest of the panel is cut. Each part lacks the sites
whose rarer allele nobody in the part carries, and with an option also sites that a filter might remove. The
uncut panel has the true alleles of all its people at the sites of either part.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case, samples
from benchmarks.imputation.options import session
from benchmarks.imputation.programs import Ours
from benchmarks.imputation.results import models_used, write_configuration
from benchmarks.imputation.scoring import Accuracy, score
from benchmarks.imputation.study import impute_case
from benchmarks.imputation.tables import MEASURES, bins, markdown, number

FIRST, SECOND, BOTH, WHOLE = "first", "second", "both", "uncut panel"
LEVEL = 0.002  # a gain below this is noise, and no share of it is told


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this command."""
    parser.add_argument("--people", type=int, default=60, help="targets (default: 60)")
    text = "percent of the people in the first panel, or a population or superpopulation that is the first"
    parser.add_argument("--cut", action="append", help=f"{text} (default: 50, 10); repeatable")
    text = "drop from each panel a site with fewer copies of its minor allele (default: 1)"
    parser.add_argument("--least-copies", type=int, default=1, help=text)
    text = "percent of the sites to drop from each panel besides, at random (default: 0)"
    parser.add_argument("--lost", type=float, default=0, help=text)


def two_panels(arguments: argparse.Namespace) -> None:
    """Analyse all cases and cuts; the results go to one folder."""
    with session(arguments) as run:
        out = run.result_folder(run.name or "two-panels")
        sections, stages, models = [f"# {out.name}"], [], {}
        for name in arguments.cases:
            for cut in arguments.cut or ["50", "10"]:
                full = run.case(name)
                work = run.work_folder(f"{full.name}-{cut}")
                case, parts = cut_panel(full, work, cut, arguments, run.seed)
                compiled = [str(_compiled(part, case)) for part in parts]
                imputers = [
                    Ours(FIRST, ("--panel", compiled[0])),
                    Ours(SECOND, ("--panel", compiled[1])),
                    Ours(BOTH, ("--panel", compiled[0], "--panel", compiled[1])),
                    Ours(WHOLE.replace(" ", "_")),
                ]
                imputed = impute_case(case, imputers, work, run.threads, run.repeat)
                rows = score(case, run.scorer, imputed.files, out / f"{full.name}-{cut}.tsv")
                stages += imputed.stages
                models |= models_used(imputed.files)
                sections += _told(case, parts, cut, rows)
                print("\n\n".join(sections[-3:]))
        report = "\n\n".join(sections) + "\n"
        (out / "report.md").write_text(report)
        write_configuration(out, run, stages, {"models": models})


def cut_panel(
    case: Case, folder: Path, cut: str, arguments: argparse.Namespace, seed: int
) -> tuple[Case, list[Path]]:
    """Return the case with people of its panel as targets, and the two parts of the rest.

    Raises:
        SystemExit: the population has no people.
    """
    names = samples(case.panel)
    rng = np.random.default_rng([seed, 11])
    drawn = [names[i] for i in rng.permutation(len(names))]
    targets, rest = drawn[: arguments.people], drawn[arguments.people :]
    first = _first_part(case, rest, cut)
    if not 0 < len(first) < len(rest):
        raise SystemExit(f"{case.name}: cut {cut} leaves a panel without people")
    panel, truth, target = (folder / f"{name}.bcf" for name in ("panel", "truth", "target.phased"))
    typed = _positions([case.target], folder / "typed.tsv")
    _subset(case.panel, target, targets, "-T", str(typed))
    parts = [folder / "first.bcf", folder / "second.bcf"]
    for path, people in zip(parts, (first, [name for name in rest if name not in set(first)]), strict=True):
        dropped = folder / f"{path.stem}.dropped.tsv"
        _drop(case.panel, dropped, arguments.lost / 100, rng, typed)
        least = f"{arguments.least_copies}:minor"
        _subset(case.panel, path, people, "--min-ac", least, "-T", f"^{dropped}")
    either = str(_positions(parts, folder / "either.tsv"))
    _subset(case.panel, panel, rest, "--min-ac", "1:minor", "-T", either)
    _subset(case.panel, truth, targets, "-T", either)
    changed = Case(f"{case.name}-{cut}", panel, target, truth, case.genetic_map, target, case.people)
    return changed, parts


def _first_part(case: Case, people: Sequence[str], cut: str) -> list[str]:
    if cut.isdecimal():
        return list(people[: len(people) * int(cut) // 100])
    populations = case.populations()
    return [name for name in people if cut in populations[name]]


def _subset(source: Path, out: Path, people: Sequence[str], *options: str) -> None:
    chosen = out.with_suffix(".samples")
    chosen.write_text("".join(f"{name}\n" for name in people))
    subset = ["bcftools", "view", "-S", chosen, "-Ou", source]
    with subprocess.Popen(subset, stdout=subprocess.PIPE) as people_only:
        # in a second step: filters see the counts of the people that are left
        subprocess.run(["bcftools", "view", *options, "-Ob", "-o", out], stdin=people_only.stdout, check=True)


def _positions(paths: Sequence[Path], out: Path) -> Path:
    found = {(record.CHROM, record.POS) for path in paths for record in VCF(str(path))}
    out.write_text("".join(f"{chrom}\t{position}\n" for chrom, position in sorted(found)))
    return out


def _drop(source: Path, out: Path, share: float, rng: np.random.Generator, kept: Path) -> None:
    """Write positions to drop; typed ones stay, and one that is nowhere makes no file empty."""
    typed = set(kept.read_text().splitlines())
    found = [f"{record.CHROM}\t{record.POS}" for record in VCF(str(source))]
    lost = [line for line, u in zip(found, rng.random(len(found)), strict=True) if u < share]
    nowhere = f"{found[0].split()[0]}\t1"
    out.write_text("".join(f"{line}\n" for line in [nowhere, *lost] if line not in typed))


def _compiled(part: Path, case: Case) -> Path:
    out = part.with_suffix(".spin")
    command = Ours().build(Case("", part, part, part, case.genetic_map, part), out)
    subprocess.run([str(word) for word in command], check=True, stderr=subprocess.DEVNULL)
    return out


def _told(case: Case, parts: Sequence[Path], cut: str, rows: Sequence[Accuracy]) -> list[str]:
    """A heading, and a table for each measure."""
    keys = [{(record.POS, record.REF, record.ALT[0]) for record in VCF(str(part))} for part in parts]
    sizes = " and ".join(
        f"{2 * len(samples(part)):,} haplotypes with {len(found):,} sites"
        for part, found in zip(parts, keys, strict=True)
    )
    made = [f"## {case.name}\n\nCut {cut}: {sizes}, {len(keys[0] & keys[1]):,} of them in both."]
    for measure, title in MEASURES.items():
        value = {(row.imputer, row.bin): getattr(row, measure) for row in rows}
        table = [[title, *bins(rows)]]
        for label in (FIRST, SECOND, BOTH, WHOLE):
            key = label.replace(" ", "_")
            table.append([label, *(number(value[key, b]) for b in bins(rows))])
        table.append(["share of the gain", *(_share(value, b) for b in bins(rows))])
        made.append(markdown(table))
    return made


def _share(value: dict[tuple[str, str], float], one: str) -> str:
    """How much of what the uncut panel gains over the better part both together gain."""
    better = max(value[FIRST, one], value[SECOND, one])
    whole = value[WHOLE.replace(" ", "_"), one] - better
    return f"{(value[BOTH, one] - better) / whole:.0%}" if whole > LEVEL else "–"
