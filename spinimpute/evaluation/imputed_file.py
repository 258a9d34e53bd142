"""Reader of the dosages and genotype probabilities of an imputed file.

It reads the sites that `evaluate` scores, in blocks of up to 512 sites, so that memory stays small. Dosages
are read from DS, HDS, GP or GT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from spinimpute.evaluation.genotype_file import DOSAGE_FIELDS, MISSING, GenotypeFile, RecordCalls, SiteKey
from spinimpute.evaluation.truth import Truth, n_alleles, ploidy_rule
from spinimpute.evaluation.whole_genotypes import BestGenotypes, WholeGenotypes
from spinimpute.genotypes.builds import is_x
from spinimpute.runtime.errors import InputError, argument
from spinimpute.vcf.variant_file import Record

BLOCK_SITES = 512
PROBABILITY_TOLERANCE = 0.02  # for rounding errors; imputation programs write two decimals or more


@dataclass(frozen=True)
class ImputedBlock:
    """Imputed dosages and probabilities at some of the scored sites."""

    rows: np.ndarray  # int64 (n,): indices into `Truth.keys`
    dosage: np.ndarray  # float32 (n, n_samples): expected ALT count; NaN where the file has none
    # float32 (n, n_samples, 3): probabilities of 0, 1, 2 ALT alleles; NaN where the file has none. None if no
    # site of the block has probabilities.
    probability: np.ndarray | None


class _Allele(NamedTuple):
    """An ALT allele of a record."""

    number: int  # as in GT, from 1
    n_alts: int

    @property
    def n_genotypes(self) -> int:
        """Number of genotypes of a diploid sample."""
        return (self.n_alts + 1) * (self.n_alts + 2) // 2

    def probabilities(self, p_NG: np.ndarray, ploidy: np.ndarray) -> np.ndarray:
        """Return the probabilities of 0, 1 and 2 copies, float32 (n_samples, 3). p_NG: GP in VCF's order."""
        out = np.full((len(p_NG), 3), np.nan, dtype=np.float32)
        n_alleles = self.n_alts + 1
        if self.n_alts == 1:
            out[:, : p_NG.shape[1]] = p_NG[:, :3]
            return out
        others = np.delete(np.arange(n_alleles), self.number)
        haploid = ploidy == 1
        out[haploid, 0] = p_NG[haploid][:, others].sum(axis=1)
        out[haploid, 1] = p_NG[haploid, self.number]
        if not haploid.all():
            high, low = np.maximum(others, self.number), np.minimum(others, self.number)
            p_XG = p_NG[~haploid]
            one_copy = p_XG[:, high * (high + 1) // 2 + low].sum(axis=1)
            two_copies = p_XG[:, self.number * (self.number + 3) // 2]
            no_copy = np.maximum(p_XG.sum(axis=1) - one_copy - two_copies, 0)
            out[~haploid] = np.stack([no_copy, one_copy, two_copies], axis=1)
        return out


class _Columns:
    """The sample columns of a record. Each field is decoded once, also if the record has many ALT alleles."""

    def __init__(self, file: GenotypeFile, record: Record, columns: np.ndarray) -> None:
        self._file, self._record, self._columns = file, record, columns
        self.formats = file.formats(record)
        self._numbers: dict[str, np.ndarray] = {}
        self.where = f"{record.CHROM}:{record.POS}"

    def numbers(self, name: str) -> np.ndarray:
        """Return the values of a field, float32 (n_samples, n_values), NaN where missing."""
        if name not in self._numbers:
            values = self._file.numbers(self._record, name).values
            self._numbers[name] = values[self._columns].astype(np.float32)
        return self._numbers[name]

    @cached_property
    def calls(self) -> RecordCalls:
        """Genotypes (GT)."""
        return self._file.calls(self._record, self._columns)


@dataclass
class ImputedReader:
    """Reader of the dosages of `samples` at the sites of `truth`; all other sites are skipped.

    Multi-allelic records are also compared as `whole_genotypes`, if given. With `refuse_typed`, a site with
    INFO/TYPED raises InputError. `fields_used` collects the names of the fields from which dosages were read.
    """

    file: GenotypeFile
    samples: Sequence[str]
    truth: Truth
    whole_genotypes: WholeGenotypes | None = None
    refuse_typed: bool = False
    fields_used: set[str] = field(default_factory=set)

    def blocks(self) -> Iterator[ImputedBlock]:
        """Yield blocks of up to BLOCK_SITES sites in the order of the file.

        If a site is repeated, only its first record is used. Dosages are read from the first of DS, HDS, GP
        and GT that the record has. Raises InputError for invalid values, if a sample's ploidy differs from
        the truth, if a typed site is refused, or if the file is damaged.
        """
        fields = self.file.fields()
        if not fields:
            raise InputError(
                "content",
                f"{self.file.name} has none of the fields {', '.join(DOSAGE_FIELDS)}. "
                "Give the output of an imputation program.",
            )
        self.file.match_names({key[0] for key in self.truth.keys})
        row_of = {key: row for row, key in enumerate(self.truth.keys)}
        columns = np.array([self.file.samples.index(name) for name in self.samples], dtype=np.int64)
        rows: list[int] = []
        dosages: list[np.ndarray] = []
        probabilities: list[np.ndarray | None] = []
        chrom = ""
        # whether the ploidy of each sample still has to be compared with the truth on this chromosome
        unchecked = np.ones(len(columns), dtype=bool)
        all_checked = False  # stays False on X, because the ploidy of males changes along X
        for record in self.file.records():
            keys = self.file.site_keys(record)
            if row_of.keys().isdisjoint(keys):
                continue
            cells = _Columns(self.file, record, columns)
            whole = self.whole_genotypes if len(keys) > 1 else None
            if whole is not None and not whole.compares(keys[0][:3]):
                whole = None
            for number, key in enumerate(keys, start=1):
                row = row_of.pop(key, None)
                if row is None:
                    continue
                if self.refuse_typed and record.INFO.get("TYPED"):
                    raise InputError(
                        "arguments",
                        f"{self.file.name}: {record.CHROM}:{record.POS} was typed, and would be scored like "
                        f"an imputed site. Give the target that was imputed ({argument('typed')}), so that "
                        "its sites are excluded.",
                    )
                if chrom != key[0]:
                    chrom = key[0]
                    unchecked[:], all_checked = True, False
                ploidy = self.truth.ploidy(slice(row, row + 1))[0]
                if not all_checked and "GT" in cells.formats:
                    known = self.truth.count[row] != MISSING
                    unchecked &= ~self._check_ploidy(cells, key[0], known, ploidy)
                    all_checked = not (unchecked.any() or is_x(chrom))
                allele = _Allele(number, len(keys))
                probability = self._probability(cells, ploidy, allele) if "GP" in fields else None
                rows.append(row)
                dosages.append(self._dosage(cells, fields, probability, ploidy, allele))
                probabilities.append(probability)
                if whole is not None:
                    self._compare_whole_genotypes(whole, cells, keys, ploidy)
                    whole = None
                if len(rows) == BLOCK_SITES:
                    yield self._block(rows, dosages, probabilities)
                    rows, dosages, probabilities = [], [], []
        if rows:
            yield self._block(rows, dosages, probabilities)

    def _compare_whole_genotypes(
        self, whole: WholeGenotypes, cells: _Columns, keys: Sequence[SiteKey], ploidy: np.ndarray
    ) -> None:
        """Pass the most likely genotypes of a multi-allelic record on: those of GP or, without GP, of GT."""
        allele = _Allele(1, len(keys))
        if "GP" in cells.formats and self._fits(cells, "GP", ploidy, allele):
            best = BestGenotypes.of_probabilities(cells.numbers("GP"), len(keys), ploidy)
        elif "GT" in cells.formats:
            best = BestGenotypes.of_calls(cells.calls.alleles, len(keys))
        else:
            return
        whole.add(keys, best, ploidy)

    def _block(
        self, rows: list[int], dosages: list[np.ndarray], probabilities: list[np.ndarray | None]
    ) -> ImputedBlock:
        probability = None
        if any(one is not None for one in probabilities):
            unknown = np.full((len(self.samples), 3), np.nan, dtype=np.float32)
            probability = np.stack([unknown if one is None else one for one in probabilities])
        return ImputedBlock(np.array(rows, dtype=np.int64), np.stack(dosages), probability)

    def _dosage(
        self,
        cells: _Columns,
        fields: Sequence[str],
        probability: np.ndarray | None,
        ploidy: np.ndarray,
        allele: _Allele,
    ) -> np.ndarray:
        usable = (
            name for name in fields if name in cells.formats and self._fits(cells, name, ploidy, allele)
        )
        field_name = next(usable, None)
        if field_name is None:
            raise InputError(
                "content",
                f"{self.file.name}: the record at {cells.where} has none of the fields "
                f"{', '.join(DOSAGE_FIELDS)} with a value for each allele. Give the output of an imputation "
                "program.",
            )
        self.fields_used.add(field_name)
        if field_name == "GT":
            count = cells.calls.copies(allele.number)
            return np.where(count == MISSING, np.nan, count).astype(np.float32)
        if field_name == "GP":
            assert probability is not None  # GP is declared and in the record
            return np.where(ploidy == 1, probability[:, 1], probability[:, 1] + 2 * probability[:, 2])
        values = cells.numbers(field_name)
        if field_name == "DS":
            dosage = values[:, allele.number - 1]
        else:
            values = values[:, allele.number - 1 :: allele.n_alts]
            dosage = np.nansum(values, axis=1)
            dosage[(~np.isnan(values)).sum(1) < np.minimum(ploidy, values.shape[1])] = np.nan
        invalid = np.flatnonzero((dosage < 0) | (dosage > ploidy + PROBABILITY_TOLERANCE))
        if len(invalid):
            i = int(invalid[0])
            raise InputError(
                "content",
                f"{self.file.name}: sample {self.samples[i]} has {field_name} {dosage[i]:g} at "
                f"{cells.where}. A dosage must be between 0 and the number of alleles, "
                f"{ploidy[i]} in the truth.",
            )
        return dosage

    @staticmethod
    def _fits(cells: _Columns, name: str, ploidy: np.ndarray, allele: _Allele) -> bool:
        """Return whether a field of a multi-allelic record has values of each allele."""
        if name == "GT" or allele.n_alts == 1:
            return True
        width = cells.numbers(name).shape[1]
        if name == "GP":
            is_haploid = width == allele.n_alts + 1 and bool((ploidy == 1).all())
            return is_haploid or width == allele.n_genotypes
        return width in ((allele.n_alts,) if name == "DS" else (allele.n_alts, 2 * allele.n_alts))

    def _probability(self, cells: _Columns, ploidy: np.ndarray, allele: _Allele) -> np.ndarray | None:
        if "GP" not in cells.formats or not self._fits(cells, "GP", ploidy, allele):
            return None
        values = cells.numbers("GP")
        probability = allele.probabilities(values, ploidy)
        total = np.where(ploidy == 1, probability[:, :2].sum(1), probability.sum(1))
        is_invalid = (np.abs(total - 1) > PROBABILITY_TOLERANCE) | (values < 0).any(1)
        if is_invalid.any():
            i = int(np.argmax(is_invalid))
            gp_text = ",".join(f"{p:g}" for p in probability[i] if not np.isnan(p))
            raise InputError(
                "content",
                f"{self.file.name}: sample {self.samples[i]} has GP {gp_text} at {cells.where}. Genotype "
                "probabilities must sum to 1; Phred-scaled GP are not supported.",
            )
        return probability

    def _check_ploidy(
        self, cells: _Columns, chrom: str, known: np.ndarray, truth_ploidy: np.ndarray
    ) -> np.ndarray:
        """Return which samples have known genotypes in both files; their ploidy must be equal."""
        ploidy = cells.calls.ploidy
        known_in_both = known & (cells.calls.copies(1) != MISSING)
        clash = np.flatnonzero(known_in_both & (ploidy != truth_ploidy))
        if len(clash):
            i = int(clash[0])
            raise InputError(
                "content",
                f"{self.file.name}: sample {self.samples[i]} has {n_alleles(int(ploidy[i]))} at "
                f"{cells.where} and {truth_ploidy[i]} in the truth. {ploidy_rule(chrom)}",
            )
        return known_in_both
