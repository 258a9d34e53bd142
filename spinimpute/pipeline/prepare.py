"""From a target's file to haplotypes at the panel's sites: what imputing, phasing and checking begin with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from spinimpute.errors import InputError
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.genotypes.haplotypes import Haplotypes
from spinimpute.genotypes.ploidy import Settled
from spinimpute.genotypes.sites import NoMatch, Region, SiteMatch, check_overlap
from spinimpute.hmm.recombination_scale import recombination_scale
from spinimpute.output_files import temporary_folder
from spinimpute.panels.inducing_panel import InducingPanel, is_inducing_panel
from spinimpute.panels.panel import Panel, is_panel_file
from spinimpute.panels.parts import build_panels, part_of
from spinimpute.panels.parts import open_panels as open_panel_file
from spinimpute.quality.summary import ImputationSummary
from spinimpute.targets.reader import read_target
from spinimpute.targets.repair import Repaired, repair_and_match
from spinimpute.vcf.reader import NoRecord

AnyPanel = Panel | InducingPanel


@contextmanager
def open_panels(
    panel: AnyPanel | str | Path, genetic_map: str | Path | GeneticMap | None = None
) -> Iterator[Sequence[AnyPanel]]:
    """A `.spin` or `.spip` file, a VCF or BCF that is compiled into a temporary file, or an open panel.

    Chromosome X has a panel for each of its parts, every other chromosome one.
    Raises InputError as `Panel.open` and `build_panel`, and for a map given with a panel that has its own.
    """
    if not isinstance(panel, str | Path):
        if genetic_map is not None:
            raise InputError("an open panel has its genetic map in it: give the map to build_panel")
        yield [panel]
        return
    path = Path(panel)
    inducing = is_inducing_panel(path)
    if inducing or is_panel_file(path) or not path.name.endswith((".vcf", ".vcf.gz", ".vcf.bgz", ".bcf")):
        if genetic_map is not None:
            raise InputError(
                f"{path} is a panel file and has its genetic map in it: give --map to 'panel build'"
            )
        if inducing:
            with InducingPanel.open(path) as opened:
                yield [opened]
        else:
            with open_panel_file(path) as parts:
                yield parts
        return
    with temporary_folder() as folder:
        built = folder / "panel.spin"
        build_panels(path, built, genetic_map)
        with open_panel_file(built) as parts:
            yield parts


@dataclass(frozen=True)
class Prepared:
    """A target, or its part on one part of chromosome X, with the alleles of the panel.

    jumps_per_cM: by all typed sites of the target (`recombination_scale`), where some of them have been left
    out; None: to be estimated from those that there are.
    """

    panel: AnyPanel
    settled: Settled
    repaired: Repaired
    jumps_per_cM: float | None = None

    @property
    def target(self) -> Haplotypes:
        return self.repaired.target

    @property
    def match(self) -> SiteMatch:
        return self.repaired.match

    def with_rate(self) -> Prepared:
        """With the rate that its matched sites tell, unless it has one; of inducing points there is none."""
        if self.jumps_per_cM is not None or not isinstance(self.panel, Panel):
            return self
        return replace(self, jumps_per_cM=recombination_scale(self.panel, self.match.panel_index))

    def check_array(self) -> None:
        """Raises InputError if inducing points are of an array that has none of the typed sites."""
        if isinstance(self.panel, InducingPanel):
            self.panel.check_typed(self.match.panel_index)

    @property
    def name(self) -> str:
        """PAR1, non-PAR, PAR2, or the chromosome."""
        part = part_of(self.panel)
        return self.panel.chrom if part is None else f"{self.panel.chrom} {part.name}"


def prepare(
    panels: Sequence[AnyPanel],
    vcf: str | Path,
    summary: ImputationSummary,
    *,
    allow_unphased: bool = True,
    sexes: dict[str, bool] | None = None,
    chain: str | Path | None = None,
    stretch: Region | None = None,
    ambiguous: str = "frequency",
    force: bool = False,
) -> list[Prepared]:
    """Read a target, repair its alleles and match it to the panels; `summary` is told all of it.

    stretch: as of `read_target`; where nothing is typed there, all is read.

    A part of chromosome X without any typed site is left out, with a warning.
    Raises InputError as `read_target`, `match_sites`, and without `force` as `check_overlap`.
    """

    def read(wanted: Region | None) -> list[Settled | None]:
        return read_target(
            vcf, panels, allow_unphased=allow_unphased, sexes=sexes, chain=chain, stretch=wanted
        )

    try:
        settled = read(stretch)
    except NoRecord:
        if stretch is None:
            raise
        settled = read(None)
    prepared: list[Prepared] = []
    failure: NoMatch | None = None
    for panel, part in zip(panels, settled, strict=True):
        if part is None:
            _tell_untyped(summary, panel)
            continue
        try:
            repaired = repair_and_match(panel.sites, panel.frequency, part.haplotypes, ambiguous)
        except NoMatch as error:
            failure = failure or error
            if len(panels) > 1:
                _tell_untyped(summary, panel)
            continue
        if not force:
            check_overlap(panel.sites, repaired.target.sites, repaired.match)
        prepared.append(Prepared(panel, part, repaired))
    if not prepared:
        assert failure is not None, "a target without a site in any part is refused by its reader"
        raise failure
    for one in prepared:
        _count(summary, one)
    _tell_shared_samples(summary, prepared[0])
    return prepared


def _tell_untyped(summary: ImputationSummary, panel: AnyPanel) -> None:
    part = part_of(panel)
    summary.warnings.append(
        f"no site of the panel is typed in {part.name if part else panel.chrom} ({panel.chrom}:"
        f"{panel.position[0]}-{panel.position[-1]}): its {panel.n_sites} sites are left out"
    )


def _count(summary: ImputationSummary, part: Prepared) -> None:
    """Fill in what is known before anything is imputed."""
    panel, target, match = part.panel, part.target, part.match
    summary.panel_sites += panel.n_sites
    summary.panel_haplotypes = max(summary.panel_haplotypes, panel.n_haplotypes)
    summary.samples = len(target.samples)
    summary.haplotypes = max(summary.haplotypes, target.alleles.shape[1])
    summary.typed_sites += len(target.sites)
    summary.matched_sites += len(match.panel_index)
    summary.missing_calls += int((target.alleles[match.target_index] < 0).sum())
    for total, counts in (
        (summary.repaired, part.repaired.counts()),
        (summary.unmatched, match.unmatched),
        (summary.mended_calls, part.settled.lost),
    ):
        for what, count in counts.items():
            total[what] = total.get(what, 0) + count
    summary.skipped = dict(target.skipped)  # of the whole file
    if (target.ploidy == 1).any():
        n_haploid = int((target.ploidy == 1).sum())
        summary.haploid.append(f"{part.name}: {n_haploid} of {len(target.samples)} samples have one copy")
    summary.warnings += [f"{doubt}: is it the right sample?" for doubt in part.settled.doubts]


def _tell_shared_samples(summary: ImputationSummary, part: Prepared) -> None:
    shared = sorted(set(part.panel.samples) & set(part.target.samples))
    if shared:
        summary.warnings.append(
            f"{len(shared)} target samples have the names of panel samples ({', '.join(shared[:3])}"
            f"{', ...' if len(shared) > 3 else ''}): if they are the same people, accuracy on them means "
            "nothing"
        )
