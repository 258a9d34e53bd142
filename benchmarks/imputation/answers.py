"""True genotypes and imputed dosages as arrays, in copies of the panel's minor allele as in the scorer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.imputation.cases import Case
from spinimpute.evaluation.genotype_file import MISSING, GenotypeFile
from spinimpute.evaluation.imputed_file import ImputedReader
from spinimpute.evaluation.truth import Truth, read_panel, read_truth, read_typed_sites
from spinimpute.quality.metrics import minor_allele_dosage, minor_allele_probabilities


@dataclass(frozen=True)
class Answers:
    """True genotypes of the S people of a case at its X scored sites."""

    truth: Truth
    people: list[str]
    position: np.ndarray  # int64 (X,)
    minor_frequency: np.ndarray  # float64 (X,), in the panel
    true_XS: np.ndarray  # float32, minor alleles; NaN where unknown
    typed_position: np.ndarray  # int64, sorted: of the target's sites that the panel has

    @property
    def n_sites(self) -> int:
        return len(self.position)


@dataclass(frozen=True)
class Guess:
    """Dosages and probabilities of an imputer at the scored sites."""

    dosage_XS: np.ndarray  # float32, minor alleles
    probability_XSG: np.ndarray | None  # float32, of 0, 1, 2 minor alleles; None without GP


def read_answers(case: Case) -> Answers:
    """Read the true genotypes at the sites that the scorer scores."""
    file = GenotypeFile(case.truth, "truth")
    frequencies = read_panel(case.panel)
    people = list(file.samples)
    truth = read_truth(file, people, frequencies, read_typed_sites(case.scored_without, frequencies))
    count = np.where(truth.count == MISSING, np.nan, truth.count).astype(np.float32)
    true, minor = minor_allele_dosage(count, truth.frequency, truth.ploidy())
    typed = [key[1] for key in read_typed_sites(case.target, frequencies) if key in frequencies.frequency]
    position = np.array([key[1] for key in truth.keys], dtype=np.int64)
    return Answers(truth, people, position, minor, true, np.unique(np.array(typed, dtype=np.int64)))


def read_guess(answers: Answers, imputed: Path) -> Guess:
    """Read dosages, and GP if the file has it. A site that the file lacks gets the panel's frequency."""
    truth = answers.truth
    shape = answers.true_XS.shape
    dosage = (truth.frequency[:, None] * truth.ploidy()).astype(np.float32)
    probability = None
    for block in ImputedReader(GenotypeFile(imputed, "imputed"), answers.people, truth).blocks():
        known = ~np.isnan(block.dosage)
        dosage[block.rows] = np.where(known, block.dosage, dosage[block.rows])
        if block.probability is not None:
            if probability is None:
                probability = np.full((*shape, 3), np.nan, dtype=np.float32)
            probability[block.rows] = minor_allele_probabilities(
                block.probability, truth.frequency[block.rows], truth.ploidy(block.rows)
            )
    return Guess(minor_allele_dosage(dosage, truth.frequency, truth.ploidy())[0], probability)
