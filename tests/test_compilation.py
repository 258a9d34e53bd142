"""After the first command has compiled all kernels, no other command compiles anything."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spinimpute.compilation import signatures

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "data" / "example"
FIRST = f"panel build --vcf {EXAMPLE}/panel.vcf.gz --map {EXAMPLE}/genetic.map --out panel.spin"
TARGET = f"--vcf {EXAMPLE}/target.vcf.gz --panel panel.spin"
TYPED = f"--typed {EXAMPLE}/target.vcf.gz --panel panel.spin"
REGIONS = "impute --vcf unphased.vcf --panel panel.spin --format GT,HDS,DS --buffer 0.1"
# In this order, as some read what others write. A number before a command: the haplotypes of a large panel.
COMMANDS = [
    f"impute {TARGET} --out phased.vcf.gz --format GT,DS,GP,HDS",
    f"impute {TARGET} --out loo.bcf --loo quality --report report.html",
    "impute --vcf unphased.vcf --panel panel.spin --out unphased.vcf.gz --format GP",
    f"100 impute {TARGET} --out large.vcf",
    "phase --vcf unphased.vcf --panel panel.spin --out target.bcf",
    f"panel tune --panel panel.spin --array {EXAMPLE}/array.txt --out tuned.spin",
    f"{REGIONS} --out a.vcf.gz --region 20:1-520000",
    f"{REGIONS} --out b.vcf.gz --region 20:480000-1000000",
    "ligate a.vcf.gz b.vcf.gz --out joined.vcf.gz",
    f"impute {TARGET} --out a.bcf --region 20:1-520000",
    f"impute {TARGET} --out b.bcf --region 20:480000-1000000",
    "ligate a.bcf b.bcf --out joined.bcf",
    f"check --vcf {EXAMPLE}/target.vcf.gz --panel panel.spin --out check.tsv",
    "convert --vcf unphased.vcf --panel panel.spin --out converted.vcf.gz",
    f"evaluate --truth {EXAMPLE}/truth.vcf.gz --imputed phased.vcf.gz {TYPED} --out evaluation",
    f"panel build --vcf panel.spin --inducing 16 --array {EXAMPLE}/array.txt --out points.spip",
    f"impute --vcf {EXAMPLE}/target.vcf.gz --panel points.spip --out points.vcf",
    "panel verify panel.spin",
]


def run(command: str, folder: Path, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    number, words = re.fullmatch(r"(?:(\d+) )?(.*)", command).groups()  # type: ignore[union-attr]
    large = f"import spinimpute.hmm.parameters as model; model.MOST_STATES = {number}; " if number else ""
    return subprocess.run(
        [sys.executable, "-c", f"{large}from spinimpute.cli.main import main; main()", *words.split()],
        cwd=folder, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SPINIMPUTE_CACHE": str(cache), **variables},
    )  # fmt: skip


def kept(cache: Path) -> set[str]:
    """The kernels that have been compiled, as in the list of signatures."""
    names = [path for path in (cache / "kernels").iterdir() if path.name != "lock"]
    return {path.read_bytes()[32:].partition(b"\n")[0].decode() for path in names}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a target whose calls are not phased and sometimes missing."""
    path = tmp_path_factory.mktemp("commands")
    text = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode()
    lines = [
        line if line[0] == "#" else line.replace("0|1", "0/1").replace("1|0", "0/1").replace("1|1", "./.", 1)
        for line in text.splitlines(keepends=True)
    ]
    (path / "unphased.vcf").write_text("".join(lines))
    return path


@pytest.fixture(scope="module")
def cache(folder: Path) -> Path:
    """After the first command."""
    cache = folder / "cache"
    done = run(FIRST, folder, cache)
    message = r"compiling for this processor, once \(about \d+ s\) \.\.\.\n"
    assert re.match(message, done.stderr), done.stderr
    assert len(re.findall("compiling", done.stderr)) == 1
    return cache


def test_the_first_command_compiles_all_that_is_listed(cache: Path) -> None:
    assert len(set(signatures())) == len(signatures())
    assert set(signatures()) <= kept(cache)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_other_command_compiles(command: str, folder: Path, cache: Path) -> None:
    before = kept(cache)
    done = run(command, folder, cache)
    assert kept(cache) - before == set(), "such lines are missing in kernel_signatures.txt"
    assert "compiling" not in done.stderr


def test_a_quiet_command_says_nothing(folder: Path, cache: Path) -> None:
    """Also where something is to be compiled."""
    for path in (cache / "kernels").glob("expand_rows-*"):
        path.unlink()
    assert run(f"{FIRST} --force --quiet", folder, cache).stderr == ""
    assert len(list((cache / "kernels").glob("expand_rows-*"))) == 1


def test_where_nothing_can_be_kept_a_command_says_so(folder: Path, cache: Path) -> None:
    blocked = folder / "blocked"
    (blocked / "kernels").mkdir(parents=True)
    (blocked / "kernels").chmod(0o777)
    done = run(f"{FIRST} --force", folder, blocked)
    assert (
        f"compiling for this processor, again in each run: nothing can be kept in {blocked}/kernels "
        "(other users may write to it); SPINIMPUTE_CACHE chooses another folder\n"
    ) in done.stderr
    assert list((blocked / "kernels").iterdir()) == []


def test_a_program_that_uses_the_library_compiles_what_it_needs(folder: Path, cache: Path) -> None:
    own = folder / "own"
    script = "import spinimpute; spinimpute.Panel.open('panel.spin').alleles(0, 9)"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SPINIMPUTE_CACHE": str(own)},
    )  # fmt: skip
    assert done.stderr == ""
    assert len(kept(own)) == 1
