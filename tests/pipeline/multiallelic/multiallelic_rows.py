"""Panels and targets with multi-allelic records, as rows of a VCF."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.genotypes.records import RecordRows

N_SITES, N_SAMPLES = 90, 40
Row = tuple[int, str, str, list[str]]  # POS, REF, ALT, one GT per sample


def n_alts(site: int) -> int:
    """Every fifth site has two or three ALT alleles."""
    return 1 if site % 5 != 2 else 2 + site % 2


def panel_rows(rng: np.random.Generator) -> list[Row]:
    """Haplotypes of four founders, with some errors: so neighbours are linked."""
    founder_Q = rng.integers(0, 4, (3, 2 * N_SAMPLES)).repeat(N_SITES // 3, axis=0)
    rows: list[Row] = []
    for site in range(N_SITES):
        alleles = rng.integers(0, n_alts(site) + 1, 4)[founder_Q[site]]
        error = rng.random(2 * N_SAMPLES) < 0.05
        alleles = np.where(error, rng.integers(0, n_alts(site) + 1, 2 * N_SAMPLES), alleles)
        alleles[: n_alts(site) + 1] = range(n_alts(site) + 1)
        calls = [f"{a}|{b}" for a, b in alleles.reshape(-1, 2)]
        rows.append((1000 + 100 * site, "A", ",".join(["C", "G", "TTA"][: n_alts(site)]), calls))
        if site % 10 == 2:
            rows.append(
                (1000 + 100 * site, "A", "CC", [f"{a % 2}|{b % 2}" for a, b in alleles.reshape(-1, 2)])
            )
    return rows


def with_alts_in_order(rows: Sequence[Row], order: Callable[[list[str]], list[str]]) -> list[Row]:
    """Return the same haplotypes, with the ALTs of each record in another order."""
    changed: list[Row] = []
    for position, ref, alt, calls in rows:
        alts = alt.split(",")
        new = order(alts)
        number = {"0": "0", **{str(i + 1): str(new.index(one) + 1) for i, one in enumerate(alts)}}
        translated = ["|".join(number[allele] for allele in call.split("|")) for call in calls]
        changed.append((position, ref, ",".join(new), translated))
    return changed


def records_of(panel: spinimpute.Panel) -> RecordRows:
    return RecordRows.of(panel.sites, panel.multiallelic, panel.frequency)


def totals(panel: spinimpute.Panel, p_UQ: np.ndarray) -> list[np.ndarray]:
    """The sums of P(ALT) in each multi-allelic record."""
    records = records_of(panel).multiallelic_within(Interval(0, panel.n_sites))
    assert len(records) == N_SITES // 5
    return [p_UQ[rows.slice].sum(axis=0) for rows in records]


def target_rows(panel: spinimpute.Panel, rng: np.random.Generator, n_samples: int = 3) -> list[Row]:
    """Calls of haplotypes that are drawn from the panel, at every third site; one ALT in each row."""
    index = np.arange(0, panel.n_sites, 3)
    alleles = np.stack([panel.alleles(i, i + 1)[0] for i in index])[:, rng.permutation(80)[: 2 * n_samples]]
    sites = panel.sites.take(index)
    rows = zip(sites.position.tolist(), sites.ref, sites.alt, alleles, strict=True)
    return [(p, ref, alt, [f"{a}|{b}" for a, b in calls.reshape(-1, 2)]) for p, ref, alt, calls in rows]


FORMATS = ("GT", "DS", "HDS", "GP", "ML")


def split_formats(split_multiallelic: bool) -> Sequence[str]:
    """Return FORMATS, without ML if the records are split."""
    return FORMATS[:-1] if split_multiallelic else FORMATS


def impute(target, panel, out, split_multiallelic=False, **options) -> Path:
    formats = split_formats(split_multiallelic)
    output = spinimpute.OutputSettings(formats, split_multiallelic=split_multiallelic, **options)
    spinimpute.impute(target, out, panel, output=output)
    return out


def haploid(rows: Sequence[Row], sample: int) -> list[Row]:
    return [(*row[:3], [call[0] if i == sample else call for i, call in enumerate(row[3])]) for row in rows]


def record_starts(records: RecordRows) -> list[int]:
    return np.flatnonzero(~records.continues).tolist()


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def read_rows(path: Path) -> list[Row]:
    lines = [line.split("\t") for line in path.read_text().splitlines() if line[0] != "#"]
    return [(int(words[1]), words[3], words[4], words[9:]) for words in lines]
