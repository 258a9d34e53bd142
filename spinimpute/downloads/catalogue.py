"""The published panels that can be downloaded (`catalogue.toml`), and the folders in which they are kept."""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from spinimpute.genotypes.builds import CHROMOSOMES
from spinimpute.runtime.errors import InputError

CATALOGUE = Path(__file__).with_name("catalogue.toml")
PANELS_VARIABLE = "SPINIMPUTE_PANELS"  # environment variable with the folder of downloaded panels
PUBLISHED_CHROMOSOMES = tuple(chrom for chrom in CHROMOSOMES if chrom != "Y")


@dataclass(frozen=True)
class PublishedPanel:
    """A panel that is published as one VCF per chromosome, with an archive of genetic maps."""

    id: str
    title: str
    build: str
    haplotypes: int
    url: str  # folder of the VCF files
    name: str  # name of a VCF file, with {chrom}
    map_url: str  # folder of the archive of genetic maps
    map_archive: str  # zip archive of PLINK maps, one or more per chromosome
    terms: str
    citation: str
    names: Mapping[str, str] = field(default_factory=dict)  # names of VCF files that differ from `name`
    md5: Mapping[str, str] = field(default_factory=dict)  # published MD5 checksums by chromosome

    def vcf_name(self, chrom: str) -> str:
        """Return the name of a chromosome's VCF file."""
        return self.names.get(chrom, self.name.format(chrom=chrom))

    def spin_name(self, chrom: str) -> str:
        """Return the name of a chromosome's panel file."""
        return f"{self.id}.chr{chrom}.spin"

    def default_folder(self) -> Path:
        """Return the folder in which the panel files are kept by default."""
        return panels_folder() / self.id


def published_panels() -> dict[str, PublishedPanel]:
    """Return the published panels by name."""
    rows = tomllib.loads(CATALOGUE.read_text(encoding="utf-8"))
    return {name: PublishedPanel(name, **row) for name, row in rows.items()}


def find_published(name: str) -> PublishedPanel:
    """Return a published panel. Raises InputError if there is none of this name."""
    panels = published_panels()
    if name not in panels:
        raise InputError(
            "not-found", f"there is no published panel {name!r}. The panels are: {', '.join(panels)}"
        )
    return panels[name]


def panels_folder() -> Path:
    """Return the folder of downloaded panels: $SPINIMPUTE_PANELS, or a folder for the user's data.

    Raises InputError if there is neither.
    """
    if chosen := os.environ.get(PANELS_VARIABLE):
        return Path(chosen)
    try:
        if sys.platform == "darwin":
            data = Path.home() / "Library" / "Application Support"
        else:
            data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    except RuntimeError as error:  # in a container, a user may have no home
        raise InputError(
            "not-found",
            "there is no home folder for downloaded panels. Set the environment variable "
            f"{PANELS_VARIABLE} to a folder",
        ) from error
    return data / "spinimpute" / "panels"


def find_downloaded(panel: str) -> str:
    """Return the folder of a downloaded panel if `panel` is its name. Other paths are returned unchanged.

    If only one chromosome has been downloaded, its file is returned. A file or folder of this name in the
    current folder takes precedence. Raises InputError if the panel has not been downloaded.
    """
    if os.path.lexists(panel) or os.sep in panel or panel not in published_panels():
        return panel
    folder = panels_folder() / panel
    files = sorted(folder.glob("[!.]*.spin"))
    if not files:
        raise InputError(
            "not-found",
            f"panel {panel}: there are no panel files in {folder}. Run 'spinimpute panel get {panel}'. If "
            f"they are in another folder, give that folder, or set ${PANELS_VARIABLE} to the one above it",
        )
    return str(files[0] if len(files) == 1 else folder)


def choose_chromosomes(text: str | None) -> list[str]:
    """Parse a list of chromosomes such as "1,20-22,X". Default: all published ones, 1 to 22 and X.

    The result is in the order of the genome. Raises InputError for other chromosomes.
    """
    if text is None:
        return list(PUBLISHED_CHROMOSOMES)
    chosen: set[str] = set()
    for word in text.split(","):
        first, dash, last = (part.strip().removeprefix("chr") for part in word.partition("-"))
        try:
            start = PUBLISHED_CHROMOSOMES.index(first)
            end = PUBLISHED_CHROMOSOMES.index(last) if dash else start
        except ValueError:
            start, end = 1, 0
        if start > end:
            raise InputError(
                "argument",
                f"chromosomes {text!r}: {word!r} is not a published chromosome or range. Give names such as "
                "1,20-22,X",
            )
        chosen.update(PUBLISHED_CHROMOSOMES[start : end + 1])
    return [chrom for chrom in PUBLISHED_CHROMOSOMES if chrom in chosen]
