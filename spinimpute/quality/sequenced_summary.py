"""The summary of imputing sequenced samples: what was known of them, warnings, time and memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from spinimpute.quality.coverage import Coverage
from spinimpute.quality.summary import RunSummary
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods


@dataclass(repr=False)
class SequencedSummary(RunSummary):
    """Counts, in addition to `RunSummary`.

    Attributes
    ----------
    panel_sites, panel_haplotypes : int
        Size of the panel.
    coverage : Coverage
        How much is known of each sample.
    file_sites, matched_sites : int
        Sites of the files, and those of them that are the panel's.
    repaired, skipped : dict of str to int
        Sites by what was done to them, and what was not taken, by reason.
    haploid : int
        Samples with one copy.
    written_sites : int
        All sites that were written.
    """

    panel_sites: int = 0
    panel_haplotypes: int = 0
    coverage: Coverage = field(default_factory=Coverage)
    file_sites: int = 0
    matched_sites: int = 0
    repaired: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    haploid: int = 0
    written_sites: int = 0

    @property
    def samples(self) -> list[str]:
        """Names."""
        return self.coverage.samples

    def count(self, likelihoods: GenotypeLikelihoods, n_sites: int) -> None:
        """Add what is known at n_sites of the panel, other ones at each call. `skipped` is the caller's."""
        self.coverage.add(likelihoods, n_sites)
        self.panel_sites += n_sites
        self.file_sites += likelihoods.n_sites_file
        self.matched_sites += len(likelihoods.panel_index)
        self.repaired = dict(Counter(self.repaired) + Counter(likelihoods.repaired))
        self.haploid = max(self.haploid, int((likelihoods.ploidy == 1).sum()))

    def lines_before(self) -> list[str]:
        """What is known before anything is imputed, as text."""
        out = [
            f"target:   {len(self.samples)} samples, something known at {self.coverage.known_sites} sites",
            f"panel:    {self.panel_haplotypes} haplotypes, {self.panel_sites} sites",
            f"matched:  {self.matched_sites} panel sites, of {self.file_sites} that were looked at",
        ]
        out += [f"          {count} sites: {what}" for what, count in self.repaired.items()]
        out += [f"          {count} {what}" for what, count in self.skipped.items() if count]
        out += self.coverage.lines()
        if self.haploid:
            out.append(f"haploid:  {self.haploid} of {len(self.samples)} samples have one copy")
        return out

    def lines(self) -> list[str]:
        """The summary as text."""
        out = [*self.lines_before(), f"written:  {self.written_sites} sites"]
        out += [f"note:     {note}" for note in self.notes]
        return out + self.closing_lines()
