"""`check` of sequenced samples: how `impute` would use them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.sequenced.intervals import read_intervals
from spinimpute.quality.summary import SequencedSummary
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.alignment_file import AlignmentFile


def check_sequenced(
    panels: Sequence[ReferencePanel], sequencing: SequencingSettings
) -> tuple[SequencedSummary, list[str]]:
    """Read the data of sequenced samples at the sites of a panel, as `impute_sequenced` does.

    Returns a summary, and why `impute_sequenced` refuses files of reads: a missing index, another genome
    build or other names of chromosomes. Refused files are left out if others remain; the summary is empty if
    none does, or if there are also likelihoods or an array of the same samples.
    """
    summary = SequencedSummary()
    refusals = _refusals(panels, sequencing)
    if refusals:
        if len(refusals) == len(sequencing.alignments) or sequencing.likelihood_files or sequencing.array:
            return summary, list(refusals.values())
        kept = [i for i in range(len(sequencing.alignments)) if i not in refusals]
        sequencing = replace(
            sequencing,
            alignments=[sequencing.alignments[i] for i in kept],
            names=[sequencing.names[i] for i in kept] if sequencing.names else (),
        )
    read_intervals(panels, sequencing, (), None, force=False).count(summary)
    summary.warnings += summary.coverage.warnings()
    return summary, list(refusals.values())


def _refusals(panels: Sequence[ReferencePanel], sequencing: SequencingSettings) -> dict[int, str]:
    """Why files of reads cannot be used, by number of the file."""
    found = {}
    for i, path in enumerate(sequencing.alignments):
        try:
            with warnings.catch_warnings(action="ignore"):  # the file is opened again later
                AlignmentFile(path, panels[-1], sequencing.reference).close()
        except InputError as error:
            found[i] = str(error)
    return found
