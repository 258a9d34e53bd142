"""Read an output to its end with our own readers; an error means that the output is incomplete."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

from spinimpute.panels.opening import is_panel_file, open_panel_file
from spinimpute.vcf.bgzf import open_decompressed
from spinimpute.vcf.index_reader import read_index
from spinimpute.vcf.variant_file import VariantFile

HTML_END = "</html>"
PNG_END = b"IEND\xaeB`\x82"


def read_whole(path: Path) -> None:
    """Read an output of any kind, which is known from its suffix. A file with an unknown suffix is not read.

    Raises
    ------
    Exception
        The output is incomplete.
    """
    name = path.name
    if name.endswith((".vcf", ".vcf.gz", ".bcf")):
        _read_variants(path)
    elif name.endswith((".tbi", ".csi")):
        pass  # read with its file
    elif is_panel_file(path):
        with open_panel_file(path) as panels:
            for opened in panels:
                opened.verify()
    elif name.endswith(".pgen"):
        _read_pgen(path)
    elif name.endswith(".bgen"):
        _read_bgen(path)
    elif name.endswith(".safetensors"):
        load_file(path)
    elif name.endswith(".html"):
        _require(path.read_text(encoding="utf-8").rstrip().endswith(HTML_END), f"{name} has no end")
    elif name.endswith(".png"):
        _require(path.read_bytes().endswith(PNG_END), f"{name} has no end")
    elif name.endswith((".tsv", ".csv")):
        text = path.read_bytes().decode()  # line ends as they are
        _require(text.endswith("\n"), f"{name} does not end with a line")
        separator = "," if name.endswith(".csv") else "\t"
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True))
        _require(len(set(map(len, rows))) == 1, f"{name} has rows of several lengths")


def _read_variants(path: Path) -> None:
    with open_decompressed(path) as stream:
        while stream.read(1 << 20):
            pass
    with VariantFile(path, "output") as file:
        last: dict[str, int] = {}
        for record in file.records():
            _require(last.get(record.CHROM, 0) <= record.POS, f"{path.name} is not sorted")
            last[record.CHROM] = record.POS
            file.alleles(record)
            file.genotypes(record)
    _require(bool(last), f"{path.name} has no record")
    if path.suffix != ".vcf":
        indexes = [index for end in (".tbi", ".csi") if (index := Path(f"{path}{end}")).exists()]
        _require(len(indexes) == 1, f"{path.name} has {len(indexes)} indexes")
        _require({contig.name for contig in read_index(path)} >= set(last), "the index lacks a contig")


def _read_pgen(path: Path) -> None:
    from pgenlib import PgenReader

    variants, people = (
        [line for line in path.with_suffix(end).read_text().splitlines() if line[:1] != "#"]
        for end in (".pvar", ".psam")
    )
    with PgenReader(bytes(path)) as reader:
        shape = reader.get_variant_ct(), reader.get_raw_sample_ct()
        _require(shape == (len(variants), len(people)), f"{path.name} has another shape than its tables")
        reader.read_dosages_range(0, shape[0], np.empty(shape, np.float32))


def _read_bgen(path: Path) -> None:
    from bgen import BgenReader

    with BgenReader(path, path.with_suffix(".sample")) as reader:
        n_variants = sum(variant.probabilities.shape[0] > 0 for variant in reader)
    _require(n_variants > 0, f"{path.name} has no variant")


def _require(whole: bool, what: str) -> None:
    if not whole:
        raise ValueError(what)
