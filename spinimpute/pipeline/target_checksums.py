"""Checksums of some sites of a target in the header of a chunk, by which `ligate` recognizes it.

A hash of the positions chooses the sites, so chunks of the same target share sites even if the target was
cut for each of them. Checksums depend on genotypes, not on phase or format. Files of `phase` and `convert`
contain the checksums of their source. A chunk copies these if only a part of such a file may be read.
Otherwise its checksums are computed, because other programs keep the header when they change genotypes.

Axes: T sites at one position, X samples.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

import numpy as np

from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.pipeline.chunk_file import TARGET_LINE
from spinimpute.pipeline.matched_target import MatchedTarget

POSITIONS = 32  # two people have the same genotypes at so many sites with a probability of about 1e-7

_WRITTEN = re.compile(rf"^{TARGET_LINE}[0-9a-f:,]+$", re.MULTILINE)
_ODD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 by the golden ratio: its multiples are spread evenly
_SUMMANDS = np.array([0, 1, 4], np.int8)  # of missing, REF and ALT: a sum of two tells both


def target_line(parts: Sequence[MatchedTarget], header: str = "") -> str:
    """Return the header line with a target's checksums."""
    written = _WRITTEN.search(header)
    if written is not None:
        return written[0]
    targets = [part.resolved.haplotypes for part in parts]
    position = np.concatenate([sorted(set(target.sites.position.tolist())) for target in targets]).astype(
        np.int64
    )
    spread = position.astype(np.uint64) * _ODD
    chosen = np.sort(position[np.argsort(spread, kind="stable")[:POSITIONS]])
    checksums = [_checksum(targets, at) for at in chosen.tolist()]
    return TARGET_LINE + ",".join(f"{at}:{one}" for at, one in zip(chosen, checksums, strict=True))


def _checksum(targets: Sequence[Haplotypes], position: int) -> str:
    digest = hashlib.blake2b(digest_size=4)
    for target in targets:
        sites = target.sites
        start, stop = np.searchsorted(sites.position, [position, position + 1]).tolist()
        first_X = np.cumsum(target.ploidy, dtype=np.int64) - target.ploidy
        sums_TX = np.add.reduceat(_SUMMANDS[target.alleles[start:stop] + 1], first_X, axis=1, dtype=np.int8)
        for row, sums_X in zip(range(start, stop), sums_TX, strict=True):
            digest.update(f"{sites.ref[row]}>{sites.alt[row]}>".encode())
            digest.update(sums_X.tobytes())
    return digest.hexdigest()
