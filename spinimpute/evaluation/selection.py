"""What is compared where not all is: regions and samples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from spinimpute.errors import InputError
from spinimpute.evaluation.genotype_file import GenotypeFile
from spinimpute.genotypes.sites import Region, plain_chromosome
from spinimpute.vcf.reader import check_samples


def read_regions(regions: Iterable[str | Region] | str | Region | None) -> list[Region]:
    """Regions by position, those that overlap or touch as one.

    Parameters
    ----------
    regions : iterable of str or Region, str, Region or None
        As users write them; None for everywhere.

    Returns
    -------
    list of Region
        Chromosomes in the order in which they are first named; empty for everywhere.

    Raises
    ------
    InputError
        One cannot be read, or there is none.
    """
    if regions is None:
        return []
    given = [regions] if isinstance(regions, str | Region) else list(regions)
    if not given:
        raise InputError("the list of regions is empty: give regions, or leave it out for all sites")
    of_chromosome: dict[str, list[Region]] = {}
    for one in given:
        region = Region.parse(one) if isinstance(one, str) else one
        of_chromosome.setdefault(plain_chromosome(region.chrom), []).append(region)
    joined: list[Region] = []
    for of_one in of_chromosome.values():
        first, *others = sorted(of_one, key=lambda region: region.start)
        joined.append(first)
        for region in others:
            last = joined[-1]
            if region.start <= last.end + 1:
                joined[-1] = Region(last.chrom, last.start, max(last.end, region.end))
            else:
                joined.append(region)
    return joined


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
            raise InputError(f"{file.name} has no samples")
        if wanted is not None:
            check_samples(file, wanted)
    chosen = set(imputed.samples if wanted is None else wanted)
    common = [name for name in truth.samples if name in chosen]
    if not common:
        raise InputError(
            f"no sample is both in the {truth.name} ({_some(truth.samples)}) and in the {imputed.name} "
            f"({_some(imputed.samples)}); samples are matched by name, rename them in one file "
            "(bcftools reheader)"
        )
    return common


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown
