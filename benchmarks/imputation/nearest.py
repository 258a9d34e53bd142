"""A baseline without a model: copying the panel haplotypes that are most similar nearby."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

import spinimpute
from spinimpute.genotypes.sites import match_sites
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.reader import read_haplotypes
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

NEAREST, CORE, FLANK = 10, 8, 12  # haplotypes copied; typed sites of a window and on each of its sides


def nearest_haplotypes(panel: spinimpute.Panel, target_path: Path, out: Path) -> None:
    """Return the mean of the nearest panel haplotypes by Hamming distance over short windows of typed sites.

    Ties at the tenth distance go to the haplotypes that come first in the panel.
    """
    target = read_haplotypes(target_path)
    match = match_sites(panel.sites, target.sites)
    alleles_XN = panel.alleles(0, panel.n_sites)
    typed_TN = alleles_XN[match.panel_index].astype(np.float32)
    typed_TQ = np.maximum(target.alleles[match.target_index], 0).astype(np.float32)  # missing: REF
    bounds = [0, *match.panel_index[CORE::CORE], panel.n_sites]
    p_XQ = np.empty((panel.n_sites, typed_TQ.shape[1]), dtype=np.float32)
    for w, (start, stop) in enumerate(itertools.pairwise(bounds)):
        near = slice(max(w * CORE - FLANK, 0), (w + 1) * CORE + FLANK)
        context, query = typed_TN[near], typed_TQ[near]
        distance_QN = query.T @ (1 - context) + (1 - query).T @ context
        nearest_QK = np.argsort(distance_QN, axis=1, kind="stable")[:, :NEAREST]
        weight_QN = np.zeros_like(distance_QN)
        np.put_along_axis(weight_QN, nearest_QK, 1 / NEAREST, axis=1)
        p_XQ[start:stop] = alleles_XN[start:stop].astype(np.float32) @ weight_QN.T
    typed = np.zeros(panel.n_sites, dtype=bool)
    typed[match.panel_index] = True
    with GenotypeWriter(out, OutputLayout(target.samples, target.ploidy, [panel.contig_line])) as writer:
        writer.write_block(RecordBlock(panel.chrom, panel.sites, p_XQ, {}, None, typed))
