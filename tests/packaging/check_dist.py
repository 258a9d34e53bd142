"""Check the wheel and the sdist in a folder, for `make dist`.

Each is installed into an empty virtual environment, without extras, and imputes data/example from a folder
without the source tree.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NEEDED = (
    "spinimpute/cli/main.py",
    "spinimpute/weights/haplotype.safetensors",
    "spinimpute/weights/spin.safetensors",
)
MAX_MB = 400  # of an environment with the base installation
COMMANDS = (
    "panel build --vcf panel.vcf.gz --map genetic.map --out panel.spin --quiet",
    "impute --vcf target.vcf.gz --panel panel.spin --out imputed.vcf --quiet",
)


class FaultyDistribution(Exception):
    """A wheel or sdist is incomplete, or has files that do not belong into it."""


def contents(wheel: Path) -> dict[str, bytes]:
    """Return the files of a wheel, by name."""
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/")}


def check_contents(wheel: Path) -> None:
    """Raise FaultyDistribution unless a wheel has all that runs, and nothing else."""
    files = contents(wheel)
    if lacking := [name for name in NEEDED if not files.get(name)]:
        raise FaultyDistribution(f"{wheel.name}: lacks {', '.join(lacking)}")
    tops = {name.split("/")[0] for name in files if ".dist-info/" not in name}
    if tops != {"spinimpute"}:
        raise FaultyDistribution(
            f"{wheel.name}: has {', '.join(sorted(tops - {'spinimpute'}))} beside spinimpute"
        )


def check_same(wheel: Path, other: Path) -> None:
    """Raise FaultyDistribution unless both wheels have the same files."""
    one, two = contents(wheel), contents(other)
    if differing := sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name)):
        raise FaultyDistribution(f"{wheel.name}: built from the sdist, differs in {', '.join(differing[:5])}")


def run(*command: str | Path, folder: Path) -> str:
    """Run a command in a folder, without this process's variables of Python; return its output."""
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYTHON")}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise FaultyDistribution(f"{' '.join(map(str, command))}:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def records(path: Path) -> list[str]:
    """Return the lines of a VCF without its header, which names the command."""
    return [line for line in path.read_text().splitlines() if not line.startswith("#")]


def try_installed(distribution: Path, version: str, folder: Path) -> list[str]:
    """Install into an empty environment in a folder, impute the example, and return the records."""
    environment = folder / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", distribution, folder=folder)
    megabytes = sum(path.lstat().st_blocks * 512 for path in environment.rglob("*")) / 2**20
    if megabytes > MAX_MB:
        raise FaultyDistribution(f"the environment has {megabytes:.0f} MB, more than {MAX_MB}")
    spinimpute = environment / "bin" / "spinimpute"
    said = run(spinimpute, "--version", folder=folder)
    if said.split() != ["spinimpute", version]:
        raise FaultyDistribution(f"{distribution.name}: --version says {said.strip()!r}, not {version}")
    for path in (ROOT / "data" / "example").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    for command in COMMANDS:
        run(spinimpute, *command.split(), folder=folder)
    return records(folder / "imputed.vcf")


def only(folder: Path, pattern: str) -> Path:
    """Return the only file with a name of this pattern."""
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise FaultyDistribution(f"{folder}: {len(found)} files {pattern}; empty the folder and build anew")
    return found[0]


def check(folder: Path) -> None:
    """Check the wheel and the sdist of a folder. Raises FaultyDistribution at the first fault."""
    wheel, sdist = only(folder, "*.whl"), only(folder, "*.tar.gz")
    version = wheel.name.split("-")[1]
    check_contents(wheel)
    print(f"{wheel.name}: {len(contents(wheel))} files")
    imputed = []
    with tempfile.TemporaryDirectory(prefix="spinimpute-dist-") as name:
        place = Path(name)
        with tarfile.open(sdist) as packed:
            packed.extractall(place / "sdist", filter="data")
        (source,) = (place / "sdist").iterdir()
        run(sys.executable, "-m", "build", "--wheel", "--outdir", place / "rebuilt", source, folder=place)
        check_same(wheel, only(place / "rebuilt", "*.whl"))
        print(f"{sdist.name}: builds the same wheel")
        for distribution in (wheel, sdist):
            (place / distribution.suffix).mkdir()
            imputed.append(try_installed(distribution.resolve(), version, place / distribution.suffix))
            print(f"{distribution.name}: installs and imputes {len(imputed[-1])} sites")
    if not imputed[0] or imputed[0] != imputed[1]:
        raise FaultyDistribution("wheel and sdist impute differently")


if __name__ == "__main__":
    try:
        check(Path(sys.argv[1]).resolve())
    except FaultyDistribution as fault:
        sys.exit(f"make dist: {fault}")
