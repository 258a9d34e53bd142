"""One page and one table over all targets and chromosomes.

python overview.py PAGE TABLE IMPUTED... --evaluations FOLDER...
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd

from spinimpute.reports.page import page, paragraph, section, table
from spinimpute.vcf.variant_file import VariantFile

RELIABLE = 0.8  # R2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=Path)
    parser.add_argument("table", type=Path)
    parser.add_argument("imputed", type=Path, nargs="+")
    parser.add_argument("--evaluations", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    accuracy = {(path.parts[-3], path.parts[-2]): path / "accuracy.tsv" for path in arguments.evaluations}
    rows = []
    for path in arguments.imputed:
        target, chrom = path.name.removesuffix(".vcf.gz").rsplit(".", 1)
        about = quality(path) | judged(accuracy.get((target, chrom)))
        rows.append({"target": target, "chromosome": chrom} | about)
    found = pd.DataFrame(rows)
    found.to_csv(arguments.table, sep="\t", index=False, float_format="%.4f")
    cells = [[None if pd.isna(value) else value for value in row] for row in found.to_numpy(object).tolist()]
    arguments.page.write_text(
        page(
            "Imputed genotypes",
            f"{found['target'].nunique()} targets, {found['chromosome'].nunique()} chromosomes",
            section(
                "Quality",
                paragraph(
                    f"R2 is estimated from the dosages; sites with R2 of {RELIABLE} or more are commonly "
                    "kept. True r2 stands where true genotypes were given."
                ),
                table(list(found.columns), cells, "Targets and chromosomes", sortable=True),
            ),
            footer="spinimpute",
        )
    )


def quality(path: Path) -> dict[str, object]:
    """Of the imputed sites of a file."""
    with VariantFile(path, "imputed") as file:
        r2 = [record.INFO.get("R2") for record in file.records() if record.INFO.get("TYPED") is None]
    values = pd.Series(r2, dtype=float)
    return {
        "samples": len(file.samples), "imputed sites": len(values), "mean R2": float(values.mean()),
        f"share with R2 of {RELIABLE} or more": float((values >= RELIABLE).mean()),
    }  # fmt: skip


def judged(path: Path | None) -> dict[str, object]:
    """Of an evaluation, over all frequencies."""
    if path is None:
        return {"true r2": float("nan")}
    rows = pd.read_csv(path, sep="\t", index_col=["imputer", "bin"])
    return {"true r2": float(rows.loc[("imputed", "all"), "pooled_r2"])}


if __name__ == "__main__":
    main()
