"""Checks of `ligate` before it joins chunks: chunks must be from one imputation and must miss no site.

A chunk is a file that `impute` wrote for one region of a chromosome. Neighbouring chunks may overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, zip_longest

import numpy as np

from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.selection import FILTER_LINE
from spinimpute.panels.reference import ReferencePanel
from spinimpute.pipeline.chunk_file import PANEL_LINE, Chunk
from spinimpute.runtime.errors import InputError, argument
from spinimpute.vcf.header import definition, header_indexes, without_idx
from spinimpute.vcf.multiallelic import join_sites, record_intervals
from spinimpute.vcf.raw_records import site_key

MUST_MATCH = {  # start of header lines that must be equal in all chunks, with a name for messages
    PANEL_LINE: "panel",
    "##spinimpute_model=": "model",
    "##source=": "program",
    FILTER_LINE: "filter",
}


def check_formats(chunks: Sequence[Chunk], output_type: str) -> None:
    """Raise InputError if the format of a chunk differs from that of the output."""
    for chunk in chunks:
        if chunk.is_bcf is not (output_type == "b"):
            chunk_format, output_format = ("BCF", "VCF") if chunk.is_bcf else ("VCF", "BCF")
            raise InputError(
                "mismatch",
                f"chunk {chunk.path} is {chunk_format}, but the output is {output_format}. Records are "
                f"copied unchanged: write {chunk_format}, and convert the output with bcftools view",
            )


def check_headers(first: Chunk, other: Chunk, warnings: list[str]) -> None:
    """Raise InputError if two chunks differ in samples, FORMAT, panel, model or header definitions.

    Add other differences of their headers to `warnings`.
    """

    def differ(what: str, one: object, another: object) -> InputError:
        return InputError(
            "mismatch",
            f"chunks {first.path} and {other.path} differ in {what}: {one} and {another}; they cannot be "
            "joined",
        )

    if first.region.chrom != other.region.chrom:
        raise differ("the chromosome", first.region.chrom, other.region.chrom)
    if first.samples != other.samples:
        if len(first.samples) != len(other.samples):
            raise differ("the number of samples", len(first.samples), len(other.samples))
        one, another = next(
            pair for pair in zip(first.samples, other.samples, strict=True) if pair[0] != pair[1]
        )
        raise differ("their samples or the order of samples", one, another)
    if first.formats != other.formats:
        raise differ("FORMAT", ":".join(first.formats), ":".join(other.formats))
    for prefix, what in MUST_MATCH.items():
        one, another = (_header_values(chunk, prefix) for chunk in (first, other))
        if one != another:
            raise differ(f"the {what}", one or "none", another or "none")
    definitions = (
        [without_idx(line) for line in chunk.lines if definition(line)] for chunk in (first, other)
    )
    for pair in zip_longest(*definitions):
        if pair[0] != pair[1]:
            raise differ("the definitions of the header", *(line or "none" for line in pair))
    if first.is_bcf and header_indexes(first.lines) != header_indexes(other.lines):
        lines = ([line for line in chunk.lines if definition(line)] for chunk in (first, other))
        one, another = next(pair for pair in zip(*lines, strict=True) if pair[0] != pair[1])
        raise differ("the IDX numbers of the header", one, another)
    if (first.unmatched is None) is not (other.unmatched is None):
        raise differ(
            f"{argument('keep_unmatched', True)}", first.unmatched is not None, other.unmatched is not None
        )
    for pair in zip_longest(*(map(without_idx, chunk.common_lines()) for chunk in (first, other))):
        if pair[0] != pair[1]:
            warnings.append(
                f"{first.path} and {other.path} were made differently: '{pair[0]}' and '{pair[1]}'. The "
                "output gets the header of the first"
            )
            break


def _header_values(chunk: Chunk, prefix: str) -> str:
    return ", ".join(line.removeprefix(prefix) for line in chunk.lines if line.startswith(prefix))


def check_targets(chunks: Sequence[Chunk]) -> None:
    """Raise InputError if the target's genotypes at a position differ between two chunks (by checksum)."""
    first_seen: dict[int, tuple[int, Chunk]] = {}
    for chunk in chunks:
        for position, checksum in chunk.target.items():
            first_checksum, other = first_seen.setdefault(position, (checksum, chunk))
            if first_checksum != checksum:
                raise InputError(
                    "mismatch",
                    f"chunks {other.path} and {chunk.path} were imputed from different targets: the calls at "
                    f"{chunk.region.chrom}:{position} differ, although the samples have the same names. "
                    "Impute both from the same file, with the same --buffer",  # see `target_line`
                )


def check_regions(chunks: Sequence[Chunk]) -> None:
    """Raise InputError if a chunk lies within another one, or if a position is in more than two chunks."""
    for left, right in pairwise(chunks):
        if left.region == right.region:
            raise InputError(
                "arguments",
                f"chunks {left.path} and {right.path} are both of {left.region}: give one of them",
            )
        if right.region.end <= left.region.end or right.region.start == left.region.start:
            inner, outer = (right, left) if right.region.end <= left.region.end else (left, right)
            raise InputError(
                "arguments",
                f"chunk {inner.path} ({inner.region}) lies within chunk {outer.path} ({outer.region}): give "
                "one of them",
            )
    for left, _, right in zip(chunks, chunks[1:], chunks[2:], strict=False):
        if right.region.start <= left.region.end:
            raise InputError(
                "mismatch",
                f"chunks {left.path} ({left.region}) and {right.path} ({right.region}) overlap, and another "
                "one lies between them: at most two may overlap at the same position",
            )


def check_gaps(chunks: Sequence[Chunk], allow_gaps: bool) -> None:
    """Raise InputError if there are positions between two neighbouring chunks, unless gaps are allowed."""
    for left, right in pairwise(chunks):
        if right.region.start > left.region.end + 1 and not allow_gaps:
            raise InputError(
                "arguments",
                f"between chunks {left.path} ({left.region}) and {right.path} ({right.region}) there is a "
                f"gap: is a chunk missing? Give it, or {argument('panel')} to check that no site lies there, "
                f"or {argument('allow_gaps', True)}",
            )


def check_panel(
    chunks: Sequence[Chunk],
    panels: Sequence[ReferencePanel],
    path: str,
    allow_gaps: bool,
    warnings: list[str],
) -> None:
    """Raise InputError if the chunks were imputed from another panel or lack some of its sites.

    `path` is the panel's file, for messages. With `allow_gaps`, panel sites outside of all chunks only cause
    a warning. Parts of chromosome X that no chunk contains also cause a warning.
    """
    first = chunks[0]
    checksums = [word.split(" ")[0] for word in _header_values(first, PANEL_LINE).split(", ")]
    if checksums != [panel.checksum for panel in panels]:
        raise InputError(
            "mismatch",
            f"chunk {first.path} was imputed from another panel ({', '.join(checksums) or 'unknown'}) than "
            f"{path} ({', '.join(panel.checksum for panel in panels)})",
        )
    parts = [_record_sites(panel) if first.joins_records else panel.sites for panel in panels]
    sites = Sites.concatenate(parts)
    site_keys = np.array(
        [
            site_key(position, last, ref.encode(), alt.encode())
            for position, last, ref, alt in zip(
                sites.position.tolist(), sites.last_position().tolist(), sites.ref, sites.alt, strict=True
            )
        ],
        dtype=np.int64,
    )
    absent = _find_absent_parts(chunks, parts, site_keys, warnings)

    def name(row: int) -> str:
        return f"{sites.chrom}:{sites.position[row]} {sites.ref[row]}>{sites.alt[row]}"

    for chunk in chunks:
        start, stop = np.searchsorted(sites.position, [chunk.region.start, chunk.region.end + 1])
        rows = start + np.flatnonzero(~absent[start:stop])
        matched = chunk.key[np.isin(chunk.key, site_keys[rows])]
        missing_rows = rows[~np.isin(site_keys[rows], matched)]
        if chunk.filtered:
            rows = np.setdiff1d(rows, missing_rows)
        elif len(missing_rows):
            raise InputError(
                "mismatch",
                f"chunk {chunk.path} ({chunk.region}) lacks the panel site {name(missing_rows[0])}",
            )
        if len(matched) != len(rows) or (matched != site_keys[rows]).any():
            raise InputError(
                "mismatch",
                f"chunk {chunk.path} ({chunk.region}) does not have each of the panel's sites once, in the "
                "panel's order",
            )
        if chunk.sites != len(matched) and not chunk.filtered:
            raise InputError(
                "mismatch",
                f"chunk {chunk.path} ({chunk.region}) has {chunk.sites} sites of its panel "
                f"according to its header, but {len(matched)} of its records are sites of {path}",
            )
    for left, right in pairwise(chunks):
        start, stop = np.searchsorted(sites.position, [left.region.end + 1, right.region.start])
        if start < stop:
            what = (
                f"{stop - start} sites of the panel, the first of them {name(start)}, lie between chunks "
                f"{left.path} ({left.region}) and {right.path} ({right.region})"
            )
            if not allow_gaps:
                raise InputError(
                    "mismatch", f"{what}: is a chunk missing? Give it, or {argument('allow_gaps', True)}"
                )
            warnings.append(f"{what}: they are left out")
    n_before = int(np.searchsorted(sites.position, first.region.start))
    n_after = len(sites) - int(np.searchsorted(sites.position, chunks[-1].region.end, side="right"))
    if n_before or n_after:
        what = f"the panel has {n_before} sites before the first chunk and {n_after} after the last"
        if not allow_gaps:
            raise InputError(
                "mismatch", f"{what}: is a chunk missing? Give it, or {argument('allow_gaps', True)}"
            )
        warnings.append(f"{what}: they are left out")


def _record_sites(panel: ReferencePanel) -> Sites:
    """Return the sites of a panel, with multi-allelic records as one site."""
    records = panel.records
    return join_sites(panel.sites, record_intervals(records.continues))


def _find_absent_parts(
    chunks: Sequence[Chunk], parts: Sequence[Sites], site_keys: np.ndarray, warnings: list[str]
) -> np.ndarray:
    """Mark the sites of parts of chromosome X that are in no chunk, bool (sites,). Add a warning for each."""
    absent = np.zeros(len(site_keys), bool)
    start = 0
    for part in parts:
        part_sites = slice(start, start := start + len(part))
        if len(parts) > 1 and not any(np.isin(chunk.key, site_keys[part_sites]).any() for chunk in chunks):
            absent[part_sites] = True
            warnings.append(
                f"no chunk has a site of the panel's part {part.chrom}:{part.position[0]}-"
                f"{part.position[-1]}: its {len(part)} sites are left out"
            )
    return absent


def shared_sites(left: Chunk, right: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Return the records of the sites that two neighbours share, int64: numbers in the left and right chunk.

    Raises InputError if the sites of the chunks differ where they overlap, unless sites were filtered. The R2
    of a site may then differ between the chunks, if the run phased the target.
    """
    first = int(np.searchsorted(left.position, right.region.start, side="left"))
    stop = int(np.searchsorted(right.position, left.region.end, side="right"))
    left_rows, right_rows = np.arange(first, len(left)), np.arange(stop)
    if left.filtered:
        left_rows = left_rows[np.isin(left.key[left_rows], right.key[right_rows])]
        right_rows = right_rows[np.isin(right.key[right_rows], left.key[left_rows])]
    one, another = left.key[left_rows], right.key[right_rows]
    if not np.array_equal(one, another):
        shared = min(len(one), len(another))
        row = int(np.argmax(np.append(one[:shared] != another[:shared], True)))
        positions = left.position[left_rows], right.position[right_rows]
        at = [int(position[row]) for position in positions if row < len(position)]
        raise InputError(
            "mismatch",
            f"chunks {left.path} and {right.path} do not have the same sites in {left.region.chrom}:"
            f"{right.region.start}-{left.region.end}, which is in both: they first differ at "
            f"{left.region.chrom}:{min(at)}",
        )
    return left_rows, right_rows
