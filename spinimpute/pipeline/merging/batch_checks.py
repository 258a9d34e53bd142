"""Checks of `merge` before it joins batches: they must be from one imputation, of different samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from spinimpute.pipeline.chunk_checks import MUST_MATCH
from spinimpute.pipeline.merging.batch_file import Batch
from spinimpute.quality.site_quality import MAX_HAPLOTYPES
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.header import definition, header_indexes, without_idx

_REGION = "##spinimpute_region"  # of the lines about regions, phasing and numbers of sites


def check_batches(batches: Sequence[Batch], output_type: str) -> None:
    """Raise InputError if batches do not belong together, or if two have a sample of the same name."""
    owner: dict[str, Batch] = {}
    for batch in batches:
        if batch.is_bcf is not (output_type == "b"):
            batch_format, output_format = ("BCF", "VCF") if batch.is_bcf else ("VCF", "BCF")
            raise InputError(
                "mismatch",
                f"batch {batch.path} is {batch_format}, but the output is {output_format}. Genotypes are "
                f"copied unchanged: write {batch_format}, and convert the output with bcftools view",
            )
        for name in batch.samples:
            if (other := owner.setdefault(name, batch)) is not batch:
                raise InputError(
                    "mismatch",
                    f"batches {other.path} and {batch.path} both have a sample {name}. Leave one of the "
                    "batches out, or impute it again without the sample",
                )
        _check_header(batches[0], batch)
    if len(owner) > MAX_HAPLOTYPES // 2:
        raise InputError("mismatch", f"there are {len(owner)} samples; a file can have {MAX_HAPLOTYPES // 2}")


def _check_header(first: Batch, other: Batch) -> None:
    """Raise InputError if two batches differ in FORMAT, panel, model, region, options or definitions."""

    def differ(what: str, one: object, another: object) -> InputError:
        return InputError(
            "mismatch",
            f"batches {first.path} and {other.path} differ in {what}: {one} and {another}; they cannot be "
            "merged. Impute all batches in the same way",
        )

    for prefix, what in {**MUST_MATCH, _REGION: "region"}.items():
        one, another = (", ".join(batch.values(prefix)) for batch in (first, other))
        if one != another:
            raise differ(f"the {what}", one.lstrip("s=") or "none", another.lstrip("s=") or "none")
    if first.formats != other.formats:
        raise differ("FORMAT", ":".join(first.formats), ":".join(other.formats))
    definitions = (
        [without_idx(line) for line in batch.lines if definition(line)] for batch in (first, other)
    )
    for pair in zip_longest(*definitions):
        if pair[0] != pair[1]:
            raise differ("the definitions of the header", *(line or "none" for line in pair))
    if first.is_bcf and header_indexes(first.lines) != header_indexes(other.lines):
        raise InputError(
            "mismatch",
            f"batches {first.path} and {other.path} differ in the IDX numbers of the header: another program "
            "has changed one of them. Merge the outputs of 'spinimpute impute' themselves",
        )
    for pair in zip_longest(first.options, other.options):
        if pair[0] != pair[1]:
            raise differ("the options of their commands", *(line or "none" for line in pair))
