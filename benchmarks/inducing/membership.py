"""`membership`: can an attacker infer who was in the panel from which a file was built?

The file is built from a random half of a panel's people. The attacker has the file and a person's full
haplotypes in the region, and must decide whether the person was in the half. The attacker also has data of
half of the people who were left out, and builds a file from them in the same way. The other people who were
left out are tested together with members.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import spinimpute
from benchmarks.imputation.cases import Case, find_case
from benchmarks.imputation.tables import markdown, write_tsv
from benchmarks.inducing.attacks import (
    Features,
    against,
    carrier_ranks,
    count_features,
    dosage_features,
    file_features,
    imputed,
    table_of,
)
from benchmarks.inducing.decisions import Outcome, Trial, best_feature, learned
from benchmarks.inducing.report import result_folder, write_configuration
from spinimpute.predictors.loading import load_predictor

ALL_SITES = "all sites"


@dataclass(frozen=True)
class Half:
    """A random half of a panel and the people who are tested on it.

    alleles_XQ: alleles of the tested people, uint8; member: bool (P,).
    """

    panel: spinimpute.Panel
    reference: spinimpute.Panel
    alleles_XQ: np.ndarray
    member: np.ndarray

    def some(self, people: int) -> Half:
        """Return the first `people` members and the first `people` non-members."""
        chosen = np.zeros(len(self.member), dtype=bool)
        for inside in (True, False):
            chosen[np.flatnonzero(self.member == inside)[:people]] = True
        return Half(self.panel, self.reference, self.alleles_XQ[:, chosen.repeat(2)], self.member[chosen])


def membership(arguments: argparse.Namespace) -> None:
    """Run all attacks. Halves are drawn with the seeds 1, 2, ...; files are built with the library."""
    case = find_case(arguments.case, arguments.data)
    out = result_folder(arguments.results, f"membership-{case.name}")
    found = Findings(arguments.copies)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        with spinimpute.build_panel(case.panel, work / "panel.spin", case.genetic_map) as whole:
            for seed in range(1, arguments.seeds + 1):
                half = draw(whole, case, seed, arguments.people, work)
                about_panel(half, found)
                about_files(half, case, arguments.points, arguments.threads, work, found)
                if seed <= arguments.dosage_seeds:
                    few = half.some(arguments.dosage_people)
                    about_dosages(few, case, arguments.dosage_points, arguments.threads, work, found)
                half.panel.close()
                half.reference.close()
                print(f"half {seed} of {arguments.seeds} done", flush=True)
            report = found.report(case, whole, arguments)
    write_tsv(out / "membership.tsv", found.rows())
    (out / "report.md").write_text(report)
    write_configuration(out, arguments, {arguments.data: "DATA"})
    print(report)


def draw(whole: spinimpute.Panel, case: Case, seed: int, people: int, work: Path) -> Half:
    order = np.random.default_rng(seed).permutation(whole.n_samples)
    members, rest = np.split(order, [whole.n_samples // 2])
    others, own = np.split(rest, [len(rest) // 2])
    tested = np.concatenate([members[:people], others[:people]])
    alleles = whole.alleles(0, whole.n_sites)
    columns = [np.flatnonzero(whole.haplotype_sample == person) for person in tested]

    def panel(chosen: np.ndarray, name: str) -> spinimpute.Panel:
        names = [whole.samples[i] for i in np.sort(chosen)]
        return spinimpute.build_panel(
            case.panel, work / f"{name}.spin", case.genetic_map, samples=names, force=True
        )

    return Half(
        panel(members, "half"),
        panel(own, "reference"),
        alleles[:, np.concatenate(columns)],
        np.arange(len(tested)) < len(members[:people]),
    )


class Findings:
    """Trials by attack, number of inducing points (0: none) and known sites, and further counts."""

    def __init__(self, copies: int) -> None:
        self.copies = copies
        self.trials: dict[tuple[str, int, str], list[Trial]] = {}
        self.carriers: dict[int, list[tuple[int, int]]] = {}
        self.sizes: dict[int, list[tuple[int, float]]] = {}
        self.excluded: list[float] = []
        self.copied: list[tuple[float, float]] = []
        self.singletons: list[int] = []
        self.tested: list[tuple[int, int]] = []

    def add(self, attack: str, points: int, sites: str, features: Features, member: np.ndarray) -> None:
        self.trials.setdefault((attack, points, sites), []).append(Trial(table_of(features), member))

    def known(self, panel: spinimpute.InducingPanel | spinimpute.Panel) -> dict[str, np.ndarray]:
        """Return the sites that the attacker knows: all sites, or those with several copies in the half."""
        minor = np.minimum(panel.allele_count, panel.n_haplotypes - panel.allele_count)
        return {ALL_SITES: np.ones(panel.n_sites, dtype=bool), f"≥{self.copies} copies": minor >= self.copies}

    def outcomes(self) -> list[tuple[str, int, str, str, Outcome]]:
        kinds: list[tuple[str, Callable[[Sequence[Trial]], Outcome]]] = [("best feature", best_feature)]
        out = []
        for (attack, points, sites), trials in self.trials.items():
            more = [("learned", learned)] if len(trials) > 1 else []
            for kind, decide in [*kinds, *more]:
                out.append((attack, points, sites, kind, decide(trials)))
        return out

    def rows(self) -> list[list[object]]:
        head = ["attack", "inducing_points", "sites", "decision", "halves", "auc", "auc_sd", "found_at_1pct"]
        return [
            head,
            *(
                [attack, points, sites, kind, len(self.trials[attack, points, sites]),
                 f"{o.auc:.4f}", f"{o.auc_spread:.4f}", f"{o.found:.4f}"]
                for attack, points, sites, kind, o in self.outcomes()
            ),
        ]  # fmt: skip

    def report(self, case: Case, whole: spinimpute.Panel, arguments: argparse.Namespace) -> str:
        outcomes = self.outcomes()
        members, others = np.sum(self.tested, axis=0)
        dosages, n = "", arguments.dosage_people
        if arguments.dosage_seeds:
            dosages = f" ({arguments.dosage_seeds} halves and at most {n} of each for dosages)"
        text = [
            f"# {case.name}: who was in the panel?",
            f"Files of a random half of {whole.n_samples:,} people ({whole.n_haplotypes // 2:,} haplotypes), "
            f"{whole.chrom}:{whole.position[0]}-{whole.position[-1]}; {arguments.seeds} halves, "
            f"{members:,} members and {others:,} others tested{dosages}.",
            "AUC ± standard deviation over halves / share of members found at 1 % false positives. Of each "
            "attack the better of two: the best single feature, chosen afterwards, and logistic regression "
            "taught by the other halves. 0.5 and 1 % are a coin's.",
        ]
        columns = list(self.known(whole))
        table = [["attacker knows", *columns]]
        for attack, points in dict.fromkeys((a, p) for a, p, *_ in outcomes):
            cells = []
            for sites in columns:
                mine = [o for a, p, s, _, o in outcomes if (a, p, s) == (attack, points, sites)]
                cells.append(_cell(max(mine, key=lambda o: o.auc)) if mine else "")
            table.append([f"{attack}{f', h = {points}' if points else ''}", *cells])
        exact, near = np.mean(self.copied, axis=0)
        itself = f"the panel itself ({exact:.0%} of members, {near:.1%} of others in it)"
        table.append([itself, "1 / 100%", ""])
        text.append(markdown(table))
        text.append(
            f"Allele counts exclude: {np.mean(self.excluded):.1%} of the others carry an allele of which the "
            f"file counts no copy, which no member does. {np.mean(self.singletons):,.0f} sites of a half "
            "have one copy: that somebody in the panel carries the allele can be read from the site table."
        )
        text.append(
            f'"≥{self.copies} copies": without the sites of fewer copies in the half, as if they had been '
            "left out of the panel before."
        )
        text.append(self._files())
        return "\n\n".join(text) + "\n"

    def _files(self) -> str:
        table = [["h", "kB", "points that stand for less than 2 haplotypes", "carrier found by dosage"]]
        for points, found in self.sizes.items():
            size, few = np.mean(found, axis=0)
            ranked = self.carriers.get(points)
            share = ""
            if ranked:
                n, right = np.sum(ranked, axis=0)
                share = f"{right / n:.1%} of {n:,}"
            table.append([str(points), f"{size / 1000:,.0f}", f"{few:.1%}", share])
        note = (
            "Carrier found by dosage: members are imputed from their array genotypes; of alleles with one "
            "copy in the half, how often does the haplotype that carries it get the highest dosage of all "
            "members tested? By probability: one in their number of haplotypes."
        )
        return f"{markdown(table)}\n\n{note}"


def _cell(found: Outcome) -> str:
    return f"{found.auc:.3f} ± {found.auc_spread:.3f} / {found.found:.0%}"


def about_panel(half: Half, found: Findings) -> None:
    """Record what the panel itself reveals, and how many people its allele counts exclude."""
    panel = half.panel
    haplotypes = {column.tobytes() for column in np.packbits(panel.alleles(0, panel.n_sites), axis=0).T}
    tested = np.packbits(half.alleles_XQ, axis=0).T
    inside = np.array([row.tobytes() in haplotypes for row in tested]).reshape(-1, 2).all(1)
    found.copied.append((float(inside[half.member].mean()), float(inside[~half.member].mean())))
    count, n = panel.allele_count, panel.n_haplotypes
    impossible_Q = half.alleles_XQ[count == 0].any(0) | (half.alleles_XQ[count == n] == 0).any(0)
    found.excluded.append(float(impossible_Q.reshape(-1, 2).any(1)[~half.member].mean()))
    found.singletons.append(int((np.minimum(count, n - count) == 1).sum()))
    found.tested.append((int(half.member.sum()), int((~half.member).sum())))


def make(
    panel: spinimpute.Panel, case: Case, points: int, threads: int, work: Path
) -> spinimpute.InducingPanel:
    out = work / f"{panel.path.stem}.{points}.spip"
    return spinimpute.build_inducing_panel(panel, out, case.target, points, threads=threads, force=True)


def about_files(
    half: Half, case: Case, points: Sequence[int], threads: int, work: Path, found: Findings
) -> None:
    """Record the attacks of somebody who has the file, and of somebody who has it without the links."""
    for i, h in enumerate(points):
        with (
            make(half.panel, case, h, threads, work) as file,
            make(half.reference, case, h, threads, work) as reference,
        ):
            found.sizes.setdefault(h, []).append((file.path.stat().st_size, file.mass_below["2"]))
            for name, sites in found.known(file).items():
                counts = count_features(half.alleles_XQ, file, reference, sites)
                if i == 0:
                    found.add("allele counts", 0, name, counts, half.member)
                alone, linked = (
                    against(*features)
                    for features in zip(
                        file_features(half.alleles_XQ, file, sites),
                        file_features(half.alleles_XQ, reference, sites),
                        strict=True,
                    )
                )
                found.add("the file without links", h, name, {**alone, **counts}, half.member)
                found.add("the file", h, name, {**alone, **linked, **counts}, half.member)


def about_dosages(
    half: Half, case: Case, points: Sequence[int], threads: int, work: Path, found: Findings
) -> None:
    """Record the attack of somebody who can impute the person's array genotypes from the file, but never sees
    it.
    """
    for h in points:
        predictor = load_predictor(name="spin")
        with (
            make(half.panel, case, h, threads, work) as file,
            make(half.reference, case, h, threads, work) as reference,
        ):
            p_XQ, other_XQ = (imputed(panel, predictor, half.alleles_XQ) for panel in (file, reference))
            for name, sites in found.known(file).items():
                scored = sites.copy()
                scored[file.array_index] = False
                features = against(
                    dosage_features(half.alleles_XQ, p_XQ, scored),
                    dosage_features(half.alleles_XQ, other_XQ, scored),
                )
                found.add("imputed dosages", h, name, features, half.member)
            minor = np.minimum(file.allele_count, file.n_haplotypes - file.allele_count)
            inside_Q = half.member.repeat(2)
            ranks = carrier_ranks(half.alleles_XQ[:, inside_Q], p_XQ[:, inside_Q], np.flatnonzero(minor == 1))
            found.carriers.setdefault(h, []).append(ranks)
