"""The input formats, the commands that read them, and a damaged case of a format for each number."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.reliability.alignment_damage import damaged_bam, damaged_cram, damaged_header
from benchmarks.reliability.damage import FIELDS, Damage, damaged_bytes, damaged_text
from benchmarks.reliability.inputs import PAR1_END, SMALL_NETWORK
from benchmarks.reliability.packed_damage import (
    behind_bgzf,
    behind_gzip,
    behind_zip,
    damaged_bcf,
    damaged_joined,
    damaged_model,
    damaged_spin,
    damaged_spip,
)

# by the end of a file's name, the first that fits
DAMAGE: tuple[tuple[str, Damage], ...] = (
    ("_header.vcf", damaged_header),
    (".vcf.gz", behind_bgzf(damaged_text)),
    (".bcf", behind_bgzf(damaged_bcf)),
    (".bam", damaged_bam),
    (".cram", damaged_cram),
    (".bai", damaged_bytes),
    (".crai", behind_gzip(damaged_text)),
    (".tbi", behind_bgzf(damaged_bytes)),
    (".csi", behind_bgzf(damaged_bytes)),
    (".gz", behind_gzip(damaged_text)),
    (".zip", behind_zip(damaged_text)),
    ("_x.spin", damaged_joined),
    (".spin", damaged_spin),
    (".spip", damaged_spip),
    (".safetensors", damaged_model),
    (".bed", damaged_bytes),
    (".pgen", damaged_bytes),
    (".parquet", damaged_bytes),
    ("", damaged_text),
)


@dataclass(frozen=True)
class Form:
    """An input format.

    Attributes
    ----------
    files : tuple of str
        Names of the good inputs; one of them is damaged.
    commands : tuple of str
        Command lines, of which one is run: {d} is the damaged file and {stem} its path without suffix, {g}
        the folder of good files, {o} the folder of outputs.
    beside : tuple of str
        Suffixes of good files that must be next to the damaged file, in place of its own.
    memory, seconds : int
        Bytes and processor time that its commands may use.
    """

    files: tuple[str, ...]
    commands: tuple[str, ...]
    beside: tuple[str, ...] = ()
    memory: int = 2**30
    seconds: int = 15


@dataclass(frozen=True)
class Case:
    """A case: files for the folder `in`, in this order, and the command line."""

    files: dict[str, bytes]
    words: list[str]


_ON_PANEL = "--panel {g}/panel.spin"
_TARGET = (
    f"impute --vcf {{d}} {_ON_PANEL} -t 1 -q -o {{o}}/o.vcf.gz",
    f"impute --vcf {{d}} {_ON_PANEL} -t 1 -o {{o}}/o.bcf --format GT,DS,HDS,GP --keep-unmatched "
    "--report {o}/r.html --loo {o}/q",
    f"impute --vcf {{d}} {_ON_PANEL} -t 1 -q -o {{o}}/o.vcf -r 20:1010000-1060000 --buffer 0.05",
    "impute --vcf {d} --panel {g}/panel.spip -t 1 -q -o {o}/o.vcf.gz",
    f"convert --vcf {{d}} {_ON_PANEL} -o {{o}}/o.vcf.gz",
    f"phase --vcf {{d}} {_ON_PANEL} -t 1 -q -o {{o}}/o.bcf",
    f"check --vcf {{d}} {_ON_PANEL} -o {{o}}/sites.tsv --samples-out {{o}}/samples.tsv",
)
_ARRAY_TEXTS = ("array.txt", "array.txt.gz", "array.zip")
_ARRAY = (f"panel tune {_ON_PANEL} --array {{d}} -t 1 -q -o {{o}}/o.spin",)
_PANEL_SOURCE = (
    "panel build --vcf {d} -t 1 -o {o}/o.spin",
    "panel build --vcf {d} --map {g}/plink.map -t 1 -q -o {o}/o.spin",
    "panel build --vcf {d} -r 20:1010000-1060000 --samples-file {g}/names.txt -t 2 -q -o {o}/o.spin",
    "impute --vcf {g}/target.vcf --panel {d} -t 1 -q -o {o}/o.vcf.gz",
)
_HAP_LEGEND = (
    "panel build --hap {g}/panel.hap --legend {g}/panel.legend --sample {g}/panel.sample --chromosome 20 "
    "-t 1 -q -o {o}/o.spin",
    "panel build --hap {g}/panel.hap --legend {g}/panel.legend --sample {g}/panel.sample --chromosome chr20 "
    "--samples-file {g}/names.txt -r 20:1010000-1060000 --map {g}/plink.map -t 1 -o {o}/o.spin",
)
_PANEL_FILE = (
    "impute --vcf {g}/target.vcf --panel {d} -t 1 -q -o {o}/o.vcf.gz",
    "impute --vcf {g}/unphased.vcf --panel {d} -t 1 -o {o}/o.bcf",
    "panel info {d}",
    "panel verify {d}",
    "panel chunks {d} --length-cm 0.05",
)
_PLINK = tuple(command.replace("--vcf {d}", "{plink} {stem}") for command in (*_TARGET[:1], *_TARGET[4:]))
_SPIN_TABLE = "--model {g}/spin_table.safetensors"
_FIT = "tabular fit --steps 1 --ignore id -q -o {o}/o.safetensors"
_TABLE = (
    f"{_FIT} --table {{d}} --target price {' '.join(SMALL_NETWORK)}",
    f"{_FIT} --table {{d}} --target kind --model mlp --drop-missing-target --set width=8",
    f"tabular predict {_SPIN_TABLE} --table {{d}} -o {{o}}/o.csv --id id",
    "tabular predict --model {g}/mlp_table.safetensors --table {d} -o - --probabilities",
)
_EVALUATE = f"evaluate {_ON_PANEL} -q"
_TRUTH, _IMPUTED, _TYPED = "--truth {g}/truth.vcf", "--imputed {g}/imputed.vcf.gz", "--typed {g}/target.vcf"
_OLD = "--vcf {g}/target.vcf --chain {d}"
_ON_SHORT = "--panel {g}/panel_short.spin -t 1 -q -o {o}/o.vcf"
_SEQUENCED = "check --panel {g}/panel_short.spin"
_READS = (
    f"impute --bam {{d}} {_ON_SHORT}",
    f"impute --bam {{d}} {_ON_SHORT}.gz --indels --max-depth 3 -r 20:3000-9000",
    f"{_SEQUENCED} --bam {{d}}",
)
_LIKELIHOODS = (
    f"impute --gl {{d}} {_ON_PANEL} -t 1 -q -o {{o}}/o.vcf.gz",
    f"impute --gl {{d}} --vcf {{g}}/target.vcf {_ON_PANEL} -t 1 -o {{o}}/o.bcf --format GT,DS,HDS,GP "
    "-r 20:1010000-1060000 --buffer 0.05",
    f"check --gl {{d}} {_ON_PANEL} --samples-out {{o}}/samples.tsv",
)


def _of_cram(reads: str, reference: str = "{g}/genome.fa") -> tuple[str, ...]:
    """The commands of a BAM, for a CRAM with its reference genome."""
    return tuple(f"{command.replace('{d}', reads)} --reference {reference}" for command in _READS)


def _plink(option: str) -> tuple[str, ...]:
    return tuple(command.replace("{plink}", option) for command in _PLINK)


FORMS = {
    "target VCF": Form(("target.vcf", "unphased.vcf"), _TARGET + _ARRAY),
    "target VCF.gz": Form(("target.vcf.gz", "unphased.vcf.gz"), _TARGET + _ARRAY),
    "target BCF": Form(("target.bcf", "unphased.bcf"), _TARGET + _ARRAY),
    "target gzip": Form(("target.plain.gz", "unphased.plain.gz"), _TARGET[:1] + _TARGET[4:]),
    "index": Form(
        ("indexed.vcf.gz.tbi", "indexed.bcf.csi", "panel_indexed.vcf.gz.tbi", "panel_indexed.bcf.csi"),
        (
            f"impute --vcf {{stem}} {_ON_PANEL} -t 1 -q -o {{o}}/o.vcf -r 20:1010000-1060000 --buffer 0.05",
            f"impute --vcf {{stem}} {_ON_PANEL} -t 1 -q -o {{o}}/o.vcf",
            "panel build --vcf {stem} -t 1 -q -r 20:1010000-1060000 -o {o}/o.spin",
            "panel build --vcf {stem} -t 2 -q -o {o}/o.spin",
        ),
        ("",),
    ),
    "panel VCF": Form(("panel.vcf", "panel.vcf.gz"), _PANEL_SOURCE),
    "panel BCF": Form(("panel.bcf",), _PANEL_SOURCE),
    "M3VCF": Form(
        tuple(f"panel_{version}.m3vcf{end}" for version in (1, 2, 3) for end in ("", ".gz")), _PANEL_SOURCE
    ),
    **{
        f"{end} of IMPUTE": Form(
            (f"panel.{end}", f"panel.{end}.gz"),
            tuple(command.replace(f"{{g}}/panel.{end}", "{d}") for command in _HAP_LEGEND),
        )
        for end in ("hap", "legend", "sample")
    },
    ".spin": Form(
        ("panel.spin",),
        (
            *_PANEL_FILE,
            "impute --vcf {g}/target.vcf --panel {d} --predictor spin -t 1 -q -o {o}/o.vcf",
            "panel build --vcf {d} --inducing 4 --array {g}/array.sites -t 1 -q -o {o}/o.spip",
            "panel tune --panel {d} --array {g}/array.sites -t 1 -q -o {o}/o.spin",
            "check --vcf {g}/target.vcf --panel {d} -o {o}/sites.tsv",
            f"{_EVALUATE.replace(_ON_PANEL, '--panel {d}')} {_TRUTH} {_IMPUTED} {_TYPED}",
            "ligate {g}/chunk1.vcf.gz {g}/chunk2.vcf.gz --panel {d} -t 1 -q -o {o}/o.vcf.gz",
        ),
    ),
    ".spin of chromosome X": Form(
        ("panel_x.spin",),
        (
            *(command.replace("target.vcf", "target_x.vcf") for command in _PANEL_FILE[:1] + _PANEL_FILE[2:]),
            "check --vcf {g}/target_x.vcf --panel {d} --sex {g}/sexes.txt",
        ),
    ),
    ".spip": Form(
        ("panel.spip",), tuple(command.replace("unphased", "target") for command in _PANEL_FILE)
    ),
    "genetic map": Form(
        tuple(f"{name}{end}" for name in ("plink.map", "shapeit.gmap", "hapmap.txt") for end in ("", ".gz")),
        (
            "panel build --vcf {g}/panel.vcf --map {d} -t 1 -q -o {o}/o.spin",
            "impute --vcf {g}/target.vcf --panel {g}/panel.vcf.gz --map {d} -t 1 -q -o {o}/o.vcf.gz",
        ),
    ),
    "array text": Form(
        tuple(f"forms/{name}" for name in (*_ARRAY_TEXTS, "ancestry.txt", "family.csv")),
        _TARGET[:1] + _TARGET[4:],
    ),
    "FinalReport": Form(("forms/report.txt", "forms/report.csv"), _TARGET[:1] + _TARGET[4:]),
    "PLINK 1": Form(
        tuple(f"forms/array{end}" for end in (".bed", ".bim", ".fam")),
        _plink("--bfile"),
        (".bed", ".bim", ".fam"),
    ),
    "PLINK 2": Form(
        tuple(f"forms/array{end}" for end in (".pgen", ".pvar", ".psam")),
        _plink("--pfile"),
        (".pgen", ".pvar", ".psam"),
    ),
    "sexes": Form(
        ("sexes.txt", "sexes.fam"),
        (
            "impute --vcf {g}/target_x.vcf --panel {g}/panel_x.spin --sex {d} -t 1 -q -o {o}/o.vcf.gz",
            "check --vcf {g}/target_x.vcf --panel {g}/panel_x.spin --sex {d} --samples-out {o}/samples.tsv",
        ),
    ),
    "chain": Form(
        ("old.chain", "old.chain.gz"),
        (
            f"impute {_OLD} {_ON_PANEL} -t 1 -q -o {{o}}/o.vcf.gz",
            f"convert --vcf {{g}}/forms/array.txt --chain {{d}} {_ON_PANEL} -q -o {{o}}/o.vcf",
            f"check {_OLD} {_ON_PANEL} -o {{o}}/sites.tsv",
        ),
    ),
    "lists": Form(
        ("names.txt", "array.sites", "array.sites.gz"),
        (
            "panel build --vcf {g}/panel.vcf --samples-file {d} -t 1 -q -o {o}/o.spin",
            "panel build --vcf {g}/panel.spin --inducing 4 --array {d} -t 1 -q -o {o}/o.spip",
            *_ARRAY,
        ),
    ),
    "BAM": Form(("reads.bam",), _READS, (".bam.bai",)),
    "CRAM": Form(("reads.cram",), _of_cram("{d}"), (".cram.crai",)),
    "BAM index": Form(
        ("reads.bam.bai",), tuple(command.replace("{d}", "{stem}") for command in _READS), ("",)
    ),
    "CRAM index": Form(("reads.cram.crai",), _of_cram("{stem}"), ("",)),
    "FASTA": Form(("genome.fa",), _of_cram("{g}/reads.cram", "{d}"), (".fa.fai",)),
    "FASTA index": Form(("genome.fa.fai",), _of_cram("{g}/reads.cram", "{stem}"), ("",)),
    "list of reads": Form(
        ("reads.list",),
        tuple(command.replace("--bam", "--bam-list") for command in _READS),
        (".bam", ".bam.bai"),
    ),
    "regions and samples": Form(
        ("regions.txt", "target_names.txt"),
        (
            f"impute --vcf {{g}}/target.vcf {_ON_PANEL} -R {{d}} -t 1 -q -o {{o}}/o.vcf",
            f"impute --vcf {{g}}/target.bcf {_ON_PANEL} --samples-file {{d}} -t 1 -q -o {{o}}/o.vcf",
            f"impute --gl {{g}}/likelihoods.bcf {_ON_PANEL} -R {{d}} --buffer 0.05 -t 1 -q -o {{o}}/o.vcf",
        ),
    ),
    "likelihoods": Form(("likelihoods.vcf.gz", "likelihoods.bcf"), _LIKELIHOODS),
    "header of likelihoods": Form(("gl_header.vcf",), _LIKELIHOODS),
    "merged panels": Form(
        ("panel_b.spin",),
        (
            "impute --vcf {g}/target.vcf --panel {g}/panel_a.spin --panel {d} -t 1 -q -o {o}/o.vcf.gz",
            "impute --vcf {g}/unphased.vcf --panel {d} --panel {g}/panel_a.spin -t 1 -o {o}/o.bcf",
            "panel merge {g}/panel_a.spin {d} -t 1 -q -o {o}/o.spin",
            "check --vcf {g}/target.vcf --panel {g}/panel_a.spin --panel {d}",
        ),
    ),
    "target to PGEN and BGEN": Form(
        ("target.vcf", "unphased.bcf"),
        tuple(
            f"{command} {_ON_PANEL} -q -o {{o}}/o.{end}"
            for end, fields in (("pgen", "GT,DS"), ("bgen", "GT,DS,HDS"))
            for command in (
                f"impute --vcf {{d}} -t 1 --format {fields}",
                "impute --vcf {d} -t 1 --keep-unmatched",
                "convert --vcf {d}",
            )
        ),
    ),
    "haplotype model": Form(
        ("haplotype.safetensors",),
        (f"impute --vcf {{g}}/target.vcf {_ON_PANEL} --model {{d}} -t 1 -q -o {{o}}/o.vcf.gz",),
    ),
    "SPIN model": Form(
        ("spin.safetensors",),
        (
            f"impute --vcf {{g}}/target.vcf {_ON_PANEL} --predictor spin --model {{d}} -t 1 -q "
            "-o {o}/o.vcf.gz",
            "impute --vcf {g}/target.vcf --panel {g}/panel.spip --model {d} -t 1 -q -o {o}/o.vcf.gz",
            "panel build --vcf {g}/panel.spin --inducing 4 --array {g}/array.sites --model {d} -t 1 -q "
            "-o {o}/o.spip",
        ),
        seconds=60,  # with up to 1,024 inducing points a block
    ),
    "table model": Form(
        ("spin_table.safetensors", "mlp_table.safetensors"),
        ("tabular predict --model {d} --table {g}/table.csv -o {o}/o.csv", "tabular info {d}"),
    ),
    "process model": Form(
        # files say how large batches are: the largest that are taken need three gibibytes, and time
        ("np.safetensors",), ("np evaluate {d} --batches 2 --samples 2",), memory=2**32, seconds=120
    ),
    "table": Form(("table.csv", "table.tsv", "table.csv.gz", "table.parquet"), _TABLE),
    "chunk": Form(
        ("chunk2.vcf.gz", "chunk2.bcf"),
        (
            "ligate {d} {g}/{chunk} -t 1 -q -o {o}/o.vcf.gz",
            f"ligate {{g}}/{{chunk}} {{d}} {_ON_PANEL} -t 1 -o {{o}}/o.bcf",
            "ligate {d} -t 1 -q -o {o}/o.vcf --allow-gaps",
        ),
    ),
    "evaluated file": Form(
        ("truth.vcf", "truth.bcf", "imputed.vcf.gz", "imputed.bcf", "target.vcf.gz"),
        (
            f"{_EVALUATE} --truth {{d}} {_IMPUTED} {_TYPED}",
            f"{_EVALUATE} {_TRUTH} --imputed {{d}} {_TYPED} -o {{o}}/evaluation",
            f"{_EVALUATE} {_TRUTH} {_IMPUTED} --typed {{d}}",
        ),
    ),
    "command line": Form(
        (),
        (
            *(command.replace("{d}", "{g}/target.vcf") for command in _TARGET),
            f"impute --vcf {{g}}/target.vcf {_ON_PANEL} -t 1 -o {{o}}/o.vcf --max-memory 1G -O v "
            "--predictor haplotype --ambiguous keep --phasing auto --device cpu",
            f"impute --vcf {{g}}/target.vcf {_ON_PANEL} -t 1 -o {{o}}/o.vcf --predictor spin "
            "--inducing-points 8",
            "panel build --vcf {g}/panel.vcf --map {g}/plink.map -r 20:1-2000000 --samples-file "
            "{g}/names.txt -t 1 -o {o}/o.spin",
            "panel build --vcf {g}/panel.spin --inducing 4 --array {g}/array.sites -t 1 -o {o}/o.spip",
            "panel chunks {g}/panel.spin --length-cm 0.05 --sites 10",
            "ligate {g}/chunk1.bcf {g}/chunk2.bcf -t 1 -o {o}/o.bcf",
            f"{_EVALUATE} {_TRUTH} {_IMPUTED} {_TYPED} --bins 0,0.1,0.5 --report {{o}}/r.html",
            f"impute --vcf {{g}}/target_x.vcf --panel {{g}}/panel_x.spin -r X:1-{PAR1_END} --sex "
            "{g}/sexes.txt -t 1 -o {o}/o.vcf",
            *(command.replace("{d}", "{g}/table.csv") for command in _TABLE),
            "np evaluate {g}/np.safetensors --batches 2 --samples 2 --context 4 8",
        ),
    ),
}  # fmt: skip

_ARGUMENTS = (
    *(field.decode("utf-8", "surrogateescape") for field in FIELDS if b"\0" not in field and len(field) < 99),
    "20:", "20:1-", "20:-5", "20:5-1", "20:1-99999999999999999999", "20:a-b", ":", ":1-2", "20:0-0", "X:1-2",
    "20:1_0-2_0", "1G", "1KB", "-1G", "1e9", "10.5.1", "100000", "1000000000", "-0", "0,0.5", "0.5,0", "a,b",
    "GT,GT", "gt", "a=b", "=", "width=1e9", "heads=0", "steps=-1", "/dev/null", "/tmp", "nowhere", "no/where",
    "~", "-", "--", "-q", "--nothing", "o.vcf", "o.spin", "A" * 250, "x/" * 3_000,
)  # fmt: skip


def good_case(form: Form, number: int, good: Path, folder: Path) -> Case:
    """Return a case without damage: the command of a format with this number, counted from 0."""
    name = form.files[number % len(form.files)] if form.files else ""
    return _case(form, name, None, form.commands[number], good, folder)


def make_case(form: Form, good: Path, draw: Random, folder: Path) -> Case:
    """Draw a case.

    Parameters
    ----------
    form : Form
        Format of the input.
    good : Path
        The folder of good inputs.
    draw : Random
        Source of all randomness.
    folder : Path
        Where the case is run; inputs and outputs are in folders of it.

    Returns
    -------
    Case
        The damaged file with the files next to it, and the command line.
    """
    if form.files:
        name = draw.choice(form.files)
        content = _damaged(good / name, draw)
        return _case(form, name, content, draw.choice(form.commands), good, folder)
    case = _case(form, "", None, draw.choice(form.commands), good, folder)
    _change_words(case.words, draw)
    return case


def _case(form: Form, name: str, content: bytes | None, command: str, good: Path, folder: Path) -> Case:
    source = good / name
    stem = source.with_suffix("").name
    files = {}
    if name:
        files = {stem + end: source.with_name(stem + end).read_bytes() for end in form.beside}
        good_content = files.pop(source.name, None) or source.read_bytes()
        files[source.name] = good_content if content is None else content  # last: an index must not be older
    places = {
        "d": folder / "in" / source.name,
        "stem": folder / "in" / stem,
        "g": good,
        "o": folder / "out",
        "chunk": source.name.replace("2", "1"),
    }
    return Case(files, [word.format(**places) for word in command.split()])


def _damaged(source: Path, draw: Random) -> bytes:
    """The damaged content; where drawing changed nothing, it is drawn again."""
    content = source.read_bytes()
    damage = next(damage for end, damage in DAMAGE if source.name.endswith(end))
    while (damaged := damage(content, draw)) == content:
        pass
    return damaged


def _change_words(words: list[str], draw: Random) -> None:
    """One or two values of the command line are replaced, or words are taken out or doubled."""
    for _ in range(draw.randint(1, 2)):
        at = draw.randrange(1, len(words))
        action = draw.random()
        if action < 0.8:
            values = [i for i in range(1, len(words)) if not words[i].startswith("-")]
            words[draw.choice(values or [at])] = draw.choice(_ARGUMENTS)
        elif action < 0.9 and len(words) > 2:
            del words[at]
        else:
            words.insert(at, words[draw.randrange(1, len(words))])
