"""Reading a target in whatever form it comes: VCF, VCF.gz, BCF, or the text file of a consumer array."""

from __future__ import annotations

from pathlib import Path

from spinimpute.errors import InputError
from spinimpute.genotypes.array_text import array_haplotypes, is_array_text, read_array_text
from spinimpute.genotypes.builds import build_of
from spinimpute.genotypes.sites import Sites
from spinimpute.genotypes.vcf_reader import Haplotypes, read_haplotypes


def read_target(
    path: str | Path, panel: Sites, panel_contig_line: str, *, allow_unphased: bool = True
) -> Haplotypes:
    """The target's haplotypes on the panel's chromosome.

    Raises InputError as `read_haplotypes` and `read_array_text`; for heterozygotes of an array's file, which
    have no phase, unless `allow_unphased`.
    """
    path = Path(path)
    if not (path.is_file() and is_array_text(path)):
        return read_haplotypes(path, chrom=panel.chrom, allow_unphased=allow_unphased)
    build = build_of(panel_contig_line, panel.chrom)
    target = array_haplotypes(read_array_text(path), path, panel, panel_contig_line, build)
    if target.unphased is not None and not allow_unphased:
        place = int(target.sites.position[target.unphased[:, 0].argmax()])
        raise InputError(
            f"target {path}: an unphased heterozygote at {panel.chrom}:{place}; array files have no phase: "
            "phase it first (spinimpute phase)"
        )
    return target
