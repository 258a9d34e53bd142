"""The command `unpacking`: files of a megabyte that unpack to a gigabyte, in every compressed format."""

from __future__ import annotations

import argparse
import gzip
import lzma
import shutil
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.imputation.tables import markdown
from benchmarks.reliability.forks import Limits, run_forked
from benchmarks.reliability.fuzz import fuzzer_in_memory
from benchmarks.reliability.packed_damage import assembled, unpacked_panel
from benchmarks.reliability.results import begin_results
from benchmarks.reliability.verdict import judge
from spinimpute.panels import inducing_panel
from spinimpute.vcf.bcf_format import START_BYTES, header_length
from spinimpute.vcf.bgzf import BLOCK_SIZE, EOF_BLOCK, compress_block

SIZE = 2**30
PIECE = 2**24
LIMITS = Limits(seconds=120, memory=2**29, file_bytes=2**31)
ON_PANEL = "--panel {g}/panel.spin"
IMPUTE = f"impute --vcf {{d}} {ON_PANEL} -t 1 -q -o {{o}}/o.vcf.gz"

PREDICT = "tabular predict --model {g}/spin_table.safetensors --table {d} -q -o {o}/o.csv"

Fill = bytes  # what is repeated
Make = Callable[[bytes, Fill], Iterator[bytes]]

LETTERS, EMPTY_LINES = b"A", b"\n"
CALL = b"rs1\t20\t1000000\tAA\n"


def in_blocks(content: bytes, fill: Fill) -> Iterator[bytes]:
    """Return BGZF: the content, then the fill in full blocks."""
    for start in range(0, len(content), BLOCK_SIZE):
        yield compress_block(content[start : start + BLOCK_SIZE])
    whole = BLOCK_SIZE - BLOCK_SIZE % len(fill)
    block = compress_block(fill * (whole // len(fill)))
    for _ in range(SIZE // whole):
        yield block
    yield EOF_BLOCK


def in_gzip(content: bytes, fill: Fill) -> Iterator[bytes]:
    """Return one gzip member: the content, then the fill."""
    packer = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    yield packer.compress(content)
    piece = fill * (PIECE // len(fill))
    for _ in range(SIZE // PIECE):
        yield packer.compress(piece)
    yield packer.flush()


def in_long_header(content: bytes, fill: Fill) -> Iterator[bytes]:
    """Return a BCF whose header has the fill at its end."""
    length = header_length(content[:START_BYTES])
    start = content[: START_BYTES - 4] + struct.pack("<I", min(length + SIZE, 2**32 - 1))
    yield from in_blocks(start + content[START_BYTES : START_BYTES + length - 1], fill)


def in_long_record(content: bytes, fill: Fill) -> Iterator[bytes]:
    """Return a BCF whose first record declares the fill as its own."""
    end = START_BYTES + header_length(content[:START_BYTES])
    yield from in_blocks(content[:end] + struct.pack("<2I", SIZE // 2, SIZE // 2), fill)


WHERE = {in_long_header: ", in the header", in_long_record: ", in the first record"}
# file -> how it is packed, what it is filled with, the command
Packed = tuple[str, Make, Fill, str]
PACKED: tuple[Packed, ...] = (
    *(("target.vcf.gz", in_blocks, fill, IMPUTE) for fill in (LETTERS, EMPTY_LINES)),
    ("target.plain.gz", in_gzip, LETTERS, IMPUTE),
    ("target.bcf", in_long_header, LETTERS, IMPUTE),
    ("target.bcf", in_long_record, b"\0", IMPUTE),
    ("panel.vcf.gz", in_blocks, LETTERS, "panel build --vcf {d} -t 1 -q -o {o}/o.spin"),
    ("panel.bcf", in_long_record, b"\0", "panel build --vcf {d} -t 1 -q -o {o}/o.spin"),
    ("indexed.vcf.gz.tbi", in_blocks, b"\0", IMPUTE.replace("{d}", "{stem} -r 20:1010000-1060000")),
    ("indexed.bcf.csi", in_blocks, b"\0", IMPUTE.replace("{d}", "{stem} -r 20:1010000-1060000")),
    *(("plink.map.gz", in_gzip, fill, "panel build --vcf {g}/panel.vcf --map {d} -t 1 -q -o {o}/o.spin")
      for fill in (LETTERS, EMPTY_LINES)),
    *(("forms/array.txt.gz", in_gzip, fill, IMPUTE) for fill in (LETTERS, EMPTY_LINES, CALL)),
    ("old.chain.gz", in_gzip, LETTERS, IMPUTE.replace("{d}", "{g}/target.vcf --chain {d}")),
    *(("array.sites.gz", in_gzip, fill, "panel tune --panel {g}/panel.spin --array {d} -q -o {o}/o.spin")
      for fill in (LETTERS, EMPTY_LINES, b"20 1000000\n")),
    *(("table.csv.gz", in_gzip, fill, PREDICT)
      for fill in (LETTERS, b"a,1,red,2.5,small\n")),
    ("chunk2.vcf.gz", in_blocks, LETTERS, "ligate {g}/chunk1.vcf.gz {d} -t 1 -q -o {o}/o.vcf.gz"),
    ("chunk2.bcf", in_long_record, b"\0", "ligate {g}/chunk1.bcf {d} -t 1 -q -o {o}/o.bcf"),
    ("imputed.vcf.gz", in_blocks, LETTERS,
     f"evaluate --truth {{g}}/truth.vcf --imputed {{d}} --typed {{g}}/target.vcf {ON_PANEL} -q"),
)  # fmt: skip


def write_zip(source: Path, out: Path) -> None:
    """Write an archive whose only file has a line of a gigabyte."""
    with zipfile.ZipFile(source) as archive:
        content = archive.read(archive.namelist()[0])
    with (
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("genome.txt", "w", force_zip64=True) as file,
    ):
        file.write(content)
        for _ in range(SIZE // PIECE - 1):
            file.write(LETTERS * PIECE)


def write_parquet(source: Path, out: Path) -> None:
    """Write a table of a gigabyte of zeros."""
    rows = pa.table({name: pa.array([b"\0" * PIECE]) for name in pq.read_table(source).column_names[:1]})
    with pq.ParquetWriter(out, rows.schema, compression="zstd") as writer:
        for _ in range(SIZE // PIECE):
            writer.write_table(rows)


def write_spip(source: Path, out: Path, section: str | None) -> None:
    """Write an inducing panel with a section, or a first part, of a gigabyte."""
    kind = inducing_panel.KIND
    header, sections, parts = unpacked_panel(source.read_bytes(), kind)
    packer = lzma.LZMACompressor(
        lzma.FORMAT_RAW, filters=[{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 2**20}]
    )
    stored = b"".join(packer.compress(bytes(PIECE)) for _ in range(SIZE // PIECE)) + packer.flush()
    if section is None:
        out.write_bytes(assembled(kind, header, sections, parts, stored_parts={0: stored}))
    else:
        out.write_bytes(assembled(kind, header, sections, parts, stored_sections={section: stored}))


def unpacking(arguments: argparse.Namespace) -> None:
    """Run the command `unpacking`."""
    folder = begin_results(arguments, "unpacking", memory=LIMITS.memory)
    rows = [["file", "filled with", "bytes", "outcome", "seconds of processor", "MiB at most", "said"]]
    with fuzzer_in_memory(1) as fuzzer:
        fuzzer.warm_up(["target VCF", "table"])
        place = fuzzer.folder / "unpacking"
        for label, fill, source, write, command in _all_files(fuzzer.good):
            shutil.rmtree(place, ignore_errors=True)
            for part in ("in", "out", "tmp"):
                (place / part).mkdir(parents=True)
            path = place / "in" / source.name
            if path.suffix in (".tbi", ".csi"):
                shutil.copy(source.with_suffix(""), path.with_suffix(""))
            write(path)
            words = [
                word.format(d=path, stem=path.with_suffix(""), g=fuzzer.good, o=place / "out")
                for word in command.split()
            ]
            ended = run_forked(partial(_main, words, place / "tmp"), place, LIMITS)
            left = [
                str(made.relative_to(place)) for part in ("tmp", "out") for made in (place / part).rglob("*")
            ]
            verdict = judge(ended, left if ended.status else [], LIMITS)
            said = (ended.err.strip().splitlines() or [""])[-1].replace(f"{fuzzer.folder}/", "")
            rows.append(
                [
                    label, fill, f"{path.stat().st_size:,}", verdict.group or verdict.kind,
                    f"{ended.seconds:.1f}", str(ended.memory >> 20), said[:160].replace("|", "\\|"),
                ]
            )  # fmt: skip
            print(*rows[-1], sep="\t", flush=True)
    parts = [
        "# Files that unpack to a gigabyte",
        f"Refused, or read with at most {LIMITS.memory >> 20} MiB beyond what is loaded.",
        markdown(rows),
    ]
    (folder / "report.md").write_text("\n\n".join(parts) + "\n")


def _all_files(good: Path) -> Iterator[tuple[str, str, Path, Callable[[Path], None], str]]:
    """Label, what it is filled with, good file, how the large one is written, command."""

    def writer(source: Path, make: Make, fill: Fill) -> Callable[[Path], None]:
        content = gzip.decompress(source.read_bytes())

        def write(path: Path) -> None:
            with path.open("wb") as file:
                file.writelines(make(content, fill))

        return write

    for name, make, fill, command in PACKED:
        label = name + WHERE.get(make, "")
        yield label, repr(fill)[1:], good / name, writer(good / name, make, fill), command
    archive, table, points = good / "forms" / "array.zip", good / "table.parquet", good / "panel.spip"
    yield "array.zip", "'A'", archive, lambda path: write_zip(archive, path), IMPUTE
    yield "table.parquet", "zeros", table, lambda path: write_parquet(table, path), PREDICT
    on_points = "impute --vcf {g}/target.vcf --panel {d} -t 1 -q -o {o}/o.vcf.gz"
    for section in ("position", "id", "array", None):
        label = f"panel.spip, section {section}" if section else "panel.spip, a part"

        def write(path: Path, section: str | None = section) -> None:
            write_spip(points, path, section)

        yield label, "zeros", points, write, on_points


def _main(words: list[str], temporary: Path) -> None:
    from spinimpute.cli.main import main

    tempfile.tempdir = str(temporary)
    main(words)
