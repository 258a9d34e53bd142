"""Simulated reads, aligned by bwa mem as if their origin were unknown."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pysam

from benchmarks.sequencing.simulated_reads import SequencedPeople

_LINE = 60  # letters of a FASTA
_COMPLEMENT = str.maketrans("ACGT", "TGCA")


def aligned_again(people: SequencedPeople, paths: Sequence[Path], seed: int, aligner: str) -> list[Path]:
    """Align the read pairs of `SequencedPeople.write_bams` with this seed, and return the files."""
    folder = paths[0].parent
    reference = folder / "reference.fa"
    genome = people.genome(np.random.default_rng(seed)).tobytes().decode()
    lines = [genome[at : at + _LINE] for at in range(0, len(genome), _LINE)]
    reference.write_text(f">{people.chrom}\n" + "\n".join(lines) + "\n")
    subprocess.run([aligner, "index", reference], check=True, stderr=subprocess.DEVNULL)
    return [_aligned(people, path, reference, aligner) for path in paths]


def _aligned(people: SequencedPeople, path: Path, reference: Path, aligner: str) -> Path:
    ends = [path.with_suffix(f".{end}.fq") for end in (1, 2)]
    reads: tuple[dict[str, str], dict[str, str]] = ({}, {})
    with pysam.AlignmentFile(str(path)) as file:
        header = file.header
        for read in file:
            name, letters, qualities = (str(read.to_dict()[of]) for of in ("name", "seq", "qual"))
            if read.is_read2:
                letters, qualities = letters[::-1].translate(_COMPLEMENT), qualities[::-1]
            reads[read.is_read2][name] = f"@{name}\n{letters}\n+\n{qualities}\n"
    for end, of_end in zip(ends, reads, strict=True):
        # a fragment that is read through has no second end
        end.write_text("".join(of_end[name] for name in reads[0] if name in reads[1]))
    text, out = path.with_suffix(".sam"), path.with_suffix(".aligned.bam")
    with text.open("wb") as sam:
        command: list[str | Path] = [aligner, "mem", "-t", "1", "-K", "10000000", reference, *ends]
        subprocess.run(command, check=True, stdout=sam, stderr=subprocess.DEVNULL)
    unsorted = path.with_suffix(".unsorted.bam")
    with (
        pysam.AlignmentFile(str(text), check_sq=False) as file,
        pysam.AlignmentFile(str(unsorted), "wb", header=header) as shifted,
    ):
        for read in file:
            moved = pysam.AlignedSegment.from_dict(read.to_dict(), shifted.header)
            moved.reference_start += people.start * (not read.is_unmapped)
            moved.next_reference_start += people.start * (not read.mate_is_unmapped)
            shifted.write(moved)
    pysam.sort("-o", str(out), str(unsorted))
    pysam.index(str(out))
    for made in (*ends, text, unsorted):
        made.unlink()
    return out
