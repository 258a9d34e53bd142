"""What can be chosen for a run, in groups that the functions of the pipeline share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from spinimpute.genotypes.regions import parse_regions
from spinimpute.genotypes.sites import Region
from spinimpute.predictors.interface import Predictor
from spinimpute.reports.report_files import ReportFiles
from spinimpute.runtime.errors import InputError, argument
from spinimpute.vcf.header import DEFAULT_DECIMALS

DEFAULT_FORMATS = ("GT", "DS")


@dataclass(frozen=True)
class PredictorSettings:
    """Which predictor imputes.

    Attributes
    ----------
    name : str or None
        As on the command line, such as "haplotype" or "spin"; by default that of the model, or the first
        one that reads the panel.
    model : str, Path, Predictor or None
        A checkpoint or a loaded predictor; by default the shipped checkpoint.
    options : mapping
        Those of the predictor, such as `{"inducing_points": 64, "window_cM": 1.0}`; `spinimpute impute -h`
        lists them. The budget of memory is one of `Resources`.
    """

    name: str | None = None
    model: str | Path | Predictor | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TargetSettings:
    """How a target is read.

    Attributes
    ----------
    ambiguous : str
        What is done with A/T and C/G sites: "frequency", "keep" or "drop", see `repair_and_match`.
    sexes : dict or None
        Whether each sample is male, for chromosome X (`read_sexes`); by default the calls decide.
    chain : str, Path or None
        A chain file from the target's genome build to the panel's: positions are lifted over.
    samples : sequence of str or None
        Read these alone, in this order, as if the file had no others; None for all.
    """

    ambiguous: str = "frequency"
    sexes: dict[str, bool] | None = None
    chain: str | Path | None = None
    samples: Sequence[str] | None = None


@dataclass(frozen=True)
class RegionSettings:
    """Which panel sites are imputed; by default all.

    Attributes
    ----------
    region : str, Region, iterable of them, or None
        Impute these panel sites only; typed sites around them are still used. The output of one region is a
        chunk, which `ligate` joins with others. Regions that overlap or touch are one.
    buffer_cM : float or None
        With regions: use only typed sites within this distance of a region's panel sites, and those that
        chunks of a phased target need for the results of a single run; by default the whole chromosome. Of a
        file that `phase` or `convert` wrote for this panel, no more than that is read.
    regions_file : str, Path or None
        A BED file with the regions, in place of `region`.
    """

    region: str | Region | Iterable[str | Region] | None = None
    buffer_cM: float | None = None
    regions_file: str | Path | None = None

    def parsed(self) -> tuple[list[Region], float | None]:
        """Regions, none for everywhere, and buffer; raises InputError for what cannot be used."""
        regions = parse_regions(self.region, self.regions_file)
        if self.buffer_cM is not None and not regions:
            raise InputError(
                "arguments",
                f"a buffer lies around a region: give {argument('region')}, or leave "
                f"{argument('buffer_cM')} out",
            )
        if self.buffer_cM is not None and not self.buffer_cM >= 0:
            raise InputError(
                "content", f"a buffer must have a length of at least 0 cM: got {self.buffer_cM} cM"
            )
        return regions, self.buffer_cM


@dataclass(frozen=True, kw_only=True)
class FileSettings:
    """The form of an output.

    Attributes
    ----------
    output_type : str or None
        "z" (VCF.gz), "b" (BCF) or "v" (VCF); by default by suffix.
    header_lines : sequence of str
        Further lines of the header.
    """

    output_type: str | None = None
    header_lines: Sequence[str] = ()


@dataclass(frozen=True)
class OutputSettings(FileSettings):
    """What imputing writes, in addition to `FileSettings`.

    Attributes
    ----------
    formats : sequence of str
        FORMAT fields in order.
    keep_unmatched : bool
        Write typed sites that the panel does not have, too.
    leave_one_out : bool
        Predict each typed call from the others of its haplotype: INFO/ER2, and `leave_one_out` of the
        summary. For panels of haplotypes.
    leave_one_out_tables : mapping
        Where tables of what was left out are written: path by name (`quality.leave_one_out.TABLES`).
    report : str, Path or None
        Write a report of the run (HTML) there; like the next two it implies the summary's `leave_one_out`
        where that is possible.
    report_figures : str, Path or None
        Write the report's charts (SVG) into this folder, which is made if need be.
    multiqc : str, Path or None
        Write a table of samples for MultiQC there; the name ends in "_mqc.json".
    decimals : int
        Of DS, HDS and GP, 1 to 5.
    """

    formats: Sequence[str] = DEFAULT_FORMATS
    keep_unmatched: bool = False
    leave_one_out: bool = False
    leave_one_out_tables: Mapping[str, str | Path] = field(default_factory=dict)
    report: str | Path | None = None
    report_figures: str | Path | None = None
    multiqc: str | Path | None = None
    decimals: int = DEFAULT_DECIMALS

    @property
    def report_files(self) -> ReportFiles:
        """Where a report goes."""
        return ReportFiles(self.report, self.report_figures, self.multiqc)


@dataclass(frozen=True)
class Resources:
    """What a run may use; results do not depend on threads and memory.

    Attributes
    ----------
    threads : int or None
        By default all processors.
    device : str
        "auto", "cpu" or "cuda".
    max_memory : int or None
        Limit in bytes: less is computed at the same time. For predictors that keep a budget, without
        `leave_one_out` and a report; and for sequenced samples.
    """

    threads: int | None = None
    device: str = "auto"
    max_memory: int | None = None

    def predictor_options(self, predictor: PredictorSettings) -> dict[str, Any]:
        """The predictor's options with the budget of memory among them.

        Raises
        ------
        InputError
            The predictor's options have a budget, too.
        """
        if predictor.options.get("max_memory") is not None:
            raise InputError(
                "memory",
                "max_memory is no option of PredictorSettings: give the budget with "
                f"Resources({argument('max_memory')}), which holds for the whole run",
            )
        return {**predictor.options, "max_memory": self.max_memory}


def check_settings(**given: tuple[object, type]) -> None:
    """Raise InputError for what is no object of its class, such as a region's text for RegionSettings.

    Parameters
    ----------
    **given : (object, type)
        What was given as the parameter of this name, and its class.
    """
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            raise InputError("content", f"{name} must be {kind.__name__}(...), however: {value!r}")
