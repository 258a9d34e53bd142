"""Files in the formats of GLIMPSE2_concordance, which MultiQC and other programs read.

The counts come from `quality.concordance`, and `evaluate` writes the files. File names, column names (with
GLIMPSE2's misspellings) and decimals follow GLIMPSE2 2.0 for diploid samples. Comment lines begin with "#".
Columns are separated by a single space.
"""

import gzip
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from spinimpute.quality.concordance import (
    BEST,
    CALIBRATION_BINS,
    DOSAGE,
    FREQUENCY,
    GENOTYPES,
    MATCHES,
    MISMATCHES,
    VALIDATED,
    Concordance,
    tally_r2,
)
from spinimpute.runtime.errors import InputError, printable
from spinimpute.runtime.output_files import atomic_write

ERRORS_BY_SAMPLE = ".error.spl.txt.gz"
ERRORS_BY_BIN = ".error.grp.txt.gz"
ERRORS_BY_PROBABILITY = ".error.cal.txt.gz"
R2_BY_BIN = ".rsquare.grp.txt.gz"
R2_BY_SAMPLE = ".rsquare.spl.txt.gz"
SUFFIXES = (ERRORS_BY_SAMPLE, ERRORS_BY_BIN, ERRORS_BY_PROBABILITY, R2_BY_BIN, R2_BY_SAMPLE)

_KINDS = (("S", "SNPs"), ("I", "indels"), ("V", "Variants: SNPs + indels"))
_MATCHES = (
    "RR_hom_matches RA_het_matches AA_hom_matches RR_hom_mismatches RA_het_mismatches AA_hom_mismatches"
)
_RATES = "RR_hom_mismatches_rate_percent RA_het_mismatches_rate_percent AA_hom_mimatches"
_R2 = "best_gt_rsquared imputed_ds_rsquared"
_SAMPLE_COLUMNS = (
    f"id sample_name #val_gt_RR #val_gt_RA #val_gt_AA #filtered_gp {_MATCHES} {_RATES} "
    f"non_reference_discordanc_rate_percent {_R2}"
)
_BIN_COLUMNS = (
    "id n_genotypes mean_AF #val_gt_RR #val_gt_RA #val_gt_AA filtered_gp "
    f"{_MATCHES} {_RATES}_rate_percent {_R2}"
)
_PROBABILITY_COLUMNS = (
    f"id start_bin end_bin avg_bin {_MATCHES} {_RATES}_rate_percent all_mismatches_rate_percent"
)


def concordance_paths(prefix: str | os.PathLike[str]) -> list[Path]:
    """Return the paths of all files with a prefix, in the order of SUFFIXES.

    Raises InputError if the files would be hidden: their names would be empty or begin with a dot.
    """
    text = os.fspath(prefix)
    name = text.rpartition("/")[2]
    if not name or name.startswith("."):
        raise InputError(
            "argument",
            f"concordance files with the prefix {text!r} would be hidden files. Give a prefix of file names, "
            "such as evaluation/chr20.",
        )
    return [Path(text + suffix) for suffix in SUFFIXES]


def write_concordance(concordance: Concordance, samples: list[str], prefix: str | os.PathLike[str]) -> None:
    """Write the files with a prefix. If one cannot be written, none is.

    Without genotype probabilities (GP) there is no calibration file. A calibration file of an earlier
    evaluation is then deleted.
    """
    names = [re.sub(r"\s", "_", printable(name)) for name in samples]  # a blank separates columns
    calibrated = bool(concordance.by_probability.any())
    texts: tuple[Iterable[str] | None, ...] = (
        _errors_by_sample(concordance.by_sample, names),
        _errors_by_bin(concordance.by_bin),
        _errors_by_probability(concordance.by_probability) if calibrated else None,
        _r2_by_bin(concordance.by_bin.sum(axis=0)),
        _r2_by_sample(concordance.by_sample.sum(axis=0), names),
    )
    paths = concordance_paths(prefix)
    with ExitStack() as stack:  # renames all files from their temporary names after the last is written
        for path, lines in zip(paths, texts, strict=True):
            if lines is None:
                continue
            partial = stack.enter_context(atomic_write(path))
            with partial.open("wb") as file, gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
                packed.writelines(f"{line}\n".encode() for line in lines)
    if not calibrated:
        paths[SUFFIXES.index(ERRORS_BY_PROBABILITY)].unlink(missing_ok=True)


def _errors_by_sample(by_kind: np.ndarray, names: list[str]) -> Iterator[str]:
    for (code, kind), tally in zip(_KINDS, _with_total(by_kind), strict=True):
        yield f"#Genotype concordance by sample ({kind})"
        yield f"#GCs{code} {_SAMPLE_COLUMNS}"
        for index, (name, row, r2) in enumerate(zip(names, tally, _r2_pairs(tally), strict=True)):
            wrong = row[MISMATCHES].sum()
            discordance = _percent(wrong, row[MATCHES][1:].sum() + wrong)
            yield f"GCs{code} {index} {name} {_error_columns(row)} {discordance:.3f} {r2[0]:.6f} {r2[1]:.6f}"


def _errors_by_bin(by_kind: np.ndarray) -> Iterator[str]:
    for (code, kind), tally in zip(_KINDS, _with_total(by_kind), strict=True):
        yield f"#Genotype concordance by allele frequency bin ({kind})"
        yield f"#GCs{code}AF {_BIN_COLUMNS}"
        for index, (row, r2) in enumerate(zip(tally, _r2_pairs(tally), strict=True)):
            yield (
                f"GCs{code}AF {index} {row[GENOTYPES]:.0f} {_mean_frequency(row):.6f} {_error_columns(row)} "
                f"{r2[0]:.6f} {r2[1]:.6f}"
            )


def _errors_by_probability(by_kind: np.ndarray) -> Iterator[str]:
    for (code, kind), counts in zip(_KINDS, _with_total(by_kind), strict=True):
        yield f"#Genotype {'concordance' if code == 'V' else 'caoncordance'} by calibration bin ({kind})"
        yield f"#GCs{code}C {_PROBABILITY_COLUMNS}"
        for index, (right, wrong) in enumerate(counts):
            low, high, middle = ((index + offset) / CALIBRATION_BINS for offset in (0, 1, 0.5))
            rates = [_percent(w, r + w) for r, w in zip(right, wrong, strict=True)]
            overall = _percent(wrong.sum(), right.sum() + wrong.sum())
            yield (
                f"GCs{code}C {index} {low:.2f} {high:.2f} {middle:.3f} {_integers([*right, *wrong])} "
                f"{rates[0]:.6f} {rates[1]:.6f} {rates[2]:.4f} {overall:.6f}"
            )


def _r2_by_bin(tally: np.ndarray) -> Iterator[str]:
    for index, (row, r2) in enumerate(zip(tally, _r2_pairs(tally), strict=True)):
        yield f"{index} {row[GENOTYPES]:.0f} {_mean_frequency(row):g} {r2[0]:g} {r2[1]:g}"


def _r2_by_sample(tally: np.ndarray, names: list[str]) -> Iterator[str]:
    for name, r2 in zip(names, _r2_pairs(tally), strict=True):
        yield f"{name} {r2[0]:g} {r2[1]:g}"


def _with_total(by_kind: np.ndarray) -> list[np.ndarray]:
    """Return the tallies of SNPs, of indels, and of both together."""
    return [*by_kind, by_kind.sum(axis=0)]


def _r2_pairs(tally: np.ndarray) -> np.ndarray:
    """Return the r2 of the most likely genotype and the r2 of the dosage, float64 (n_tallies, 2)."""
    return np.stack([tally_r2(tally, BEST), tally_r2(tally, DOSAGE)], axis=1)


def _error_columns(row: np.ndarray) -> str:
    """Return the columns from "#val_gt_RR" to the error rates. No genotype is filtered by GP."""
    right, wrong = row[MATCHES], row[MISMATCHES]
    rates = " ".join(f"{_percent(w, r + w):.3f}" for r, w in zip(right, wrong, strict=True))
    return f"{_integers(row[VALIDATED])} 0 {_integers([*right, *wrong])} {rates}"


def _mean_frequency(row: np.ndarray) -> float:
    return float(row[FREQUENCY] / max(row[GENOTYPES], 1))


def _percent(part: float, whole: float) -> float:
    return 100.0 * part / whole if whole else 0.0


def _integers(numbers: Iterable[float]) -> str:
    return " ".join(f"{number:.0f}" for number in numbers)
