"""Cases derived from others: fewer typed sites, smaller panels, single people. Random draws have seeds."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from cyvcf2 import VCF

from benchmarks.imputation.cases import Case, samples


def thinned(case: Case, part: int, seed: int, folder: Path) -> Case:
    """Keep one of `part` typed sites, at random. With equal seeds, thinner arrays are parts of denser ones.

    The sites of the full array are never scored, so all arrays are scored on the same sites.
    """
    places = [(record.CHROM, record.POS) for record in VCF(str(case.target))]
    order = np.random.default_rng(seed).permutation(len(places))
    kept = np.sort(order[: max(len(places) // part, 1)])
    regions = folder / "sites.tsv"
    regions.write_text("".join(f"{places[i][0]}\t{places[i][1]}\n" for i in kept))
    target = folder / "target.phased.bcf"
    subprocess.run(["bcftools", "view", "-T", regions, "-Ob", "-o", target, case.target], check=True)
    return replace(case, name=f"{case.name}-1-of-{part}-typed", target=target)


def small_panel(case: Case, people: int, seed: int, folder: Path) -> Case:
    """Draw a panel of `people` people from the case's panel, with the sites that vary among them.

    Raises:
        SystemExit: the panel has fewer people.
    """
    names = samples(case.panel)
    if people > len(names):
        raise SystemExit(f"{case.name}: the panel has {len(names)} people, {people} were asked for")
    order = np.random.default_rng(seed).permutation(len(names))
    panel = folder / "panel.bcf"
    # in the panel's order: which people were drawn must not show in the order of ties
    _take_people(case.panel, [names[i] for i in np.sort(order[:people])], panel, "--min-ac", "1:minor")
    return replace(case, name=f"{case.name}-{people}-people", panel=panel)


def draw_targets(case: Case, people: int, seed: int) -> list[str]:
    """Draw names of people of the target, in the target's order."""
    names = samples(case.target)
    order = np.random.default_rng(seed).permutation(len(names))
    return [names[i] for i in np.sort(order[:people])]


def only_targets(case: Case, names: Sequence[str], folder: Path) -> Case:
    """Restrict the case to some people of its target and of its truth."""
    target, truth = folder / "target.phased.bcf", folder / "truth.bcf"
    _take_people(case.target, names, target)
    _take_people(case.truth, names, truth)
    label = names[0] if len(names) == 1 else f"{len(names)}-single-people"
    return replace(case, name=f"{case.name}-{label}", target=target, truth=truth)


def _take_people(source: Path, names: Sequence[str], out: Path, *options: str) -> None:
    chosen = out.with_suffix(".samples")
    chosen.write_text("".join(f"{name}\n" for name in names))
    subprocess.run(["bcftools", "view", "-S", chosen, *options, "-Ob", "-o", out, source], check=True)


def merged(files: Sequence[Path], out: Path) -> None:
    """Merge the people of all files. INFO fields are left out: each describes the people of one file."""
    bare = []
    for i, path in enumerate(files):
        one = out.with_name(f"{out.name}.{i}.bcf")
        # indexed first: a header without contig lines (Minimac4's) is completed from the index
        subprocess.run(["bcftools", "index", "-f", "-t", path], check=True)
        subprocess.run(["bcftools", "annotate", "-x", "INFO", "-Ob", "-o", one, path], check=True)
        subprocess.run(["bcftools", "index", "-f", one], check=True)
        bare.append(one)
    if len(bare) == 1:
        bare[0].replace(out)
        return
    subprocess.run(["bcftools", "merge", "-m", "none", "-Ob", "-o", out, *bare], check=True)
