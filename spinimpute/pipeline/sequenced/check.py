"""`check` of sequenced samples: what `impute` would make of them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.sequenced.parts import read_parts
from spinimpute.quality.summary import SequencedSummary
from spinimpute.runtime.errors import InputError
from spinimpute.sequencing.alignment_file import AlignmentFile


def check_sequenced(
    panels: Sequence[ReferencePanel], sequencing: SequencingSettings
) -> tuple[SequencedSummary, list[str]]:
    """Read what is known of sequenced samples at the sites of a panel, as `impute_sequenced` does.

    Files of reads that cannot be used are left out, where there are others.

    Parameters
    ----------
    panels : sequence of ReferencePanel
        The parts of one panel.
    sequencing : SequencingSettings
        What is known of the samples.

    Returns
    -------
    SequencedSummary
        Counts, coverage and warnings; empty if no file can be used, or if one of them cannot and there are
        likelihoods or calls of the same samples.
    list of str
        Why `impute_sequenced` refuses files of reads: a missing index, another genome build, other names of
        chromosomes and the like. One for each file.

    Raises
    ------
    InputError
        As `impute_sequenced`, for what else it refuses.
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
    read_parts(panels, sequencing, (), None, summary, force=False)
    summary.warnings += summary.coverage.warnings()
    return summary, list(refusals.values())


def _refusals(panels: Sequence[ReferencePanel], sequencing: SequencingSettings) -> dict[int, str]:
    """Why files of reads cannot be used, by their number."""
    found = {}
    for i, path in enumerate(sequencing.alignments):
        try:
            with warnings.catch_warnings(action="ignore"):  # it is opened again
                AlignmentFile(path, panels[-1], sequencing.reference).close()
        except InputError as error:
            found[i] = str(error)
    return found
