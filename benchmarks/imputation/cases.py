"""Cases to impute: a case is a panel, a target, the truth and a genetic map."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from pathlib import Path

from cyvcf2 import VCF

from spinimpute.genotypes.genetic_map import GeneticMap

REPOSITORY = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("SPINIMPUTE_SHARED", REPOSITORY.parent / "shared"))
DATA = SHARED / "data" / "genotypes"
# The genetic map of each real set, in the folder of the data; None: no map is known.
REAL = {
    "chr20_eur": "maps/plink.chr20.GRCh37.map",
    "chr22_1kg": "maps/plink.chr22.GRCh37.map",
    "lct_1kg": "lct_1kg/genetic.map",
    "chr1_1kg": "chr1_1kg/genetic.map",
    "chr21_b38": "chr21_b38/genetic.map",
    "cattle_bta12": None,
}
FREQUENCY_EDGES = (*(5e-6, 1e-5, 2e-5, 5e-5, 0.0001, 0.0002, 0.0005), *(0.001, 0.002, 0.005, 0.01, 0.05, 0.5))


@dataclass(frozen=True)
class Case:
    """Files of one imputation with known true genotypes.

    panel, target, truth: BCF or VCF.gz, phased. genetic_map: PLINK format, or None without a map (all
    programs then assume 1 cM/Mb). scored_without: a file whose sites are not scored, usually the target; a
    thinned target uses the full target here, so that the same sites are scored for all arrays. people: a
    table with columns sample, population and superpopulation, or None.
    """

    name: str
    panel: Path
    target: Path
    truth: Path
    genetic_map: Path | None
    scored_without: Path
    people: Path | None = None

    @property
    def panel_haplotypes(self) -> int:
        return 2 * len(samples(self.panel))

    @property
    def target_haplotypes(self) -> int:
        return 2 * len(samples(self.target))

    @property
    def typed_sites(self) -> int:
        return sum(1 for _ in VCF(str(self.target)))

    @property
    def bins(self) -> tuple[float, ...]:
        """Edges of the bins of minor allele frequency; the lowest bin contains at least the panel's
        singletons.
        """
        singleton = 1 / self.panel_haplotypes
        return (0.0, *(edge for edge in FREQUENCY_EDGES if edge >= singleton))

    @property
    def map_arguments(self) -> tuple[object, ...]:
        """The option `--map` for Minimac4 and spinimpute; empty without a map."""
        return () if self.genetic_map is None else ("--map", self.genetic_map)

    def read_map(self, chrom: str) -> GeneticMap:
        """Read the genetic map of a chromosome; without a map, return a constant rate."""
        return GeneticMap.constant() if self.genetic_map is None else GeneticMap.read(self.genetic_map, chrom)

    def populations(self) -> dict[str, tuple[str, str]]:
        """Population and superpopulation of each sample in the table of people."""
        if self.people is None:
            return {}
        with self.people.open() as file:
            rows = csv.DictReader(file, delimiter="\t")
            return {row["sample"]: (row["population"], row["superpopulation"]) for row in rows}


def samples(path: Path) -> list[str]:
    """Return the sample names of a VCF or BCF."""
    file = VCF(str(path))
    names = list(file.samples)
    file.close()
    return names


def find_case(name: str, data: Path) -> Case:
    """Return the real data set with this name in the folder `data`, or else the simulated set in this folder.

    Raises:
        SystemExit: the set or one of its files is missing.
    """
    folder = data / name if name in REAL else Path(name)
    if name in REAL:
        in_data = REAL[name]
        genetic_map, people = None if in_data is None else data / in_data, data / "samples.tsv"
    else:
        given, people = folder / "genetic.map", folder / "samples.tsv"
        genetic_map = given if given.is_file() else None
    target = folder / "target.phased.bcf"
    files = [folder / "panel.bcf", target, folder / "truth.bcf"]
    files += [] if genetic_map is None else [genetic_map]
    missing = [str(path) for path in files if not path.is_file()]
    if missing:
        raise SystemExit(
            f"{name} is neither one of {', '.join(REAL)} nor the folder of a simulated set: "
            f"{', '.join(missing)} not found. --data says where real data lie, `simulate` makes sets"
        )
    panel, _, truth = files[:3]
    found = people if people.is_file() else None
    return Case(folder.resolve().name, panel, target, truth, genetic_map, target, found)
