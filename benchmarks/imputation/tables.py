"""Markdown and tab-separated tables of accuracy, leads, time and strata."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.imputation.measure import Timing
from benchmarks.imputation.programs import BASELINES, PEER_LABELS, better_peer
from benchmarks.imputation.scoring import ALL, Accuracy
from benchmarks.imputation.strata import Cell
from benchmarks.imputation.study import IMPUTE

MEASURES = {"pooled_r2": "pooled r²", "mean_r2": "mean per-variant r²"}


def markdown(rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose first row is the head."""
    head, *body = rows
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ["---"] * len(head), *body))


def write_tsv(path: Path, rows: Iterable[Sequence[object]]) -> None:
    path.write_text("".join("\t".join(str(cell) for cell in row) + "\n" for row in rows))


def labels(rows: Iterable[Accuracy]) -> list[str]:
    """Return the imputers in the order of the rows."""
    return list(dict.fromkeys(row.imputer for row in rows))


def bins(rows: Iterable[Accuracy]) -> list[str]:
    return list(dict.fromkeys(row.bin for row in rows))


def our_labels(rows: Sequence[Accuracy]) -> list[str]:
    return [label for label in labels(rows) if label not in (*BASELINES, *PEER_LABELS)]


def number(value: float, digits: int = 4) -> str:
    return "–" if math.isnan(value) else f"{value:.{digits}f}"


def accuracy_table(rows: Sequence[Accuracy], measure: str) -> str:
    """Return a table with a row for each imputer and a column for each bin; measure: pooled_r2 or mean_r2."""
    value = {(row.imputer, row.bin): getattr(row, measure) for row in rows}
    sites = {row.bin: row.sites for row in rows}
    table = [[MEASURES[measure], *bins(rows)], ["sites", *(str(sites[b]) for b in bins(rows))]]
    table += [
        [label.replace("_", " "), *(number(value[label, b]) for b in bins(rows))] for label in labels(rows)
    ]
    return markdown(table)


def ahead_table(rows: Sequence[Accuracy]) -> str:
    """Return whether each of our configurations is ahead of both peers, by bin and measure."""
    table = [["ahead of both?", "measure", *bins(rows)]]
    for ours in our_labels(rows):
        for measure, name in MEASURES.items():
            of_bin = [
                {row.imputer: getattr(row, measure) for row in rows if row.bin == b} for b in bins(rows)
            ]
            table.append([ours.replace("_", " "), name, *(_verdict(values, ours) for values in of_bin)])
    return markdown(table)


def _verdict(values: Mapping[str, float], ours: str) -> str:
    """ "yes" or "no" with the lead of `ours` over the better peer."""
    peer = better_peer(values)
    if peer is None or math.isnan(values[ours]):
        return "–"
    lead = values[ours] - peer[1]
    return f"{'yes' if lead > 0 else 'no'} ({lead:+.4f}, {peer[0]})"


def error_ratio(rows: Sequence[Accuracy], ours: str) -> float:
    """Return our 1 - pooled r2 divided by that of the better peer, over all sites; below 1 is better."""
    error = {row.imputer: 1 - row.pooled_r2 for row in rows if row.bin == ALL}
    return error[ours] / min(error[peer] for peer in PEER_LABELS if peer in error)


def error_lines(rows: Sequence[Accuracy]) -> str:
    lines = [
        f"Errors (1 − pooled r² over all sites) of {ours.replace('_', ' ')} are "
        f"{error_ratio(rows, ours):.3f} of the better peer's."
        for ours in our_labels(rows)
    ]
    return "\n".join(lines)


def timing_table(timings: Sequence[Timing]) -> str:
    """Return median seconds and peak memory of each command, and imputing as a multiple of each peer's."""
    peers = {t.imputer: t.seconds for t in timings if t.stage == IMPUTE and t.imputer in PEER_LABELS}
    ratio_head = [f"ratio to {peer}" for peer in peers]
    table = [["program", "stage", "runs", "wall s, median", "fastest–slowest", *ratio_head, "peak MB"]]
    for t in timings:
        ratios = [f"{t.seconds / unit:.2f}" if t.stage == IMPUTE else "" for unit in peers.values()]
        spread = f"{t.fastest:.2f}–{t.slowest:.2f}"
        row = [t.imputer.replace("_", " "), t.stage, str(t.runs), f"{t.seconds:.2f}", spread]
        table.append([*row, *ratios, f"{t.peak_mb:.0f}"])
    return markdown(table)


def vcf_sizes(imputed: Mapping[str, Path]) -> dict[str, int]:
    """Return the bytes of each VCF.gz, by label. Files of other formats are not from imputers."""
    return {label: path.stat().st_size for label, path in imputed.items() if path.name.endswith(".vcf.gz")}


def size_table(sizes: Mapping[str, int]) -> str:
    """Return the megabytes of each file, and their multiple of each peer's."""
    peers = {label: size for label, size in sizes.items() if label in PEER_LABELS}
    table = [["imputer", "MB", *(f"ratio to {peer}" for peer in peers)]]
    for label, size in sizes.items():
        ratios = [f"{size / unit:.2f}" for unit in peers.values()]
        table.append([label.replace("_", " "), f"{size / 1e6:.2f}", *ratios])
    return markdown(table)


def strata_rows(cells: Sequence[Cell]) -> list[list[str]]:
    """Return the tab-separated table of all cells, head first."""
    imputers = list(cells[0].r2)
    rows = [["dimension", "stratum", "frequency", "sites", "genotypes", *imputers]]
    for cell in cells:
        start = [cell.dimension, cell.label, cell.frequency, str(cell.sites), str(cell.genotypes)]
        rows.append([*start, *(number(cell.r2[imputer]) for imputer in imputers)])
    return rows


def below_list(cells: Sequence[Cell], ours: Sequence[str]) -> str:
    """Return the cells in which one of our configurations is below a peer, the largest difference first."""
    lines = []
    for label in ours:
        found = []
        for cell in cells:
            behind = cell.below(label)
            if behind is not None:
                found.append((behind[1], behind[0], cell))
        found.sort(key=lambda entry: -entry[0])
        name = label.replace("_", " ")
        lines.append(
            f"{name} is below a peer in {len(found)} of {len(cells)} cells" + (":" if found else ".")
        )
        lines += [
            f"- {c.dimension}, {c.label}, frequency {c.frequency}: {c.r2[label]:.4f}, "
            f"{peer} {c.r2[peer]:.4f} ({c.sites} sites, {c.genotypes} genotypes)"
            for _, peer, c in found
        ]
        lines.append("")
    return "\n".join(lines).rstrip()
