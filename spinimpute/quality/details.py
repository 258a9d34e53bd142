"""What the report of a run tells beyond the counts of its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from spinimpute.quality.frequencies import TypedFrequencies
from spinimpute.quality.how_made import HowMade
from spinimpute.quality.imputed_sites import ImputedSites
from spinimpute.quality.sample_quality import SampleQuality


@dataclass
class RunDetails:
    """Collected while a run goes on.

    Attributes
    ----------
    by_sample : SampleQuality
        Typed calls, and the accuracy to be expected.
    imputed : ImputedSites
        Estimated quality of the imputed sites.
    frequencies : TypedFrequencies
        Of target and panel at typed sites.
    how_made : HowMade
        Of what, and with what.
    """

    by_sample: SampleQuality
    imputed: ImputedSites = field(default_factory=ImputedSites)
    frequencies: TypedFrequencies = field(default_factory=TypedFrequencies)
    how_made: HowMade = field(default_factory=HowMade)

    @classmethod
    def of(cls, samples: Sequence[str]) -> RunDetails:
        """Nothing yet, of these samples."""
        return cls(SampleQuality(list(samples)))
