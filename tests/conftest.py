"""Fixtures that every test may ask for: real genotypes, variant files, segments, models, a small disk."""

import gzip
import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import cyvcf2
import numpy as np
import pytest
import torch
from spinimpute.cli.main import run_command

import spinimpute
from spinimpute.genotypes.sites import Region
from spinimpute.nn.model_weights import arrays_of
from spinimpute.predictors.spin.network import GenotypeSPIN
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.predictors.spin.settings import SPINSettings
from spinimpute.runtime.kernels import folder_of
from spinimpute.training.simulation import Segment, SimulationSettings, simulate_segment

REPOSITORY = Path(__file__).resolve().parent.parent
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
HEADLESS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
NEEDS_PROC = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc of Linux")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run slow modules first, so that no process is left with one when the others have finished."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session", autouse=True)
def usual_environment() -> Iterator[None]:
    """Leave out variables of the shell that change what commands print or read."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("COLUMNS", "FORCE_COLOR", "SPINIMPUTE_PANEL", "SPINIMPUTE_PANELS"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def announced_kernels() -> None:
    """Make the folders of all kernels: a command announces that it compiles when it makes one."""
    package = Path(spinimpute.__file__).parent
    for path in package.rglob("*.py"):
        if "\n@kernel(" in path.read_text():
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            folder_of(name)


@pytest.fixture(scope="session")
def shared_genotypes() -> Path:
    """The folder of real genotypes kept beside the checkout (or named by SPINIMPUTE_SHARED)."""
    folder = Path(os.environ.get("SPINIMPUTE_SHARED", REPOSITORY.parent / "shared")) / "data" / "genotypes"
    if not folder.is_dir():
        pytest.skip(f"real genotypes are not at {folder}: set SPINIMPUTE_SHARED to the folder of data/")
    return folder


@pytest.fixture(scope="session")
def dense_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six of the example's targets; every other site of the panel is typed (2,227): they make nine chunks."""
    truth = gzip.decompress((REPOSITORY / "data" / "example" / "truth.vcf.gz").read_bytes())
    lines = truth.decode().splitlines(keepends=True)
    head = sum(line[0] == "#" for line in lines)
    path = tmp_path_factory.mktemp("dense") / "dense.vcf"
    few = ["\t".join(line.split("\t")[:15]).rstrip() + "\n" for line in lines[head - 1 :]]
    path.write_text("".join([*lines[: head - 1], few[0], *few[1::2]]))
    return path


class Result(NamedTuple):
    """The exit status of a command, and what it printed."""

    code: int
    out: str
    err: str

    def ok(self, *messages: str) -> "Result":
        """Check that the command succeeded, with these messages."""
        assert self.code == 0, self.err
        for message in messages:
            assert message in self.err
        return self

    def refused(self, *messages: str) -> "Result":
        """Check that the command failed by a user's mistake, with these messages."""
        assert self.code == 2, self.err
        for message in messages:
            assert message in self.err
        return self


@dataclass(frozen=True)
class Runner:
    """`run(*arguments)`, and `run.impute(target, panel, out, *options)` for the commands on targets."""

    call: Callable[..., Result]

    def __call__(self, *arguments: object) -> Result:
        return self.call(*arguments)

    def impute(self, vcf: object, panel: object, out: object, *more: object) -> Result:
        return self("impute", "--vcf", vcf, "--panel", panel, "--out", out, *more)

    def phase(self, vcf: object, panel: object, out: object, *more: object) -> Result:
        return self("phase", "--vcf", vcf, "--panel", panel, "--out", out, *more)

    def convert(self, vcf: object, panel: object, out: object, *more: object) -> Result:
        return self("convert", "--vcf", vcf, "--panel", panel, "--out", out, *more)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Runner:
    """The console script's function in this process."""

    def run_main(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["spinimpute", *map(str, arguments)])
        code = run_command()
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Result(code, out, err)

    monkeypatch.delenv("SPINIMPUTE_PANEL", raising=False)
    return Runner(run_main)


@dataclass(frozen=True)
class Disk:
    """A file system of its own in a folder; it has room for some KiB."""

    folder: Path

    def resize(self, kib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={kib}k", self.folder], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Disk]]:
    """small_disk(kib): a tmpfs of so many KiB, in a folder of its own."""
    mounted: list[Path] = []

    def mount(kib: int) -> Disk:
        folder = tmp_path / f"disk{len(mounted)}"
        folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", folder]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except FileNotFoundError:
            pytest.skip("there is no mount command here")
        if done.returncode:
            pytest.skip(f"a tmpfs may not be mounted here: {done.stderr.strip()}")
        mounted.append(folder)
        return Disk(folder)

    yield mount
    for folder in mounted:
        subprocess.run(["umount", folder], check=True)


# POS, REF, ALT, one GT per sample, and perhaps INFO
Record = tuple[int, str, str, Sequence[str]] | tuple[int, str, str, Sequence[str], str]

HEADER = (
    "##fileformat=VCFv4.2\n"
    '##FILTER=<ID=PASS,Description="All filters passed">\n'
    "##contig=<ID=20,length=63025520>\n"
    "##contig=<ID=21>\n"
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
)

INFO_HEADER = (
    '##INFO=<ID=END,Number=1,Type=Integer,Description="END">\n'
    '##INFO=<ID=SVLEN,Number=.,Type=Integer,Description="SVLEN">\n'
    '##INFO=<ID=SVTYPE,Number=1,Type=String,Description="SVTYPE">\n'
)


def vcf_text(records: Sequence[Record], samples: Sequence[str], chrom: str = "20") -> str:
    header = HEADER.replace("ID=20", f"ID={chrom}") if chrom not in ("20", "21") else HEADER
    if any(len(record) > 4 for record in records):
        header += INFO_HEADER
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
    lines = ["\t".join([*columns, *samples])]
    for position, ref, alt, genotypes, *info in records:
        fixed = [chrom, str(position), f"rs{position}", ref, alt, ".", "PASS", *(info or ["."]), "GT"]
        lines.append("\t".join([*fixed, *genotypes]))
    return header + "\n".join(lines) + "\n"


def convert(text: Path, out: Path) -> Path:
    """Write the VCF `text` as what the suffix of `out` says."""
    if out.name.endswith((".vcf", ".plain.gz")):
        content = text.read_bytes()
        out.write_bytes(gzip.compress(content) if out.suffix == ".gz" else content)
        return out
    source = cyvcf2.VCF(str(text))
    writer = cyvcf2.Writer(str(out), source, mode="wb" if out.suffix == ".bcf" else "wz")
    for record in source:
        writer.write_record(record)
    writer.close()
    source.close()
    return out


@pytest.fixture
def convert_vcf() -> Callable[[Path, Path], Path]:
    """convert_vcf(text, out): write the VCF `text` as what the suffix of `out` says."""
    return convert


@pytest.fixture
def write_vcf(tmp_path: Path) -> Callable[..., Path]:
    """write_vcf(records, samples=None, name="t.vcf", chrom="20"): a .vcf, .vcf.gz, .bcf or .plain.gz file.

    A record is (POS, REF, ALT, [GT, ...]) or (POS, REF, ALT, [GT, ...], INFO); without names the samples are
    a, b, c ...
    """

    def write(
        records: Sequence[Record],
        samples: Sequence[str] | None = None,
        name: str = "t.vcf",
        chrom: str = "20",
    ) -> Path:
        if samples is None:
            samples = [chr(ord("a") + i) for i in range(len(records[0][3]))]
        text = tmp_path / "source.txt"
        text.write_text(vcf_text(records, samples, chrom))
        return convert(text, tmp_path / name)

    return write


@pytest.fixture
def found_in_browser(tmp_path: Path) -> Callable[[Path, str, int], str]:
    """found_in_browser(page, script, width): what the script puts into document.body.dataset.found."""
    if CHROMIUM is None:
        pytest.skip("no Chromium")

    def found(page: Path, script: str, width: int) -> str:
        copy = tmp_path / "copy.html"
        copy.write_text(page.read_text().replace("</head>", f"<script>{script}</script></head>"))
        done = subprocess.run(
            [
                CHROMIUM, *HEADLESS, f"--user-data-dir={tmp_path / 'profile'}",
                f"--window-size={width},900", "--dump-dom", copy.as_uri(),
            ],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        match = re.search(r'data-found="([^"]*)"', done.stdout)
        assert match, done.stderr[-2000:]
        return html.unescape(match[1])

    return found


@pytest.fixture
def index() -> Callable[[Path], None]:
    """index(path): write an index beside a compressed file."""
    bcftools = shutil.which("bcftools")
    if bcftools is None:
        pytest.skip("bcftools is not installed; it writes the index this test reads")

    def run(path: Path) -> None:
        subprocess.run([bcftools, "index", "-f", str(path)], check=True)

    return run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def mosaic() -> Callable[..., np.ndarray]:
    """Haplotypes (sites, n) copied from few founders: many ties, and matches that errors interrupt."""

    def draw(
        rng: np.random.Generator, n_sites: int, n: int, founders: int = 4, errors: float = 0.03
    ) -> np.ndarray:
        base = rng.integers(0, 2, (n_sites, founders))
        return (base[:, rng.integers(0, founders, n)] ^ (rng.random((n_sites, n)) < errors)).astype(np.uint8)

    return draw


@pytest.fixture(scope="session")
def example() -> Path:
    return REPOSITORY / "data" / "example"


@pytest.fixture(scope="session")
def example_panel(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[spinimpute.Panel]:
    path = tmp_path_factory.mktemp("panel") / "panel.spin"
    with spinimpute.build_panel(example / "panel.vcf.gz", path, example / "genetic.map") as panel:
        yield panel


@pytest.fixture(scope="session")
def example_halves(example_panel: spinimpute.Panel, example: Path) -> list[Path]:
    """Two panel files: the sites of the example panel in its first half, and those in its second."""
    middle = int(example_panel.position[example_panel.n_sites // 2])
    halves = []
    for name, start, end in (("first", 1, middle - 1), ("second", middle, 10**9)):
        halves.append(example_panel.path.with_name(f"{name}.spin"))
        region = Region("20", start, end)
        spinimpute.build_panel(example / "panel.vcf.gz", halves[-1], example / "genetic.map", region).close()
    return halves


@pytest.fixture(scope="session")
def segment() -> Segment:
    settings = SimulationSettings(
        length=(120_000, 120_001), samples=(60, 61), recombination_rate=(1e-8, 1.001e-8)
    )
    return simulate_segment(5, settings)


def random_spin(settings: SPINSettings) -> GenotypeSPIN:
    """Random weights, also where training starts from zero: nothing may hold by accident."""
    torch.manual_seed(0)
    model = GenotypeSPIN(settings)
    for parameter in model.decoder.last.parameters():
        torch.nn.init.normal_(parameter)
    return model


def spin_predictor(model: GenotypeSPIN, fingerprint: str, inducing_points: int) -> SPINPredictor:
    """A predictor on a CPU with a network's weights."""
    weights = arrays_of(model.state_dict())
    return SPINPredictor(weights, model.settings, fingerprint, "cpu", inducing_points)


@pytest.fixture
def random_predictor() -> SPINPredictor:
    """Its places make whole columns; at their middle is the block's."""
    model = random_spin(SPINSettings(core=4, flank=5))
    return spin_predictor(model, "random", 12)


@pytest.fixture
def random_predictor_of_3mers() -> SPINPredictor:
    """Its outermost columns are filled up."""
    model = random_spin(SPINSettings(core=3, flank=5, k=3, heads=4, pair_heads=3, tolerances=2, rounds=1))
    return spin_predictor(model, "random 3-mers", 12)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)
