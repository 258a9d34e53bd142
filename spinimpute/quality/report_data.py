"""Data that a run collects for its HTML report, in addition to the counts in its summary.

They are collected only if a report is requested. `reports` turns them into a page.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

import numpy as np

from spinimpute.genotypes.builds import infer_build
from spinimpute.panels.reference import ReferencePanel
from spinimpute.panels.spin_files import find_x_region
from spinimpute.quality.frequencies import TypedFrequencies
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.sample_quality import SampleQuality
from spinimpute.quality.site_quality import dosage_variance

_COMMAND = "##spinimpute_command="  # header line that the command-line program adds to outputs


@dataclass
class Provenance:
    """How an output was made: for each subject, such as "panel" or "command", the distinct texts about it."""

    texts: dict[str, list[str]] = field(default_factory=dict)

    def add(self, subject: str, text: str) -> None:
        """Add a text about a subject, unless the subject already has this text."""
        texts = self.texts.setdefault(subject, [])
        if text not in texts:
            texts.append(text)

    def add_run(self, header_lines: Sequence[str], model: str) -> None:
        """Add the program's version, the model, and the command in the header lines (if there is one)."""
        self.add("program", f"spinimpute {version('spinimpute')}")
        commands = [line.removeprefix(_COMMAND) for line in header_lines if line.startswith(_COMMAND)]
        self.add("command", commands[0] if commands else "none: called from Python")
        self.add("model", model)

    def add_panel(self, panel: ReferencePanel) -> None:
        """Add a panel's size, checksum, source, genetic map and genome build."""
        record, x_region = panel.provenance, find_x_region(panel)
        source = record.get("source", record.get("panel", "not recorded"))
        name = panel.path.name if x_region is None else f"{panel.path.name} {x_region.name}"
        self.add("panel", f"{name}: {panel.n_haplotypes:,} haplotypes, {panel.n_sites:,} sites")
        self.add("panel's checksum", f"{name}: {panel.checksum}{panel.made_of}")
        self.add("panel's source", f"{name}: {source}, by spinimpute {record.get('spinimpute', '')}")
        self.add("genetic map", f"{name}: {record.get('map', 'not recorded')}")
        if tuned := record.get("map tuned"):
            self.add("genetic map", f"{name}: tuned for the array {tuned['array']}")
        self.add_build("panel's genome build", panel.contig_line, panel.chrom)

    def add_build(self, subject: str, contig_line: str, chrom: str) -> None:
        """Add the genome build, as inferred from the header line of the chromosome (##contig)."""
        self.add(subject, infer_build(contig_line, chrom) or f"not stated for chromosome {chrom}")


@dataclass
class ReportData:
    """Quality of samples and of imputed sites, allele frequencies at typed sites, and the provenance."""

    by_sample: SampleQuality
    imputed: ImputedSites = field(default_factory=ImputedSites)
    frequencies: TypedFrequencies = field(default_factory=TypedFrequencies)
    provenance: Provenance = field(default_factory=Provenance)

    def add_window(
        self,
        panel: ReferencePanel,
        rows: slice,
        p_UQ: np.ndarray,
        info: Mapping[str, np.ndarray | None],
        typed_U: np.ndarray,
        ploidy: np.ndarray,
    ) -> None:
        """Add the results of a window: P(ALT) `p_UQ` and the site statistics `info` (see `site_quality`).

        `rows` are the panel sites of the window, `typed_U` marks the typed ones, and `ploidy` has one value
        for each sample. Axes: U sites, Q haplotypes, 2 sums of squares (see `dosage_variance`).
        """
        frequency_U, r2_U = panel.frequency[rows], info["R2"]
        assert r2_U is not None
        self.by_sample.add_dosages(p_UQ[~typed_U], frequency_U[~typed_U], ploidy)
        sums_U2 = dosage_variance(p_UQ, frequency_U, ploidy)
        self.imputed.add(panel.chrom, panel.position[rows], frequency_U, r2_U, typed_U, sums_U2)
