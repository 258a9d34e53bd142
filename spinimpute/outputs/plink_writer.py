"""Writer of genotypes or dosages for PLINK 2: .pgen, .pvar and .psam.

The library pgenlib writes the .pgen. It accepts either unphased dosages or phased genotypes. A file with
dosages therefore has no phase.

Axes: r records, n samples, p haplotypes of a sample.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from spinimpute.genotypes.builds import NON_PAR, infer_build, is_x, x_regions
from spinimpute.runtime.errors import InputError, argument
from spinimpute.runtime.output_files import OutputGroup
from spinimpute.runtime.partial_files import PartialFile
from spinimpute.targets.plink import load_pgenlib
from spinimpute.vcf.header import OutputLayout, make_header
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.record_fields import (
    ALLELE_ABSENT,
    NumberCodes,
    SampleLayout,
    info_columns,
    info_texts,
    structural_columns,
)

MISSING = -9  # pgenlib's value for a missing genotype or dosage
_SEX = {True: "1", False: "2", None: "NA"}
_BLOCK_CALLS = 2**20  # genotypes passed to pgenlib in one call; limits the memory


class PlinkWriter(OutputGroup):
    """A context manager that writes blocks of records; after an exception no file remains.

    With GT as the only FORMAT field, phased genotypes are written, otherwise dosages. Dosages are rounded as
    in VCF. Dosages of males on X range from 0 to 2, as PLINK expects. `n_records` is the number of records,
    or with `may_be_fewer` the largest number. `sexes` says which samples are male. Raises InputError if
    pgenlib is not installed, if a path cannot be written, or if PLINK cannot read a sample's name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        layout: OutputLayout,
        n_records: int,
        sexes: Mapping[str, bool] | None = None,
        *,
        may_be_fewer: bool = False,
    ) -> None:
        """Check the arguments, and open the files."""
        self._header = make_header(layout._replace(formats=()))
        check_names(layout.samples)
        self._samples = list(layout.samples)
        self._builds = {
            name: next(filter(None, (infer_build(line, name) for line in layout.contig_lines)), "")
            for name in self._header.contigs
        }
        self._sexes = dict(sexes or {})
        self._codes = NumberCodes(layout.decimals)
        self._has_dosages = any(name != "GT" for name in layout.formats)
        self.set_ploidy(layout.ploidy)
        self._n_records, self._n_written = n_records, 0
        self._batch = max(1, _BLOCK_CALLS // len(self._samples))
        self._scratch: PartialFile | None = None
        self._pgen: Any = None
        self._pvar: TextIO | None = None
        path = Path(path)
        super().__init__(path, [path, path.with_suffix(".pvar"), path.with_suffix(".psam")], "pgenlib")
        with self.convert_errors():
            self._pvar = self.files[1].path.open("w", encoding="utf-8", newline="\n")
            *lines, _ = self._header.text.splitlines(keepends=True)
            self._pvar.write("".join(lines) + "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
            if may_be_fewer:
                self._scratch = PartialFile(path.with_name(f"{path.name}.all"))
            self._pgen = self._open_pgen((self._scratch or self.files[0]).path, n_records)

    def _open_pgen(self, path: Path, n_records: int) -> Any:
        return load_pgenlib().PgenWriter(
            os.fsencode(path),
            len(self._samples),
            n_records,
            nonref_flags=False,
            hardcall_phase_present=not self._has_dosages,
            dosage_present=self._has_dosages,
        )

    def set_ploidy(self, ploidy: np.ndarray) -> None:
        """Set the ploidy of the samples in the following blocks. It differs between the parts of X."""
        self._ploidy = np.asarray(ploidy)
        self._layout = SampleLayout(self._ploidy, ("DS",) if self._has_dosages else ("GT",), self._codes)

    def write_block(self, block: RecordBlock) -> None:
        """Append records. Raises the InputError of `GenotypeWriter.write_block`."""
        if not len(block):
            return
        sites = block.sites
        names = self._plink_chromosomes(block.chrom, sites.position)
        columns = info_columns(self._header, block.info, np.asarray(block.typed, bool))
        texts = info_texts(structural_columns(sites) | columns)
        ids = [name or "." for name in sites.id]
        rows = zip(names, sites.position.tolist(), ids, sites.ref, sites.alt, texts, strict=True)
        with self.convert_errors():
            assert self._pvar is not None
            self._pvar.writelines(
                f"{name}\t{position}\t{id_}\t{ref}\t{alt}\t.\tPASS\t{text}\n"
                for name, position, id_, ref, alt, text in rows
            )
            for start in range(0, len(block), self._batch):
                part = block.take(slice(start, start + self._batch))
                fields = self._layout.fields(
                    np.asarray(part.hap_dosage, np.float32), part.haplotypes, part.unphased
                )
                if self._has_dosages:
                    self._pgen.append_dosages_batch(self._dosages_of_two(fields.numbers["DS"][0]))
                else:
                    self._append_genotypes(fields.alleles, fields.unphased)
        self._n_written += len(block)

    def _dosages_of_two(self, codes: np.ndarray) -> np.ndarray:
        """Convert codes of DS to dosages, float32 (r, n), from 0 to 2 also for males on X."""
        copies = codes.astype(np.float32) * ((3 - self._ploidy) / self._codes.one).astype(np.float32)
        copies[codes == self._codes.missing] = MISSING
        return np.ascontiguousarray(copies)

    def _append_genotypes(self, alleles: np.ndarray, unphased: np.ndarray | None) -> None:
        """Append genotypes, int8 (r, n, p). A genotype with one missing allele becomes missing."""
        second = alleles[:, :, -1]
        pairs = np.stack([alleles[:, :, 0], np.where(second == ALLELE_ABSENT, alleles[:, :, 0], second)], 2)
        missing = pairs.min(axis=2, keepdims=True) < 0
        calls = np.where(missing, MISSING, pairs).astype(np.int32)
        phased = np.ones(calls.shape[:2], np.uint8) if unphased is None else (~unphased).astype(np.uint8)
        self._pgen.append_partially_phased_batch(calls.reshape(len(calls), -1), np.ascontiguousarray(phased))

    def _plink_chromosomes(self, chrom: str, position: np.ndarray) -> list[str]:
        """Return PLINK's chromosome name of each position (X, PAR1 or PAR2 on X). Record sexes on X."""
        if not is_x(chrom):
            return [chrom] * len(position)
        names = np.full(position.shape, chrom, dtype=object)
        build = self._builds[chrom]
        for part in x_regions(chrom, build) if build else []:
            if part.name != NON_PAR:
                names[(position >= part.region.start) & (position <= part.region.end)] = part.name
        if (names == chrom).any() and (build or (self._ploidy == 1).any()):
            self._sexes.update(zip(self._samples, (self._ploidy == 1).tolist(), strict=True))
        return names.tolist()

    def write_trailers(self) -> None:
        """Finish the .pgen and .pvar, and write the .psam."""
        assert self._pvar is not None
        if self._scratch is not None:
            self._copy_from_scratch(self._scratch)
        pgen, self._pgen = self._pgen, None
        pgen.close()
        self._pvar.close()
        rows = ["#IID\tSEX", *(f"{name}\t{_SEX[self._sexes.get(name)]}" for name in self._samples)]
        self.files[2].path.write_text("\n".join(rows) + "\n", encoding="utf-8", newline="\n")

    def _copy_from_scratch(self, scratch: PartialFile) -> None:
        """Copy the records to a .pgen of the right size: pgenlib needs the number of records first."""
        n_samples, n_written = len(self._samples), self._n_written
        if not n_written:
            raise InputError(
                "content",
                f"{self.path}: no site passes the filters, and PLINK cannot store a file without sites. Give "
                f"a lower {argument('min_r2')} or {argument('min_maf')}",
            )
        for start in range(n_written, self._n_records, self._batch):  # fill the scratch file
            n_rows = min(self._batch, self._n_records - start)
            if self._has_dosages:
                self._pgen.append_dosages_batch(np.zeros((n_rows, n_samples), np.float32))
            else:
                self._pgen.append_alleles_batch(np.zeros((n_rows, 2 * n_samples), np.int32), True)
        self._pgen.close()
        self._pgen = self._open_pgen(self.files[0].path, n_written)
        with load_pgenlib().PgenReader(os.fsencode(scratch.path)) as reader:
            for start in range(0, n_written, self._batch):
                stop = min(start + self._batch, n_written)
                if self._has_dosages:
                    dosages = np.empty((stop - start, n_samples), np.float32)
                    reader.read_dosages_range(start, stop, dosages)
                    self._pgen.append_dosages_batch(dosages)
                else:
                    calls = np.empty((stop - start, 2 * n_samples), np.int32)
                    phased = np.empty((stop - start, n_samples), np.uint8)
                    reader.read_alleles_and_phasepresent_range(start, stop, calls, phased)
                    self._pgen.append_partially_phased_batch(calls, phased)
        scratch.discard()

    def drop(self) -> None:
        """Close the incomplete .pvar and .pgen."""
        if self._scratch is not None:
            self._scratch.discard()
        pgen, self._pgen = self._pgen, None
        with suppress(OSError):
            if self._pvar is not None:
                self._pvar.close()
        with suppress(RuntimeError):
            if pgen is not None:
                pgen.close()


def check_names(samples: Sequence[str]) -> None:
    """Raise InputError if PLINK cannot read the name of a sample."""
    for name in samples:
        if len(name.split()) != 1 or name == "0" or name.startswith("#"):
            raise InputError(
                "content",
                f"a sample is named {name!r}, which PLINK cannot read. Names must not have blanks, start "
                "with '#' or be 0. Rename the sample, or write VCF or BCF",
            )
