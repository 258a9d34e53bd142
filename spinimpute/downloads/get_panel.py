"""Download a published panel and build its panel files, one chromosome at a time.

While a chromosome is built, the next one is downloaded. So the disk holds the downloads of two chromosomes at
most. They are in a hidden folder next to the panel files, which is removed at the end.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from spinimpute.downloads.catalogue import PublishedPanel, choose_chromosomes, find_published
from spinimpute.downloads.map_archive import read_archived_map
from spinimpute.downloads.transfer import check_url, download, partial_paths
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.panels.panel import Panel
from spinimpute.pipeline.maps.build import build_panels
from spinimpute.runtime.errors import InputError, call
from spinimpute.runtime.output_files import CannotWrite
from spinimpute.runtime.partial_files import locked_folder
from spinimpute.runtime.progress import Progress, announce, begin_stage

WORK_FOLDER = ".spinimpute-download"
MAX_VCF_BYTES = 32 * 2**30
MAX_SMALL_BYTES = 2**28  # of an index or an archive of maps


def get_panel(
    name: str,
    out: str | Path | None = None,
    chromosomes: str | None = None,
    *,
    base_url: str | None = None,
    map_url: str | None = None,
    threads: int = 1,
    progress: Progress | None = None,
    report_built: Callable[[Path], object] | None = None,
) -> list[Path]:
    """Download a published panel and build its panel files.

    Chromosomes that have a panel file are skipped. An interrupted download is resumed by the next call.

    Parameters
    ----------
    name : str
        Name of the panel, such as "1000g-30x".
    out : str or Path, optional
        Folder for the panel files. Default: a folder of this name in $SPINIMPUTE_PANELS or among the user's
        data, where the command line finds the panel by its name.
    chromosomes : str, optional
        Chromosomes to get, such as "1,20-22,X". Default: 1 to 22 and X.
    base_url : str, optional
        Address of a folder with copies of the panel's VCF files.
    map_url : str, optional
        Address of a folder with a copy of the archive of genetic maps.
    threads : int
        Number of threads and processes, see `build_panel`.
    progress : callable, optional
        Receives the fraction that is done.
    report_built : callable, optional
        Called with each new panel file.

    Returns
    -------
    list of Path
        The panel files of the chromosomes.

    Raises
    ------
    InputError
        There is no such panel or chromosome, a file cannot be downloaded or is damaged, or `out` cannot be
        written.
    """
    panel = find_published(name)
    chosen = choose_chromosomes(chromosomes)
    url = check_url(panel.url if base_url is None else base_url)
    maps = check_url(panel.map_url if map_url is None else map_url)
    folder = panel.default_folder() if out is None else Path(out)
    files = {chrom: folder / panel.spin_name(chrom) for chrom in chosen}
    missing = [chrom for chrom in chosen if not files[chrom].exists()]
    for chrom in chosen:
        if chrom not in missing:
            _check_existing(files[chrom])
            announce(f"{files[chrom]}: exists already")
    if not missing:
        return list(files.values())
    with _work_folder(folder) as work:
        missing = [chrom for chrom in missing if not files[chrom].exists()]  # another run may have built some
        source = _Source(panel, url, maps, work, dict.fromkeys(missing, 0.0), progress)
        source.build_all({chrom: files[chrom] for chrom in missing}, threads, report_built)
    return list(files.values())


@contextmanager
def _work_folder(folder: Path) -> Iterator[Path]:
    """Yield the folder for downloads, locked. It is removed at the end if it is empty."""
    work = folder / WORK_FOLDER
    with ExitStack() as stack:
        try:
            stack.enter_context(locked_folder(work))
        except OSError as error:
            raise CannotWrite(work, error) from error
        yield work


def _check_existing(path: Path) -> None:
    """Raise InputError if an existing panel file is damaged or of another version."""
    try:
        Panel.open(path).close()
    except InputError as error:
        raise InputError(
            error.code, f"{error}. Delete {path} and run {call('get_panel')} again to make it anew"
        ) from error


@dataclass
class _Source:
    """Downloads the files of a panel to a folder and builds the panel from them."""

    panel: PublishedPanel
    url: str
    map_url: str
    folder: Path
    done: dict[str, float]  # by chromosome: 0 to 1 for the download, and 1 more for the panel
    progress: Progress | None
    maps: dict[str, GeneticMap] = field(default_factory=dict)  # of the chromosomes that are not yet built
    stop: threading.Event = field(default_factory=threading.Event)

    def _vcf(self, chrom: str) -> Path:
        return self.folder / self.panel.vcf_name(chrom)

    def _index(self, chrom: str) -> Path:
        return self.folder / f"{self.panel.vcf_name(chrom)}.tbi"

    def _archive(self) -> Path:
        return self.folder / self.panel.map_archive

    def _advance(self, chrom: str, done: float) -> None:
        self.done[chrom] = done
        if self.progress is not None:
            self.progress(sum(self.done.values()) / (2 * len(self.done)))

    def build_all(
        self, files: Mapping[str, Path], threads: int, report_built: Callable[[Path], object] | None
    ) -> None:
        """Build the panel file of each chromosome. Meanwhile, download the next chromosome."""
        with ThreadPoolExecutor(1) as pool:
            try:
                chroms = list(files)
                fetched = [pool.submit(self.fetch, chrom) for chrom in chroms[:1]]
                for number, (chrom, file) in enumerate(files.items(), 1):
                    begin_stage(self.progress, f"downloading chromosome {chrom}")
                    fetched.pop().result()
                    fetched = [pool.submit(self.fetch, other) for other in chroms[number : number + 1]]
                    begin_stage(self.progress, f"building chromosome {chrom}")
                    self.build(chrom, file, threads)
                    if report_built is not None:
                        report_built(file)
            finally:
                self.stop.set()
        self.remove_archive()

    def fetch(self, chrom: str) -> None:
        """Download the genetic map of a chromosome, its VCF and the index of the VCF."""
        archive, vcf, index = self._archive(), self._vcf(chrom), self._index(chrom)
        url = f"{self.map_url}/{archive.name}"
        download(url, archive, MAX_SMALL_BYTES, stop=self.stop)
        try:
            self.maps[chrom] = read_archived_map(archive, chrom, self.panel.build, url)
        except InputError:
            self.remove_archive()  # the next run downloads it again
            raise
        download(
            f"{self.url}/{vcf.name}",
            vcf,
            MAX_VCF_BYTES,
            self.panel.md5.get(chrom),
            lambda fraction: self._advance(chrom, fraction),
            self.stop,
        )
        try:
            download(f"{self.url}/{index.name}", index, MAX_SMALL_BYTES, stop=self.stop)
        except InputError as error:
            if error.code != "not-found":
                raise
            announce(f"{error}. Without this index, a single process reads the panel")

    def build(self, chrom: str, out: Path, threads: int) -> None:
        """Build the panel file of a chromosome, and remove the chromosome's downloads."""
        vcf, command = self._vcf(chrom), f"spinimpute panel get {self.panel.id}"
        keep = True
        try:
            build_panels(vcf, out, self.maps.pop(chrom), command=command, threads=threads)
            keep = False
        except InputError as error:
            keep = error.code not in ("damaged", "content", "mismatch")
            if keep:
                raise
            raise InputError(
                error.code,
                f"{self.url}/{vcf.name}: the downloaded file cannot be used: {error}. The download has been "
                f"removed. Run {call('get_panel')} again, or try another mirror",
            ) from error
        finally:
            if not keep:
                _remove_downloads(vcf, self._index(chrom))
        self._advance(chrom, 2.0)

    def remove_archive(self) -> None:
        """Remove the archive of genetic maps."""
        _remove_downloads(self._archive())


def _remove_downloads(*paths: Path) -> None:
    """Remove downloaded files, and what is left of them if they are incomplete."""
    for path in paths:
        for file in (path, *partial_paths(path)):
            file.unlink(missing_ok=True)
