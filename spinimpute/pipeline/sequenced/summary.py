"""The summary of imputing sequenced samples: what was known of them, warnings, time and memory."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from spinimpute.quality.summary import Stages
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods


@dataclass
class SequencedSummary(Stages):
    """Counts, and seconds by stage.

    Attributes
    ----------
    panel_sites, panel_haplotypes : int
        Size of the panel.
    samples : list of str
        Names.
    known_sites : int
        Panel sites where something is known of at least one sample.
    bare_X : float64 (X,)
        The share of the panel's sites at which nothing is known of a sample.
    depth_X : float64 (X,) or None
        The mean number of reads at a site of the panel; None where no depths are stated.
    skipped : dict of str to int
        What was not taken, by reason.
    haploid : int
        Samples with one copy.
    written_sites : int
        All sites that were written.
    peak_memory_mb : float
        Largest resident size in MB.
    warnings, notes : list of str
        To the user; notes go into the output's header, too.
    """

    panel_sites: int = 0
    panel_haplotypes: int = 0
    samples: list[str] = field(default_factory=list)
    known_sites: int = 0
    bare_X: np.ndarray = field(default_factory=lambda: np.zeros(0))
    depth_X: np.ndarray | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    haploid: int = 0
    written_sites: int = 0
    peak_memory_mb: float = 0.0
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def count(self, likelihoods: GenotypeLikelihoods, n_sites: int) -> None:
        """Add what is known at the sites of a part of the chromosome, of which n_sites are imputed."""
        known_SX = likelihoods.known_SX
        before, sites = self.panel_sites, self.panel_sites + n_sites
        share_X = known_SX.sum(axis=0) / n_sites
        if not self.samples:
            self.samples, self.bare_X = likelihoods.samples, np.zeros(len(share_X))
        self.bare_X = (self.bare_X * before + (1 - share_X) * n_sites) / sites
        if likelihoods.depth_SX is not None:
            depth_X = likelihoods.depth_SX.sum(axis=0) / n_sites
            earlier_X = np.zeros(len(depth_X)) if self.depth_X is None else self.depth_X
            self.depth_X = (earlier_X * before + depth_X * n_sites) / sites
        self.panel_sites = sites
        self.known_sites += int(known_SX.any(axis=1).sum())
        self.skipped = likelihoods.skipped
        self.haploid = max(self.haploid, int((likelihoods.ploidy == 1).sum()))

    def lines(self) -> list[str]:
        """The summary as text."""
        bare_X = np.sort(self.bare_X)
        out = [
            f"target:   {len(self.samples)} samples, something known at {self.known_sites} sites",
            f"panel:    {self.panel_haplotypes} haplotypes, {self.panel_sites} sites",
            f"unknown:  {bare_X[0]:.1%} to {bare_X[-1]:.1%} of a sample's sites, {np.median(bare_X):.1%} in "
            "the middle",
        ]
        if self.depth_X is not None:
            low, middle, high = self.depth_X.min(), np.median(self.depth_X), self.depth_X.max()
            out.append(f"depth:    {low:.2f} to {high:.2f} reads a site, {middle:.2f} in the middle")
        out += [f"          {count} {what}" for what, count in self.skipped.items() if count]
        if self.haploid:
            out.append(f"haploid:  {self.haploid} of {len(self.samples)} samples have one copy")
        out.append(f"written:  {self.written_sites} sites")
        out += [f"note:     {note}" for note in self.notes]
        times = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in self.seconds.items())
        out.append(f"time:     {times}")
        out.append(f"memory:   {self.peak_memory_mb:.0f} MB at most")
        return out
