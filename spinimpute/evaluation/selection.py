"""Which samples are compared."""

from __future__ import annotations

from collections.abc import Sequence

from spinimpute.evaluation.genotype_file import GenotypeFile
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.reader import check_samples


def compared_samples(
    truth: GenotypeFile, imputed: GenotypeFile, wanted: Sequence[str] | None = None
) -> list[str]:
    """Names of the samples that are compared.

    Parameters
    ----------
    truth, imputed : GenotypeFile
        The two files.
    wanted : sequence of str or None
        The samples to compare; None for all that both files have.

    Returns
    -------
    list of str
        In the order of the truth.

    Raises
    ------
    InputError
        No sample is common, or a file lacks one of those that are wanted.
    """
    for file in (truth, imputed):
        if not file.samples:
            raise InputError("content", f"{file.name} has no samples")
        if wanted is not None:
            check_samples(file, wanted)
    chosen = set(imputed.samples if wanted is None else wanted)
    common = [name for name in truth.samples if name in chosen]
    if not common:
        raise InputError(
            "content",
            f"no sample is both in the {truth.name} ({_some(truth.samples)}) and in the {imputed.name} "
            f"({_some(imputed.samples)}); samples are matched by name, rename them in one file "
            "(bcftools reheader)",
        )
    return common


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
