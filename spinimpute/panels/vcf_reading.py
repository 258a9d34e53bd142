"""Read the haplotypes of a panel's VCF in batches of sites, and encode them in the format of panel files.

`BatchReader` uses one process. `ParallelBatchReader` reads regions of an indexed file in several processes.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import groupby, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from spinimpute.genotypes.records import of_other_records, record_order
from spinimpute.genotypes.sites import AT_POSITION_0, NoRecord, Region, Sites, unusable_ref
from spinimpute.genotypes.structural import SPANNED, StructuralVariant, Variants, is_symbolic
from spinimpute.panels.stored_rows import allele_counts, store_rows
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.open_files import closed, opened
from spinimpute.vcf.index_reader import index_mismatch
from spinimpute.vcf.reader import HaplotypeBlock, HaplotypeReader, SampleFile
from spinimpute.vcf.variant_file import Record

DUPLICATE_RECORD = "duplicate of an earlier record"
MOST_AT_POSITION = 10_000  # records of one position, which are kept in memory together
CONTRADICTORY_RECORD = "contradicts another record of the same site"


class SiteBatch(NamedTuple):
    """Consecutive sites of a VCF."""

    sites: Sites
    allele_count: np.ndarray  # number of haplotypes with the ALT allele, uint32 (n,)
    multiallelic: np.ndarray  # sites that were split from a multi-allelic record, bool (n,)
    stored: bytes  # the haplotypes, encoded by `stored_rows.store_rows`


class BatchReader(HaplotypeReader):
    """Reader of a panel's VCF in batches of sites.

    Sites of one position are sorted by REF, whether they were split from a multi-allelic record, and ALT. So
    results do not depend on their order in the file. If several records have the same position and alleles,
    one is kept if their calls are equal, and none if they differ. `ploidy`, uint8 (n_samples,), is the ploidy
    in an earlier part of the file. Raises InputError like `HaplotypeReader`, and for missing calls.
    """

    def __init__(
        self,
        vcf: str | Path,
        region: Region | None,
        samples: Sequence[str] | None,
        ploidy: np.ndarray | None = None,
    ) -> None:
        super().__init__(vcf, region, samples=samples, role="panel", allow_missing=False, ploidy=ploidy)

    def batches(self) -> Iterator[SiteBatch]:
        """Yield all batches. This works only once."""
        is_usable = False
        for batch in encode_batches(self, self.skipped, self._file):
            is_usable = True
            yield batch
        if not is_usable:
            raise self._no_usable_record()

    def _usable_alts(
        self, record: Record, ref: str, alts: list[str], variants: Variants | None
    ) -> list[tuple[int, str]]:
        usable = super()._usable_alts(record, ref, alts, variants)
        reasons = [unusable_ref(ref, alt) for _, alt in usable]
        if not any(reasons):
            return usable
        self.skipped.update(filter(None, reasons))
        return [pair for pair, reason in zip(usable, reasons, strict=True) if not reason]

    def _is_known(self, record: Record, ref: str, alt: str, variant: StructuralVariant | None) -> bool:
        """Return whether an ALT is symbolic, or * beside another ALT allele."""
        return is_symbolic(alt) or (alt == SPANNED and len(record.ALT) > 1)


def encode_batches(
    blocks: Iterable[HaplotypeBlock], skipped: dict[str, int], file: SampleFile
) -> Iterator[SiteBatch]:
    """Sort the records of each position, drop duplicates, and encode the blocks of a panel.

    `skipped` maps reasons to the number of dropped records. It is updated in place. Raises InputError for too
    many records of one position, which are kept in memory together.
    """
    for sites, alleles, multiallelic in _without_duplicates(_whole_positions(blocks, file), skipped):
        # `alleles` may be in Fortran order
        packed = np.ascontiguousarray(np.packbits(alleles.view(np.uint8), axis=1))
        yield SiteBatch(sites, allele_counts(packed), multiallelic, store_rows(packed, alleles.shape[1]))


def _without_duplicates(
    blocks: Iterable[HaplotypeBlock], skipped: dict[str, int]
) -> Iterator[HaplotypeBlock]:
    """Yield blocks sorted by position and alleles, without duplicates and contradictory records."""
    for block in blocks:
        keys, multiallelic = block.sites.keys(), block.multiallelic.copy()
        structural = dict(block.sites.structural)
        kept = []
        for _, same in groupby(sorted(range(len(keys)), key=keys.__getitem__), keys.__getitem__):
            first, *others = same
            multiallelic[first] |= multiallelic[others].any()
            variant = next((structural[one] for one in (first, *others) if one in structural), None)
            if variant is not None:
                structural[first] = variant
            if others and (block.alleles[others] != block.alleles[first]).any():
                reason, n_skipped = CONTRADICTORY_RECORD, 1 + len(others)
            else:
                reason, n_skipped = DUPLICATE_RECORD, len(others)
                kept.append(first)
            if n_skipped:
                skipped[reason] = skipped.get(reason, 0) + n_skipped
        if kept:
            sites = replace(block.sites, structural=structural)
            block = HaplotypeBlock(sites, block.alleles, multiallelic)
            rows = np.array(kept)
            rows = rows[record_order(block.sites.take(rows), multiallelic[rows])]
            block = block if np.array_equal(rows, np.arange(len(keys))) else _take(block, rows)
            other = of_other_records(block.sites, block.multiallelic, block.alleles)
            if other.any():
                multiallelic = block.multiallelic & ~other
                block = _take(
                    HaplotypeBlock(block.sites, block.alleles, multiallelic),
                    record_order(block.sites, multiallelic),
                )
            yield block


def _whole_positions(blocks: Iterable[HaplotypeBlock], file: SampleFile) -> Iterator[HaplotypeBlock]:
    """Yield blocks that are cut between positions, never within one."""
    pending: HaplotypeBlock | None = None
    for block in blocks:
        if pending is not None:
            block = HaplotypeBlock(
                Sites.concatenate([pending.sites, block.sites]),
                np.concatenate([pending.alleles, block.alleles]),
                np.concatenate([pending.multiallelic, block.multiallelic]),
            )
        first = int(np.searchsorted(block.sites.position, block.sites.position[-1]))
        pending = _take(block, slice(first, None))
        if len(pending.sites) > MOST_AT_POSITION:
            where = f"{block.sites.chrom}:{block.sites.position[-1]}"
            raise file.error(f"more than {MOST_AT_POSITION:,} records at {where}. Is the file damaged?")
        if first:
            yield _take(block, slice(first))
    if pending is not None:
        yield pending


def _take(block: HaplotypeBlock, rows: np.ndarray | slice) -> HaplotypeBlock:
    return HaplotypeBlock(block.sites.take(rows), block.alleles[rows], block.multiallelic[rows])


class ParallelBatchReader:
    """Reader that uses several processes. Only the division into batches differs from `BatchReader`.

    The processes read `regions` of an indexed file, which are in order and do not overlap. A record belongs
    to the region in which it starts. Two encoded regions per process are kept in memory. Raises InputError
    like `BatchReader`, and also if a process dies or if the file has another chromosome than the regions.
    """

    def __init__(
        self,
        vcf: str | Path,
        region: Region | None,
        samples: Sequence[str] | None,
        regions: Sequence[Region],
        processes: int,
    ) -> None:
        with closing(BatchReader(vcf, region, samples)) as first:
            batch = next(first.batches())  # shows the ploidy and most possible defects of a file
        if batch.sites.chrom != regions[0].chrom:
            raise index_mismatch("panel", Path(vcf), f"the file begins with chromosome {batch.sites.chrom}")
        self.samples, self.contig_line, self.ploidy = first.samples, first.contig_line, first.ploidy
        at_0 = first.skipped.get(AT_POSITION_0, 0)  # these records are before all regions
        self.skipped: dict[str, int] = {AT_POSITION_0: at_0} if at_0 else {}
        self._vcf, self._chosen = Path(vcf), samples
        self._regions, self._processes = regions, min(processes, len(regions))

    def batches(self) -> Iterator[SiteBatch]:
        """Yield all batches. This works only once."""
        # "spawn", because a forked process could inherit a lock that another thread holds
        pool = ProcessPoolExecutor(self._processes, multiprocessing.get_context("spawn"), _end_with_parent)
        opened("read", f"panel {self._vcf}")
        try:
            remaining = iter(self._regions)
            futures: deque[Future[tuple[list[SiteBatch], dict[str, int]]]] = deque()
            while True:
                for region in islice(remaining, 2 * self._processes - len(futures)):
                    with _block_interrupts():
                        future = pool.submit(_read_region, self._vcf, region, self._chosen, self.ploidy)
                    futures.append(future)
                if not futures:
                    break
                batches, skipped = futures.popleft().result()
                for reason, count in skipped.items():
                    self.skipped[reason] = self.skipped.get(reason, 0) + count
                yield from batches
        except BrokenProcessPool as error:
            raise InputError(
                "damaged",
                f"panel {self._vcf}: a process that read it ended; the file is damaged, or memory ran out. "
                f"Build it with {argument('threads', 1)}",
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)
            closed("read", f"panel {self._vcf}")


@contextmanager
def _block_interrupts() -> Iterator[None]:
    """Block Ctrl-C while processes are started, so that they ignore it. They end with this process."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent() -> None:
    """Start a thread that ends this process when its parent ends: a killed parent cannot end it."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this is a process of the pool"

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _read_region(
    vcf: Path, region: Region, samples: Sequence[str] | None, ploidy: np.ndarray
) -> tuple[list[SiteBatch], dict[str, int]]:
    """Read a region. Return its batches, and the number of skipped records by reason."""
    reader = BatchReader(vcf, region, samples, ploidy)
    try:
        return list(reader.batches()), reader.skipped
    except NoRecord:
        return [], reader.skipped
