"""Groups of settings that `impute`, `phase`, `check` and other public functions share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spinimpute.genotypes.regions import parse_regions
from spinimpute.genotypes.sites import Region
from spinimpute.outputs.bgen_writer import DEFAULT_BITS
from spinimpute.outputs.selection import RecordFilter, filtered_merge_error
from spinimpute.predictors.interface import Predictor
from spinimpute.reports.report_files import ReportFiles
from spinimpute.runtime.errors import InputError, argument
from spinimpute.vcf.header import DEFAULT_DECIMALS

DEFAULT_FORMATS = ("GT", "DS")


@dataclass(frozen=True)
class PredictorSettings:
    """The predictor of a run.

    Attributes
    ----------
    name : str or None
        Name, such as "haplotype" or "spin". Default: the predictor of `model`. Without a model: haplotype for
        panels of haplotypes, spin for inducing panels.
    model : str, Path, Predictor or None
        A checkpoint or a loaded predictor. Default: the shipped checkpoint.
    options : mapping
        Options of the predictor, such as `{"inducing_points": 64, "window_cM": 1.0}`; `spinimpute impute -h`
        lists them. The memory budget is in `Resources`.
    """

    name: str | None = None
    model: str | Path | Predictor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetSettings:
    """How to read a target.

    Attributes
    ----------
    ambiguous : str
        Treatment of A/T and C/G sites, whose strand is unknown: "frequency" (decide the strand by allele
        frequencies), "keep" (use them unchanged) or "drop" (leave them out).
    sexes : dict or None
        For chromosome X: True for each male sample (see `read_sexes`). Default: inferred from the genotypes.
    chain : str, Path or None
        A chain file that lifts positions from the target's genome build to the panel's.
    samples : sequence of str or None
        Samples to read, in this order; None for all.
    """

    ambiguous: str = "frequency"
    sexes: dict[str, bool] | None = None
    chain: str | Path | None = None
    samples: Sequence[str] | None = None


@dataclass(frozen=True)
class RegionSettings:
    """The panel sites that are imputed. Default: all.

    Attributes
    ----------
    region : str, Region, iterable of them, or None
        Regions to impute. Typed sites outside of a region are also used to impute it. Overlapping and
        adjacent regions are joined. An output with a single region is a chunk: `ligate` joins chunks.
    buffer_cM : float or None
        Use only typed sites within this distance of a region. Default: the whole chromosome. The results of
        a phased target stay the same: further sites are added where the results depend on them. If `phase`
        or `convert` wrote the target for this panel, and it has an index, only the needed part is read.
    regions_file : str, Path or None
        A BED file of regions, in place of `region`.
    """

    region: str | Region | Iterable[str | Region] | None = None
    buffer_cM: float | None = None
    regions_file: str | Path | None = None

    def parsed(self) -> tuple[list[Region], float | None]:
        """Return the regions (none: all sites) and the buffer. Raises InputError if they are invalid."""
        regions = parse_regions(self.region, self.regions_file)
        if self.buffer_cM is not None and not regions:
            raise InputError(
                "arguments",
                f"a buffer needs a region. Give {argument('region')}, or leave {argument('buffer_cM')} out",
            )
        if self.buffer_cM is not None and not self.buffer_cM >= 0:
            raise InputError(
                "argument", f"a buffer must have a length of at least 0 cM: got {self.buffer_cM} cM"
            )
        return regions, self.buffer_cM


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """The type and header lines of an output.

    Attributes
    ----------
    output_type : str or None
        "z" (VCF.gz), "b" (BCF) or "v" (VCF). Default: chosen by the suffix.
    header_lines : sequence of str
        Lines to add to the header.
    """

    output_type: str | None = None
    header_lines: Sequence[str] = ()


@dataclass(frozen=True)
class OutputSettings(FileSettings):
    """The contents of an imputed file and the reports to write, in addition to `FileSettings`.

    Attributes
    ----------
    formats : sequence of str
        FORMAT fields to write, in this order.
    keep_unmatched : bool
        Also write typed sites that are not in the panel.
    leave_one_out : bool
        Predict each typed genotype from the other typed sites to measure accuracy. Writes INFO/ER2 and fills
        `leave_one_out` of the summary. Requires a panel of haplotypes.
    leave_one_out_tables : mapping
        Paths of the leave-one-out tables to write, by name (`quality.leave_one_out.TABLES`).
    labels : str, Path or None
        Table of the most likely labels of each sample, such as HLA types (`quality.label_calls`). Requires
        a panel with labels.
    report : str, Path or None
        HTML report of the run. For a panel of haplotypes, `report`, `report_figures` and `multiqc` also fill
        `leave_one_out` of the summary.
    report_figures : str, Path or None
        Folder for the charts of the report (SVG). It is created if it does not exist.
    multiqc : str, Path or None
        Table of samples for MultiQC. The name must end in "_mqc.json".
    decimals : int
        Number of decimals of DS, HDS and GP, 1 to 5.
    min_r2 : float
        Smallest INFO/R2 of the imputed sites to write. Typed sites are always written.
    min_maf : float
        Smallest INFO/MAF of the sites to write.
    sites : str, Path or None
        Table of all sites, also of those that the filters leave out (`.tsv.gz`). It may have the same
        "{chrom}" in its name as the output. Default: a `.bgen` output has `PREFIX.sites.tsv.gz`.
    bgen_bits : int
        Bits of each probability in a `.bgen` output, 8 or 16.
    mergeable : bool
        Write INFO/SUMS, and INFO/ER2_SUMS with `leave_one_out`. `merge_samples` needs them to join files of
        different samples. Cannot be combined with `min_r2` and `min_maf`.
    split_multiallelic : bool
        Write a biallelic record for each ALT of a multi-allelic record. PGEN and BGEN are always written so.
    """

    formats: Sequence[str] = DEFAULT_FORMATS
    keep_unmatched: bool = False
    leave_one_out: bool = False
    leave_one_out_tables: Mapping[str, str | Path] = field(default_factory=dict)
    labels: str | Path | None = None
    report: str | Path | None = None
    report_figures: str | Path | None = None
    multiqc: str | Path | None = None
    decimals: int = DEFAULT_DECIMALS
    min_r2: float = 0.0
    min_maf: float = 0.0
    sites: str | Path | None = None
    bgen_bits: int = DEFAULT_BITS
    mergeable: bool = False
    split_multiallelic: bool = False

    @property
    def label_tables(self) -> list[Path]:
        """Return the path of the table of labels, if there is one, in a list. Raises InputError for .gz."""
        if self.labels is None:
            return []
        if str(self.labels).lower().endswith(".gz"):
            raise InputError(
                "argument",
                f"{argument('labels', str(self.labels))}: the table is not compressed. Leave out .gz",
            )
        return [Path(self.labels)]

    @property
    def record_filter(self) -> RecordFilter:
        """The filter of the records. Raises InputError if a limit is out of range, or with `mergeable`."""
        record_filter = RecordFilter(self.min_r2, self.min_maf)
        if self.mergeable and record_filter:
            raise filtered_merge_error()
        return record_filter

    @property
    def report_files(self) -> ReportFiles:
        """The output files of the report."""
        return ReportFiles(self.report, self.report_figures, self.multiqc)


@dataclass(frozen=True)
class Resources:
    """Threads, device and memory of a run. Results do not depend on threads and memory.

    Attributes
    ----------
    threads : int or None
        Number of threads. Default: all processors.
    device : str
        "auto", "cpu" or "cuda".
    max_memory : int or None
        Memory budget in bytes. Cannot be combined with `leave_one_out` or a report. Requires a predictor that
        supports a budget.
    """

    threads: int | None = None
    device: str = "auto"
    max_memory: int | None = None

    def predictor_options(self, predictor: PredictorSettings) -> dict[str, Any]:
        """Return the predictor's options with the memory budget.

        Raises
        ------
        InputError
            The predictor's options also contain a memory budget.
        """
        if predictor.options.get("max_memory") is not None:
            raise InputError(
                "memory",
                "max_memory is no option of PredictorSettings: give the budget with "
                f"Resources({argument('max_memory')}), which applies to the whole run",
            )
        return {**predictor.options, "max_memory": self.max_memory}


def check_settings(**settings: tuple[object, type]) -> None:
    """Raise InputError if a setting has the wrong class, such as a str in place of RegionSettings."""
    for name, (value, expected_class) in settings.items():
        if not isinstance(value, expected_class):
            raise InputError("argument", f"{name} must be {expected_class.__name__}(...), got {value!r}")
