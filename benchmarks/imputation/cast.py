"""The people of a simulated case (panel, targets, and their relatives), and the case's files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.imputation.flaws import flawed_calls, flawed_panel
from benchmarks.imputation.phased_bcf import PhasedBcfWriter
from spinimpute.training.pedigrees import KINDS, Person, family

UNRELATED = "unrelated"


class Site(NamedTuple):
    """A site with the alleles of all founders' haplotypes, int8; typed: whether the array has the site."""

    position: int
    ref: str
    alt: str
    cM: float
    typed: bool
    alleles_F: np.ndarray


@dataclass
class Group:
    """Panel or targets: names, haplotypes, and the population and relation of each person."""

    names: list[str] = field(default_factory=list)
    people: list[Person] = field(default_factory=list)
    rows: list[tuple[str, str]] = field(default_factory=list)

    def add(self, name: str, person: Person, population: str, relation: str) -> None:
        """Append a person."""
        self.names.append(name)
        self.people.append(person)
        self.rows.append((population, relation))

    def table(self) -> str:
        """Return the rows of samples.tsv."""
        return "".join(f"{name}\t{a}\t{b}\n" for name, (a, b) in zip(self.names, self.rows, strict=True))


@dataclass(frozen=True)
class Conditions:
    """Deviations from ideal data.

    flaws: whether panel and targets have the errors of `flaws`. relatives: share of targets with a parent,
    child, sib or cousin in the panel.
    """

    flaws: bool = False
    relatives: float = 0.0


TEXTBOOK = Conditions()


@dataclass(frozen=True)
class Cast:
    """Panel and targets."""

    panel: Group
    targets: Group


def relations(n_targets: int, share: float, rng: np.random.Generator) -> list[str]:
    """Draw the relation of each target to a relative in the panel, or UNRELATED, in equal parts."""
    n_related = round(n_targets * share)
    kinds = [KINDS[i % len(KINDS)] for i in range(n_related)] + [UNRELATED] * (n_targets - n_related)
    return [kinds[i] for i in rng.permutation(n_targets)]


def add_family(
    cast: Cast,
    name: str,
    population: str,
    relation: str,
    founder: Callable[[], Person],
    length_cM: float,
    rng: np.random.Generator,
) -> None:
    """Add a target, and its relative in the panel if it has one; `founder` returns new unrelated people."""
    if relation == UNRELATED:
        target = founder()
    else:
        target, relative = family(relation, iter(founder, None), length_cM, rng)
        cast.panel.add(f"{relation}_of_{name}", relative, population, relation)
    cast.targets.add(name, target, population, relation)


class _Columns:
    """The founders' haplotypes that some people have at a place that moves on."""

    def __init__(self, people: Sequence[Person]) -> None:
        haplotypes = [one for person in people for one in person]
        self.now = np.array([one.founder_I[0] for one in haplotypes])
        self._changes = sorted(
            (
                (cM, column, founder)
                for column, one in enumerate(haplotypes)
                if len(one.start_I) > 1
                for cM, founder in zip(one.start_I[1:].tolist(), one.founder_I[1:].tolist(), strict=True)
            ),
            reverse=True,
        )

    def move_to(self, cM: float) -> np.ndarray:
        while self._changes and self._changes[-1][0] <= cM:
            _, column, founder = self._changes.pop()
            self.now[column] = founder
        return self.now


def write_files(
    folder: Path,
    sites: Iterable[Site],
    cast: Cast,
    contig: str,
    length: int,
    source: str,
    flaws_seed: int | None,
) -> dict[str, int]:
    """Write panel.bcf, truth.bcf, target.phased.bcf with indexes, and samples.tsv. Return numbers of sites.

    Sites are written one by one, because panels may be larger than memory. Sites that do not vary in the
    panel are left out, as in real panels. flaws_seed: seed of the flaws; None for no flaws.
    """
    folder.mkdir(parents=True, exist_ok=True)
    rng = None if flaws_seed is None else np.random.default_rng([flaws_seed, 7])
    panel, target = _Columns(cast.panel.people), _Columns(cast.targets.people)
    groups = {"panel.bcf": cast.panel, "truth.bcf": cast.targets, "target.phased.bcf": cast.targets}
    with ExitStack() as stack:
        writers = [
            stack.enter_context(PhasedBcfWriter(folder / file, contig, length, group.names, source))
            for file, group in groups.items()
        ]
        for site in sites:
            panel_N = site.alleles_F[panel.move_to(site.cM)]
            target_Q = site.alleles_F[target.move_to(site.cM)]
            typed_Q = target_Q
            if rng is not None:
                panel_N, typed_Q = flawed_panel(panel_N, rng), flawed_calls(target_Q, rng)
            if panel_N.min() == panel_N.max():
                continue
            for writer, its in zip(writers, (panel_N, target_Q, typed_Q), strict=True):
                if site.typed or writer is not writers[-1]:
                    writer.write(site.position, site.ref, site.alt, its)
    for writer in writers:
        subprocess.run(["bcftools", "index", "-f", writer.path], check=True)
    rows = cast.panel.table() + cast.targets.table()
    (folder / "samples.tsv").write_text("sample\tpopulation\tsuperpopulation\n" + rows)
    return dict(zip(("panel_sites", "truth_sites", "target_sites"), (w.sites for w in writers), strict=True))
