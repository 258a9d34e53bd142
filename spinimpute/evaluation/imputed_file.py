"""Streaming the dosages and genotype probabilities of an imputed file, from whichever field it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from spinimpute.evaluation.genotype_file import DOSAGE_FIELDS, MISSING, GenotypeFile
from spinimpute.evaluation.truth import Truth, n_alleles, what_ploidy
from spinimpute.genotypes.x_chromosome import is_x
from spinimpute.runtime.errors import InputError, argument
from spinimpute.vcf.variant_file import Record

BLOCK_SITES = 512
MISSING_INTEGER = np.iinfo(np.int32).min
PROBABILITY_TOLERANCE = 0.02  # programs print two decimals and more


@dataclass(frozen=True)
class ImputedBlock:
    """Some sites of the imputed file that are scored.

    Attributes
    ----------
    rows : int64 (n,)
        Indices into `Truth.keys`.
    dosage : float32 (n, n_samples)
        Expected ALT count; NaN where the file has none.
    probability : float32 (n, n_samples, 3) or None
        Of 0, 1, 2 ALT alleles; NaN where the file has none, None where it has none at all of these sites.
    """

    rows: np.ndarray
    dosage: np.ndarray
    probability: np.ndarray | None


@dataclass
class ImputedReader:
    """Streams the dosages of the sites that are scored and skips all others.

    Attributes
    ----------
    file : GenotypeFile
        The imputed file, just opened.
    samples : sequence of str
        Names of the samples to read, in the order wanted.
    truth : Truth
        The sites that are scored, with the ploidy of each genotype.
    refuse_typed : bool
        Whether sites that the file says were typed (INFO/TYPED) are refused.
    fields_used : set of str
        The fields of DS, HDS, GP and GT that dosages were taken from.
    """

    file: GenotypeFile
    samples: Sequence[str]
    truth: Truth
    refuse_typed: bool = False
    fields_used: set[str] = field(default_factory=set)

    def blocks(self) -> Iterator[ImputedBlock]:
        """Blocks of up to `BLOCK_SITES` sites, each scored site once (the first record of it).

        Dosages are DS, else HDS, else GP, else GT, whichever a record has first.

        Yields
        ------
        ImputedBlock
            The next sites, in the order of the file.

        Raises
        ------
        InputError
            No such field, values that cannot be dosages or probabilities, another ploidy than the truth's, a
            typed site that is refused, or a damaged file.
        """
        fields = self.file.fields()
        if not fields:
            raise InputError(
                "content",
                f"{self.file.name} has none of the fields {', '.join(DOSAGE_FIELDS)}; "
                "give the output of an imputation program",
            )
        self.file.match_names({key[0] for key in self.truth.keys})
        row_of = {key: row for row, key in enumerate(self.truth.keys)}
        columns = np.array([self.file.samples.index(name) for name in self.samples], dtype=np.int64)
        rows: list[int] = []
        dosages: list[np.ndarray] = []
        probabilities: list[np.ndarray | None] = []
        chrom = ""
        unchecked = np.ones(len(columns), dtype=bool)  # samples whose ploidy was not compared yet on chrom
        done = False  # all were; never on X, where it changes
        for record in self.file.records():
            keys = self.file.site_keys(record)
            if len(keys) != 1:
                continue
            row = row_of.pop(keys[0], None)
            if row is None:
                continue
            if self.refuse_typed and record.INFO.get("TYPED"):
                raise InputError(
                    "arguments",
                    f"{self.file.name}: {record.CHROM}:{record.POS} was typed, and counts as if it had been "
                    f"imputed: give the target that was imputed ({argument('typed')}), so "
                    f"that its sites are left out",
                )
            if chrom != keys[0][0]:
                chrom = keys[0][0]
                unchecked[:], done = True, False
            ploidy = self.truth.ploidy(slice(row, row + 1))[0]
            if not done and "GT" in self.file.formats(record):
                known = self.truth.count[row] != MISSING
                unchecked &= ~self._check_ploidy(record, columns, known, ploidy)
                done = not (unchecked.any() or is_x(chrom))
            probability = self._probability(record, columns, ploidy) if "GP" in fields else None
            rows.append(row)
            dosages.append(self._dosage(record, columns, fields, probability, ploidy))
            probabilities.append(probability)
            if len(rows) == BLOCK_SITES:
                yield self._block(rows, dosages, probabilities)
                rows, dosages, probabilities = [], [], []
        if rows:
            yield self._block(rows, dosages, probabilities)

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
        record: Record,
        columns: np.ndarray,
        fields: Sequence[str],
        probability: np.ndarray | None,
        ploidy: np.ndarray,
    ) -> np.ndarray:
        there = self.file.formats(record)
        present = next((name for name in fields if name in there), None)
        if present is None:
            raise InputError(
                "content",
                f"{self.file.name}: the record at {record.CHROM}:{record.POS} has none of the fields "
                f"{', '.join(DOSAGE_FIELDS)}",
            )
        self.fields_used.add(present)
        if present == "GT":
            count, _ = self.file.allele_counts(record, columns)
            return np.where(count == MISSING, np.nan, count).astype(np.float32)
        if present == "GP":
            assert probability is not None  # GP is declared and in the record
            return np.where(ploidy == 1, probability[:, 1], probability[:, 1] + 2 * probability[:, 2])
        values = self._numbers(record, present, columns)
        if present == "DS":
            dosage = values[:, 0]
        else:
            dosage = np.nansum(values, axis=1)
            dosage[(~np.isnan(values)).sum(1) < np.minimum(ploidy, values.shape[1])] = np.nan
        if (dosage < 0).any() or (dosage > ploidy + PROBABILITY_TOLERANCE).any():
            wrong = int(np.flatnonzero((dosage < 0) | (dosage > ploidy + PROBABILITY_TOLERANCE))[0])
            raise InputError(
                "content",
                f"{self.file.name}: sample {self.samples[wrong]} has {present} {dosage[wrong]:g} at "
                f"{record.CHROM}:{record.POS}; a dosage lies between 0 and the number of alleles, "
                f"{ploidy[wrong]} in the truth",
            )
        return dosage

    def _probability(self, record: Record, columns: np.ndarray, ploidy: np.ndarray) -> np.ndarray | None:
        if "GP" not in self.file.formats(record):
            return None
        values = self._numbers(record, "GP", columns)
        probability = np.full((len(columns), 3), np.nan, dtype=np.float32)
        probability[:, : values.shape[1]] = values[:, :3]
        total = np.where(ploidy == 1, probability[:, :2].sum(1), probability.sum(1))
        wrong = np.flatnonzero(np.abs(total - 1) > PROBABILITY_TOLERANCE)
        if len(wrong) or (probability < 0).any():
            i = int(wrong[0]) if len(wrong) else int(np.flatnonzero((probability < 0).any(1))[0])
            shown = ",".join(f"{p:g}" for p in probability[i] if not np.isnan(p))
            raise InputError(
                "content",
                f"{self.file.name}: sample {self.samples[i]} has GP {shown} at {record.CHROM}:{record.POS}; "
                "genotype probabilities must sum to 1 (phred-scaled GP are not supported)",
            )
        return probability

    def _numbers(self, record: Record, name: str, columns: np.ndarray) -> np.ndarray:
        """float32 (n_samples, n_values), NaN where missing."""
        try:
            values = np.asarray(record.format(name))
        except Exception:  # of no type of its own, where the header does not define the field as it must
            values = np.empty(0, dtype=object)
        if values.dtype.kind not in "if" or values.ndim != 2:
            raise InputError(
                "content",
                f"{self.file.name}: {name} at {record.CHROM}:{record.POS} holds no numbers; the header must "
                "declare it as Type=Float",
            )
        numbers = values[columns].astype(np.float32)
        if values.dtype.kind == "i":
            numbers[numbers <= MISSING_INTEGER + 7] = np.nan
        return numbers

    def _check_ploidy(
        self, record: Record, columns: np.ndarray, known: np.ndarray, of_truth: np.ndarray
    ) -> np.ndarray:
        """bool (n_samples,): the samples whose ploidy is known in both files; it is the same."""
        count, ploidy = self.file.allele_counts(record, columns)
        in_both = known & (count != MISSING)
        clash = np.flatnonzero(in_both & (ploidy != of_truth))
        if len(clash):
            i = int(clash[0])
            raise InputError(
                "content",
                f"{self.file.name}: sample {self.samples[i]} has {n_alleles(int(ploidy[i]))} at "
                f"{record.CHROM}:{record.POS} and {of_truth[i]} in the truth; "
                f"{what_ploidy(self.file.chromosome(record.CHROM))}",
            )
        return in_both
