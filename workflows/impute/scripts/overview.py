"""One page over all targets and chromosomes, and the same as tables: for programs, and for MultiQC.

python overview.py PAGE TABLE MULTIQC IMPUTED... --evaluations FOLDER...
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from spinimpute.evaluation.result import BASELINE, IMPUTED
from spinimpute.quality.summary import RELIABLE_SAMPLES
from spinimpute.reports.multiqc import Column, SampleTable
from spinimpute.reports.page import Page, Row, Section, paragraph, table
from spinimpute.vcf.variant_file import VariantFile

RELIABLE = 0.8  # R2
COMMON = 0.05  # minor allele frequency
COLUMNS = (
    Column("imputed_sites", "Imputed sites", "Sites that are not typed", "count"),
    Column(
        "common_sites", "Common", f"Imputed sites with a minor allele frequency of {COMMON} or more", "count"
    ),
    Column(
        "common_estimated_r2", "R2 of common", "Mean R2 of the common imputed sites, of their dosages", "r2"
    ),
    Column(
        "common_share_reliable",
        f"R2 ≥ {RELIABLE}",
        f"Share of the common sites with R2 ≥ {RELIABLE}",
        "share",
    ),
    Column("scored_sites", "Scored", "Sites that were compared with true genotypes", "count"),
    Column("true_pooled_r2", "True r²", "Pooled r² of dosages and true genotypes at the scored sites", "r2"),
)


@dataclass(frozen=True)
class Chromosome:
    """What is told of a target's chromosome.

    Attributes
    ----------
    target, chromosome : str
        Which it is.
    told : dict
        Numbers by name, the columns of the table; None for what is not known.
    """

    target: str
    chromosome: str
    told: dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("multiqc", type=Path)
    parser.add_argument("imputed", type=Path, nargs="+")
    parser.add_argument("--evaluations", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    evaluations = {(path.parts[-3], path.parts[-2]): path for path in arguments.evaluations}
    found = []
    for path in arguments.imputed:
        target, chrom = path.name.removesuffix(".vcf.gz").rsplit(".", 1)
        told = quality(path) | judged(evaluations.get((target, chrom)))
        found.append(Chromosome(target, chrom, told))
    rows = [{"target": one.target, "chromosome": one.chromosome} | one.told for one in found]
    columns = pd.DataFrame(rows).convert_dtypes()  # counts stay whole where some are missing
    columns.to_csv(arguments.table, sep="\t", index=False, float_format="%.4f", na_rep="NA")
    overview(found).write(arguments.page)
    SampleTable(
        "spinimpute_chromosomes",
        "spinimpute: imputed chromosomes",
        "A row for each target and chromosome. R2 is estimated from the dosages.",
        COLUMNS,
        {f"{one.target}.{one.chromosome}": one.told for one in found},
    ).write(arguments.multiqc)


def overview(found: list[Chromosome]) -> Page:
    """The page: targets apart, as their means are over other samples and sites, and true accuracy apart."""
    targets = list(dict.fromkeys(one.target for one in found))
    chromosomes = {one.chromosome for one in found}
    about = paragraph(
        f"R2 is estimated from the dosages; sites with R2 of {RELIABLE} or more are commonly kept. Each mean "
        "is over the imputed sites of one chromosome, all of them or those alone that are common in the "
        "output (MAF: minor allele frequency). Targets stand apart: their means are over other samples, and "
        "over other sites where other sites are typed."
    )
    return Page(
        "Imputed genotypes",
        f"{counted(len(targets), 'target')}, {counted(len(chromosomes), 'chromosome')}",
        [
            about,
            *(of_target([one for one in found if one.target == name]) for name in targets),
            scored(found),
        ],
        "spinimpute",
    )


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def of_target(found: list[Chromosome]) -> Section:
    """A section with a row for each chromosome."""
    n_samples = found[0].told["samples"]
    few = f"; R2 is unreliable below {RELIABLE_SAMPLES} samples" if n_samples < RELIABLE_SAMPLES else ""
    names = (
        "imputed_sites",
        "estimated_r2",
        "share_reliable",
        "common_sites",
        "common_estimated_r2",
        "common_share_reliable",
    )
    head = ["chromosome", "imputed sites", "mean R2", f"share with R2 ≥ {RELIABLE}"]
    common = [f"with MAF ≥ {COMMON:.0%}", "mean R2 of these", f"share of these with R2 ≥ {RELIABLE}"]
    rows: list[Row] = [[one.chromosome, *(one.told[name] for name in names)] for one in found]
    caption = f"Over the imputed sites of each chromosome and {counted(n_samples, 'sample')}{few}"
    return Section(found[0].target, [table([*head, *common], rows, caption, sortable=len(found) > 1)])


def scored(found: list[Chromosome]) -> Section | None:
    """A section on what was compared with true genotypes; None if nothing was."""
    names = ("scored_samples", "scored_sites", "true_pooled_r2", "frequencies_pooled_r2", "true_mean_r2")
    head = [
        "target", "chromosome", "samples", "sites", "pooled r²", "pooled r² of the panel's frequencies alone",
        "mean r² per site",
    ]  # fmt: skip
    rows: list[Row] = [
        [one.target, one.chromosome, *(one.told[name] for name in names)]
        for one in found
        if one.told["scored_sites"] is not None
    ]
    if not rows:
        return None
    caption = "Over the samples and sites that were scored: in truth and panel, and not typed"
    return Section(
        "Against true genotypes", [table(head, rows, caption, sortable=len(rows) > 1, wrapped=True)]
    )


def quality(path: Path) -> dict[str, Any]:
    """Of the imputed sites of a file."""
    with VariantFile(path, "imputed") as file:
        sites = [
            (record.INFO.get("R2"), record.INFO.get("MAF"))
            for record in file.records()
            if record.INFO.get("TYPED") is None
        ]
    r2, frequency = np.array(sites, dtype=float).reshape(-1, 2).T
    common = r2[frequency >= COMMON]
    return {
        "samples": len(file.samples),
        "imputed_sites": len(r2),
        "estimated_r2": mean(r2),
        "share_reliable": mean(r2 >= RELIABLE),
        "common_sites": len(common),
        "common_estimated_r2": mean(common),
        "common_share_reliable": mean(common >= RELIABLE),
    }


def mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None


def judged(folder: Path | None) -> dict[str, Any]:
    """Of an evaluation, over all frequencies."""
    names = ("scored_samples", "scored_sites", "true_pooled_r2", "true_mean_r2", "frequencies_pooled_r2")
    if folder is None:
        return dict.fromkeys(names)
    rows = pd.read_csv(folder / "accuracy.tsv", sep="\t", index_col=["imputer", "bin"])
    ours = rows.loc[(IMPUTED, "all")]
    alone = rows.loc[(BASELINE, "all")]
    samples = pd.read_csv(folder / "samples.tsv", sep="\t")
    values = (len(samples), int(ours["sites"]), ours["pooled_r2"], ours["mean_r2"], alone["pooled_r2"])
    return dict(zip(names, values, strict=True))


if __name__ == "__main__":
    main()
