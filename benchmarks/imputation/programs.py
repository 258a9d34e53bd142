"""The imputation programs: how each program builds its panel and imputes.

All programs read the same target as VCF.gz, the only format that Beagle reads, and write VCF.gz, the only
format that Beagle writes. Panels are compiled to each program's own format before the timing: bref3, msav,
spin.
"""

from __future__ import annotations

import math
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.imputation.cases import Case

NEEDED = {"beagle": "beagle", "bref3": "beagle", "minimac4": "minimac4", "bcftools": "bcftools"}
DEFAULT_FORMATS = ("GT", "DS")
PROBABILITY_FORMATS = ("GT", "DS", "GP")


class Imputer(Protocol):
    """A program with its arguments."""

    @property
    def label(self) -> str: ...

    @property
    def program(self) -> str:
        """The name of the program, without its arguments."""
        ...

    @property
    def panel_name(self) -> str:
        """The file name of the compiled panel, which all imputers of one program share."""
        ...

    @property
    def estimate(self) -> str:
        """The INFO key of the estimated r2."""
        ...

    def build(self, case: Case, panel: Path) -> list[object]:
        """Return the command that compiles the panel."""
        ...

    def impute(
        self, case: Case, panel: Path, target: Path, out: Path, formats: Sequence[str], threads: int
    ) -> list[object]:
        """Return the command that imputes `target` (VCF.gz) and writes `out` (.vcf.gz)."""
        ...


@dataclass(frozen=True)
class Beagle:
    label: str = "Beagle"
    program: str = "Beagle"
    panel_name: str = "panel.bref3"
    estimate: str = "DR2"

    def build(self, case: Case, panel: Path) -> list[object]:
        read = f"bcftools view {shlex.quote(str(case.panel))}"
        return ["sh", "-c", f"{read} | bref3 > {shlex.quote(str(panel))}"]

    def impute(
        self, case: Case, panel: Path, target: Path, out: Path, formats: Sequence[str], threads: int
    ) -> list[object]:
        stem = str(out).removesuffix(".vcf.gz")
        command = ["beagle", f"gt={target}", f"ref={panel}"]
        command += [] if case.genetic_map is None else [f"map={case.genetic_map}"]
        return [*command, f"nthreads={threads}", f"out={stem}", *(["gp=true"] if "GP" in formats else [])]


@dataclass(frozen=True)
class Minimac4:
    label: str = "Minimac4"
    program: str = "Minimac4"
    panel_name: str = "panel.msav"
    estimate: str = "R2"

    def build(self, case: Case, panel: Path) -> list[object]:
        return ["minimac4", "--compress-reference", case.panel, "-o", panel]

    def impute(
        self, case: Case, panel: Path, target: Path, out: Path, formats: Sequence[str], threads: int
    ) -> list[object]:
        command = ["minimac4", panel, target, "-o", out, "-f", ",".join(formats)]
        return [*command, "-t", threads, *case.map_arguments]


@dataclass(frozen=True)
class Ours:
    """`spinimpute impute` with further arguments.

    building: arguments of `spinimpute panel build`. python: interpreter of the environment that runs it.
    """

    label: str = "spinimpute"
    arguments: tuple[str, ...] = ()
    program: str = "spinimpute"
    panel_name: str = "panel.spin"
    estimate: str = "R2"
    with_map: bool = True
    building: tuple[str, ...] = ()
    python: str = sys.executable

    def build(self, case: Case, panel: Path) -> list[object]:
        command = [self.python, "-P", "-m", "spinimpute.cli.main", "panel", "build", "--vcf", case.panel]
        genetic_map = case.map_arguments if self.with_map else ()
        return [*command, *genetic_map, "--out", panel, *self.building]

    def impute(
        self, case: Case, panel: Path, target: Path, out: Path, formats: Sequence[str], threads: int
    ) -> list[object]:
        command = [
            self.python,
            "-P",  # the environment's version, whatever the working folder holds
            "-m",
            "spinimpute.cli.main",
            "impute",
            "--vcf",
            target,
            *(() if "--panel" in self.arguments else ("--panel", panel)),
            "--out",
            out,
        ]
        return [*command, "--format", ",".join(formats), "--threads", threads, "--force", *self.arguments]


PEERS: tuple[Imputer, ...] = (Beagle(), Minimac4())
PEER_LABELS = tuple(peer.label for peer in PEERS)
BASELINES = ("allele-frequency", "10_nearest_haplotypes")


def our_imputers(options: Sequence[str]) -> list[Ours]:
    """Return the configurations of --ours NAME=ARGUMENTS, or the default configuration if there are none.

    Raises:
        SystemExit: an option has no name, or a name is repeated.
    """
    ours: list[Ours] = []
    for option in options or ["spinimpute="]:
        name, equals, arguments = option.partition("=")
        if not name or not equals:
            raise SystemExit(
                f"--ours {option}: give NAME=ARGUMENTS, such as 'tuned=--model tuned.safetensors'"
            )
        ours.append(Ours(name.replace(" ", "_"), tuple(shlex.split(arguments))))
    labels = [*BASELINES, *PEER_LABELS, *(one.label for one in ours)]
    if len(set(labels)) < len(labels):
        raise SystemExit(f"--ours: every name must be given once, however: {', '.join(labels)}")
    return ours


def better_peer(values: Mapping[str, float]) -> tuple[str, float] | None:
    """Return the peer with the highest value and this value; None if no peer has a value."""
    known = {peer: values[peer] for peer in PEER_LABELS if not math.isnan(values.get(peer, math.nan))}
    if not known:
        return None
    best = max(known, key=lambda peer: known[peer])
    return best, known[best]


def check_programs() -> None:
    """Raise SystemExit if a program is not on the PATH; nothing is installed here."""
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        raise SystemExit(f"not on the PATH (Debian: apt-get install {' '.join(dict.fromkeys(missing))})")
