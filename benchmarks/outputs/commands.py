"""The commands whose outputs are compared.

Outputs contain the command that made them, so all paths are relative to the folder in which commands run.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import click
import cyvcf2

from benchmarks.imputation.cases import REAL
from benchmarks.outputs.checksums import INPUTS
from benchmarks.outputs.other_formats import write_other_formats
from benchmarks.reliability.forms import FORMS, good_case
from benchmarks.reliability.fuzzer import write_good_inputs
from benchmarks.reliability.sequenced_inputs import FROM_CWD

REPOSITORY = Path(__file__).resolve().parents[2]
INDUCING_POINTS = 64
REFUSED = 2  # exit code
SEQUENCED = {"chr22_1kg": "chr22_1kg.1x.reads.gl.vcf.gz"}  # set -> genotype likelihoods
NETWORKS = ("spin", "published-spin", "npt", "set-transformer", "ft-transformer", "resnet", "mlp")
CONFIGURATIONS = ("haplotype", "spin")


class Runner:
    """Runs commands of one version of the program in a folder.

    Parameters
    ----------
    python : str
        The interpreter of the version.
    folder : Path
        The working folder of the commands.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self.python, self.folder = python, folder

    def __call__(self, command: str | Sequence[str]) -> bool:
        """Run a command.

        Returns
        -------
        bool
            Whether it accepted its input.

        Raises
        ------
        click.ClickException
            It failed; the message is its own.
        """
        words = shlex.split(command) if isinstance(command, str) else command
        environment = {k: v for k, v in os.environ.items() if k != "SPINIMPUTE_PANEL"}
        done = subprocess.run(
            [self.python, "-P", "-m", "spinimpute", *words],
            cwd=self.folder, env=environment, capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode not in (0, REFUSED):
            raise click.ClickException(f"{shlex.join(words)}\n{done.stderr}")
        return done.returncode == 0


Commands = Callable[[Runner], Iterator[str]]


def all_sets(data: Path | None) -> Iterator[tuple[str, Commands]]:
    """Return the names of the sets, and their commands.

    The order matters, because some commands read what earlier commands wrote.

    Parameters
    ----------
    data : Path, optional
        Folder of the real data; without it only the example and the small formats.
    """
    yield "example", _example
    yield "formats", _formats
    yield "networks", _networks
    if data is not None:
        for name in REAL:
            yield name, partial(_real, data.resolve(), name)


def _example(run: Runner) -> Iterator[str]:
    shutil.copytree(REPOSITORY / "data" / "example", run.folder / INPUTS)
    i = INPUTS
    yield f"panel build --vcf {i}/panel.vcf.gz --map {i}/genetic.map --out panel.spin"
    yield f"impute --vcf {i}/target.vcf.gz --panel panel.spin --out imputed.vcf.gz --format GT,DS,GP,HDS"
    yield f"panel build --vcf panel.spin --inducing 16 --array {i}/array.txt --out points.spip"
    yield f"impute --vcf {i}/target.vcf.gz --panel points.spip --out points.vcf"
    files = f"--truth {i}/truth.vcf.gz --imputed imputed.vcf.gz --typed {i}/target.vcf.gz"
    yield f"evaluate {files} --panel panel.spin --out evaluation"


def _formats(run: Runner) -> Iterator[str]:
    """Each command that reads each input format: reads, likelihoods, X, regions, merged panels and others."""
    good = _write_good_inputs(run)
    for name, form in FORMS.items():
        for number in range(len(form.commands)):
            folder = Path(f"{name.replace(' ', '_')}.{number}")
            case = good_case(form, number, good, run.folder / folder)
            for part in ("in", "out"):
                (run.folder / folder / part).mkdir(parents=True, exist_ok=True)
            for file, content in case.files.items():
                place = os.fsencode(folder / "in")
                (run.folder / folder / "in" / file).write_bytes(content.replace(FROM_CWD.encode(), place))
            yield shlex.join(word.replace(f"{run.folder}/", "") for word in case.words)


def _write_good_inputs(run: Runner) -> Path:
    good = run.folder / INPUTS
    good.mkdir()
    write_good_inputs(good, Runner(run.python, good))
    return good


def _networks(run: Runner) -> Iterator[str]:
    """A few steps of training of each network, and predictions of it."""
    _write_good_inputs(run)
    table = f"--table {INPUTS}/table.csv"
    for network in NETWORKS:
        fit = f"tabular fit {table} --target kind --ignore id --steps 3 -q"
        yield f"{fit} --model {network} -o {network}.safetensors"
        yield f"tabular predict {table} --model {network}.safetensors -o {network}.csv --probabilities"
    yield "np train --steps 3 --context 4 8 -q -o np.safetensors"
    for name in CONFIGURATIONS:
        shutil.copy(REPOSITORY / "configs" / f"{name}.toml", run.folder / INPUTS)
        yield f"train --config {INPUTS}/{name}.toml --steps 2 -t 2 -q -o trained_{name}.safetensors"


def _real(data: Path, name: str, run: Runner) -> Iterator[str]:
    folder = run.folder / INPUTS
    folder.symlink_to(data / "genotypes" / name)
    i, genetic_map = INPUTS, REAL[name]
    given = f"--map {shlex.quote(str(data / 'genotypes' / genetic_map))}" if genetic_map else ""
    phased, unphased = f"{i}/target.phased.bcf", f"{i}/target.unphased.vcf.gz"
    on = "--panel panel.spin"
    yield f"panel build --vcf {i}/panel.bcf {given} --out panel.spin"
    yield f"impute --vcf {phased} {on} --out phased.bcf --format GT,DS,GP,HDS"
    yield f"impute --vcf {phased} {on} --out loo.vcf.gz --loo quality"
    yield f"impute --vcf {unphased} {on} --out unphased.vcf.gz"
    yield f"impute --vcf {unphased} {on} --out dosages.pgen"
    yield f"impute --vcf {unphased} {on} --out dosages.bgen"
    yield f"phase --vcf {unphased} {on} --out target.bcf"
    yield f"panel tune {on} --array {phased} --out tuned.spin"
    yield f"impute --vcf {phased} --panel tuned.spin --out tuned.bcf"
    spin = f"--predictor spin --inducing-points {INDUCING_POINTS}"
    yield f"impute --vcf {phased} {on} --out spin.bcf {spin}"
    yield f"panel build --vcf panel.spin --inducing {INDUCING_POINTS} --array {phased} --out points.spip"
    yield f"impute --vcf {phased} --panel points.spip --out points.bcf"
    first, second = _halves(folder / "target.phased.bcf")
    yield f"impute --vcf {phased} {on} --out chunk1.bcf --region {first}"
    yield f"impute --vcf {phased} {on} --out chunk2.bcf --region {second}"
    yield f"ligate chunk1.bcf chunk2.bcf {on} --out joined.bcf"
    samples = cyvcf2.VCF(str(folder / "panel.bcf")).samples
    for part in (0, 1):
        (run.folder / f"people{part}.txt").write_text("".join(f"{s}\n" for s in samples[part::2]))
        people = f"--samples-file people{part}.txt"
        yield f"panel build --vcf {i}/panel.bcf {given} {people} --out part{part}.spin"
    yield f"impute --vcf {phased} --panel part0.spin --panel part1.spin --out merged.bcf"
    if name in SEQUENCED:
        likelihoods = shlex.quote(str(data / "sequencing" / SEQUENCED[name]))
        yield f"impute --gl {likelihoods} {on} --out sequenced.bcf --format GT,DS,GP,HDS"
        yield f"impute --gl {likelihoods} --vcf {phased} {on} --force --out both.bcf"
    others = run.folder / "others" / INPUTS
    others.parent.mkdir()
    write_other_formats(folder / "target.unphased.vcf.gz", others)
    o = f"others/{INPUTS}"
    yield f"convert --bfile {o}/array {on} --out plink1.vcf.gz"
    yield f"convert --pfile {o}/array {on} --out plink2.vcf.gz"
    yield f"impute --vcf {o}/array.txt {on} --out text.vcf.gz"
    yield f"check --vcf {o}/array.txt {on} --out check.tsv"


def _halves(vcf: Path) -> tuple[str, str]:
    """Two regions that a target's sites are in, half of them each."""
    places = [(record.CHROM, record.POS) for record in cyvcf2.VCF(str(vcf))]
    chrom, middle = places[len(places) // 2]
    return f"{chrom}:1-{middle}", f"{chrom}:{middle + 1}-{places[-1][1] + 10_000_000}"
