"""Cases whose targets are people of a panel or their simulated kin; relatives stay in the panel."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.imputation.cases import Case
from benchmarks.imputation.cast import (
    UNRELATED,
    Cast,
    Conditions,
    Group,
    Site,
    add_family,
    relations,
    write_files,
)
from spinimpute.training.pedigrees import Person, founder
from spinimpute.vcf.reader import Haplotypes, read_haplotypes


def relate(case: Case, folder: Path, people: int, conditions: Conditions, seed: int) -> None:
    """Write the case's files as `simulated_set.write_set` does.

    A target without a relative is a person who is taken out of the panel. The founders of a target with a
    relative are taken out, too; the relative is added. The array is that of the case's target.

    Raises:
        SystemExit: the panel has too few people.
    """
    panel = read_haplotypes(case.panel)
    contig = panel.sites.chrom
    cM = case.read_map(contig).cM(panel.sites.position)
    cM -= cM[0]
    rng = np.random.default_rng([seed, 5])
    left = rng.permutation(len(panel.samples)).tolist()

    def take() -> Person:
        if not left:
            raise SystemExit(f"{case.name}: {people} targets were asked for, its panel is too small")
        i = left.pop()
        return founder(2 * i, 2 * i + 1)

    cast = Cast(Group(), Group())
    for i, relation in enumerate(relations(people, conditions.relatives, rng)):
        add_family(cast, f"target_{i}", relation, relation, take, float(cM[-1]), rng)
    for i in sorted(left):
        cast.panel.add(panel.samples[i], founder(2 * i, 2 * i + 1), UNRELATED, UNRELATED)
    if not left:
        raise SystemExit(f"{case.name}: {people} targets were asked for, nobody is left in its panel")
    sites = _sites(panel, cM, set(read_haplotypes(case.target).sites.keys()))
    flaws_seed = seed if conditions.flaws else None
    length = int(panel.sites.position[-1]) + 1
    counts = write_files(folder, sites, cast, contig, length, case.name, flaws_seed)
    if case.genetic_map is not None:
        shutil.copyfile(case.genetic_map, folder / "genetic.map")
    description = {"case": case.name, "people": people, "seed": seed} | dataclasses.asdict(conditions)
    (folder / "set.json").write_text(json.dumps(description | counts, indent=1) + "\n")


def _sites(panel: Haplotypes, cM: np.ndarray, typed: set[tuple[int, str, str]]) -> Iterator[Site]:
    for i, key in enumerate(panel.sites.keys()):
        yield Site(*key, float(cM[i]), key in typed, panel.alleles[i].astype(np.int8))
