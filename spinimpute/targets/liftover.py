"""Lift targets over to the panel's genome build with a chain file (UCSC), the option `--chain`.

A chain file lists intervals of one genome build and where they lie in another one, on the same or on the
other strand. Positions outside these intervals are dropped.
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from spinimpute.genotypes.haplotypes import Calls
from spinimpute.genotypes.sites import (
    LAST_POSITION,
    NoRecord,
    Sites,
    chromosome_names,
    complement,
    same_chromosome,
)
from spinimpute.runtime.errors import InputError, printable
from spinimpute.runtime.unpacking import gunzip, why_unreadable

_WANTED = (
    "Give the chain file from the target's build to the panel's, such as UCSC's hg19ToHg38.over.chain.gz"
)
NOT_IN_CHAIN = "not in the chain file: nowhere in the panel's build"
INDEL_ON_OTHER_STRAND = "insertion or deletion that changes its strand in the panel's build"


class Lift:
    """A converter of positions on one chromosome to the panel's genome build.

    `chain` is a chain file from the target's build to the panel's, plain or gzipped. Raises InputError if it
    cannot be read or is not a chain file, and NoRecord if it has no chain of the chromosome.
    """

    def __init__(self, chain: str | Path, chrom: str) -> None:
        from pyliftover import LiftOver

        self.path = Path(chain)
        try:
            content = gunzip(self.path.read_bytes())
        except (OSError, EOFError, zlib.error) as error:
            raise InputError("read", f"chain file {chain}: {why_unreadable(error)}") from error
        try:
            self._lifter = LiftOver(io.BytesIO(content))
        except Exception as error:  # pyliftover has no exception class of its own
            raise InputError(
                "damaged",
                f"chain file {chain}: it is not a chain file, or is damaged "
                f"({printable(str(error).strip())}). {_WANTED}",
            ) from error
        self._chrom = chrom
        heads = [line.split() for line in content.splitlines() if line.startswith(b"chain")]
        names = {head[2].decode(errors="replace") for head in heads if len(head) > 2}  # source chromosomes
        if not names:
            raise InputError("content", f"chain file {chain}: there is no chain in it. {_WANTED}")
        self._name = min(chromosome_names(chrom, names), default="")
        if not self._name:
            known = ", ".join(sorted(names)[:10])
            raise NoRecord(
                "content",
                f"chain file {chain}: it has no chain of chromosome {chrom}, but of {known}. {_WANTED}",
            )

    def convert(self, position: int) -> tuple[int, bool] | None:
        """Return the 1-based position in the panel's build, and whether the strand changes.

        Return None if the position has no counterpart on this chromosome.
        """
        found = self._lifter.convert_coordinate(self._name, position - 1)
        if not found or not same_chromosome(found[0][0], self._chrom):
            return None
        lifted_position = found[0][1] + 1
        return (lifted_position, found[0][2] == "-") if 1 <= lifted_position <= LAST_POSITION else None

    def convert_alleles(self, position: int, alleles: Sequence[str]) -> tuple[int, list[str]] | str:
        """Return a site's position and alleles in the panel's build, or the reason why it has none.

        The first allele is REF. Symbolic alleles such as "<*>" are not changed.
        """
        found, length = self.convert(position), len(alleles[0])
        last = found if length == 1 else self.convert(position + length - 1)
        # the bases of REF must still be consecutive
        if not found or not last or last[1] != found[1] or abs(last[0] - found[0]) != length - 1:
            return NOT_IN_CHAIN
        lifted_position, strand_changes = found
        if strand_changes and any(len(allele) > 1 for allele in alleles if not allele.startswith("<")):
            return INDEL_ON_OTHER_STRAND
        return lifted_position, [
            complement(a) if strand_changes and not a.startswith("<") else a for a in alleles
        ]

    def convert_calls(self, calls: Calls) -> Calls:
        """Convert the sites of calls to the panel's build, and sort them by position.

        Sites without a position in the panel's build are dropped and counted in `skipped`. Raises NoRecord
        if no site remains.
        """
        sites = calls.sites
        rows: list[tuple[int, int, list[str]]] = []
        skipped = Counter(calls.skipped)
        for i, position in enumerate(sites.position.tolist()):
            found = self.convert_alleles(position, (sites.ref[i], sites.alt[i]))
            if isinstance(found, str):
                skipped[found] += 1
                continue
            rows.append((found[0], i, found[1]))
        if not rows:
            raise NoRecord(
                "mismatch", f"chain file {self.path}: none of the target's sites is in it. {_WANTED}"
            )
        rows.sort()
        chosen = np.array([i for _, i, _ in rows])
        kept = calls.part(chosen)
        position = np.array([lifted_position for lifted_position, *_ in rows], np.int64)
        ref, alt = ([pair[which] for *_, pair in rows] for which in (0, 1))
        lifted = Sites(sites.chrom, position, ref, alt, kept.sites.id)
        return replace(kept, sites=lifted, skipped=dict(skipped))
