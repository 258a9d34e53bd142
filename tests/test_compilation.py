"""After the first command has compiled all kernels, no other command compiles anything."""

import gzip
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from spinimpute import compilation
from spinimpute.compilation import before_compiling, parse_signature, signatures, start_command
from spinimpute.kernel_files import KernelFiles

REPOSITORY = Path(__file__).resolve().parent.parent
EXAMPLE = REPOSITORY / "data" / "example"
FIRST = f"panel build --vcf {EXAMPLE}/panel.vcf.gz --map {EXAMPLE}/genetic.map --out panel.spin"
TARGET = f"--vcf {EXAMPLE}/target.vcf.gz --panel panel.spin"
TYPED = f"--typed {EXAMPLE}/target.vcf.gz --panel panel.spin"
REGIONS = "impute --vcf unphased.vcf --panel panel.spin --format GT,HDS,DS --buffer 0.1"
MIXED = "spinimpute.predictors.haplotype_attention.posterior_alleles"
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
    f"impute --gl {EXAMPLE}/target.vcf.gz --panel panel.spin --out sequenced.vcf.gz",
    f"100 impute --gl {EXAMPLE}/target.vcf.gz --panel panel.spin --out sequenced.vcf",
    "panel verify panel.spin",
]


def run(command: str, folder: Path, cache: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    number, words = re.fullmatch(r"(?:(\d+) )?(.*)", command).groups()  # type: ignore[union-attr]
    names = ("MOST_STATES", "MOST_COPIED", "MOST_SEARCHED")
    limits = "".join(f"model.{name} = {number}; " for name in names)
    mixed = f"import {MIXED} as mixed; mixed.SMALL = {number} // 2; mixed.LARGE = {number}; "
    large = f"import spinimpute.hmm.parameters as model; {limits}{mixed}" if number else ""
    return subprocess.run(
        [sys.executable, "-c", f"{large}from spinimpute.cli.main import main; main()", *words.split()],
        cwd=folder, capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(REPOSITORY), "SPINIMPUTE_CACHE": str(cache), **variables},
    )  # fmt: skip


def kept(cache: Path) -> set[str]:
    """The kernels that have been compiled, as in the list of signatures.

    Without those for one value of an argument, a Literal: their callers bring them along.
    """
    files = [path for path in (cache / "kernels").iterdir() if path.name != "lock"]
    lines = {path.read_bytes()[32:].partition(b"\n")[0].decode() for path in files}
    return {line for line in lines if "Literal[" not in line}


def refused(lines: set[str]) -> set[str]:
    """Those that the list cannot hold."""
    found = set()
    for line in lines:
        try:
            parse_signature(line)
        except ValueError:
            found.add(line)
    return found


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


@pytest.mark.parametrize("line", signatures())
def test_every_line_of_the_list_names_a_kernel(line: str) -> None:
    kernel, kinds = parse_signature(line)
    assert compilation.signature_text(kernel, kinds) == line
    assert len(kinds) == kernel.py_func.__code__.co_argcount
    assert signatures().count(line) == 1


FILL_ENDS = "spinimpute.hmm.posteriors._fill_ends(int64, int64[1], int64[1], int64[2], float32[2])"
OTHER_ORDER = FILL_ENDS.replace("int64[2]", "array(int64, 2d, F)")


@pytest.mark.parametrize(
    "line",
    [
        OTHER_ORDER,
        FILL_ENDS.replace("int64,", "Literal[int](2),"),
        FILL_ENDS.replace("int64,", "int63,"),
        FILL_ENDS.replace("_fill_ends", "_fill_end"),
        FILL_ENDS.replace("_fill_ends", "np"),
        FILL_ENDS.replace(".hmm", ".hidden"),
        FILL_ENDS.removesuffix(")"),
        FILL_ENDS.replace("int64,", "spinimpute.phasing.fragment_phase.NoFragments<int64[1]>,"),
        FILL_ENDS.replace("int64,", "spinimpute.phasing.fragment_phase.SweptFragments<int63>,"),
    ],
)
def test_lines_of_no_kernel_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match=re.escape(line)):
        parse_signature(line)


@pytest.fixture
def compiling(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, list[str]]:
    """A command that is to compile a list of its own: its cache, and what it says."""
    lines, said = list(request.param), list[str]()
    share = f"c.signatures = lambda: {lines!r}; c.compile_share()"
    monkeypatch.setattr(compilation, "signatures", lambda: lines)
    monkeypatch.setattr(compilation, "_SHARE", compilation._SHARE.replace("c.compile_share()", share))
    monkeypatch.setattr(compilation, "_command", compilation._Command())
    monkeypatch.setattr("spinimpute.kernel_files.kernel_files", lambda: KernelFiles(tmp_path / "kernels"))
    monkeypatch.setattr("spinimpute.devices.default_threads", lambda: 1)
    monkeypatch.setenv("SPINIMPUTE_CACHE", str(tmp_path))
    start_command(said.append)
    return tmp_path, said


@pytest.mark.parametrize("compiling", [[OTHER_ORDER, FILL_ENDS]], indirect=True)
def test_a_kernel_that_cannot_be_compiled_is_mentioned_and_the_others_are_compiled(
    compiling: tuple[Path, list[str]],
) -> None:
    cache, said = compiling
    assert before_compiling(FILL_ENDS, "a name")
    assert kept(cache) == {FILL_ENDS}
    assert len(said) == 2
    assert said[1].startswith("some could not be compiled in advance and will be when they are needed (")
    assert OTHER_ORDER in said[1]
    assert "\n" not in said[1]


@pytest.mark.parametrize("compiling", [[FILL_ENDS]], indirect=True)
def test_a_process_that_is_killed_is_mentioned(
    compiling: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilation, "_SHARE", "import os; os.kill(os.getpid(), 9)")
    assert before_compiling(FILL_ENDS, "a name")
    assert "(a process ended with status -9)" in compiling[1][1]


@pytest.mark.parametrize("compiling", [[FILL_ENDS]], indirect=True)
def test_where_all_is_compiled_nothing_more_is_said(compiling: tuple[Path, list[str]]) -> None:
    assert before_compiling(FILL_ENDS, "a name")
    assert len(compiling[1]) == 1


def test_the_first_command_compiles_all_that_is_listed(cache: Path) -> None:
    assert len(set(signatures())) == len(signatures())
    assert set(signatures()) <= kept(cache)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_other_command_compiles(command: str, folder: Path, cache: Path) -> None:
    before = kept(cache)
    done = run(command, folder, cache)
    added = kept(cache) - before
    assert refused(added) == set(), "their arguments have to be made contiguous before the call"
    assert added == set(), "such lines are missing in kernel_signatures.txt"
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
