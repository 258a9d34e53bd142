"""`check` of sequenced samples: what `impute` would make of them."""

from __future__ import annotations

from collections.abc import Sequence

from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.sequenced.parts import read_parts
from spinimpute.quality.sequenced_summary import SequencedSummary


def check_sequenced(panels: Sequence[ReferencePanel], sequencing: SequencingSettings) -> SequencedSummary:
    """Read what is known of sequenced samples at the sites of a panel, as `impute_sequenced` does.

    Parameters
    ----------
    panels : sequence of ReferencePanel
        The parts of one panel.
    sequencing : SequencingSettings
        What is known of the samples.

    Returns
    -------
    SequencedSummary
        Counts, coverage and warnings.

    Raises
    ------
    InputError
        As `impute_sequenced`, for what it refuses.
    """
    summary = SequencedSummary()
    read_parts(panels, sequencing, (), None, summary, force=False)
    summary.warnings += summary.coverage.warnings()
    return summary
