"""The predictors: one row for each, with all that the rest of the program knows of it.

A new predictor is a folder beside this module, with a `Predictor` (`predictors.interface`) in it, and a row
here. What is named "module:attribute" is imported only where it is used, so that torch is loaded only for
predictors that need it, and the command line can list the options without any.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from spinimpute.panels.file_kind import HAPLOTYPES, INDUCING_POINTS
from spinimpute.runtime.errors import InputError

WEIGHTS = Path(__file__).parent.parent / "weights"
HAPLOTYPE_KIND, SPIN_KIND = "haplotype", "spin"  # as checkpoints name them
RETIRED_KINDS = ("allele-cipnp", "kmer-spin")  # of earlier versions


@dataclass(frozen=True)
class Option:
    """An option of a predictor.

    Attributes
    ----------
    name : str
        In Python; on the command line with hyphens.
    form : str
        "count", "number" or "size" (of memory, in bytes).
    help : str
        One sentence.
    default : object
        None leaves the choice to the predictor.
    default_text : str
        The default in words; "" if there is nothing to say.
    minimum : float
        Values must be at least this, or more than this if `above`.
    above : bool
        The minimum itself is not allowed.
    rule : str
        For the error message: what values are allowed.
    loading : bool
        It belongs to the loaded predictor, not to each run.
    chooses : bool
        Giving it without a predictor chooses the predictor that takes it.
    """

    name: str
    form: str
    help: str
    default: Any = None
    default_text: str = ""
    minimum: float = 0
    above: bool = False
    rule: str = ""
    loading: bool = False
    chooses: bool = False

    @property
    def flag(self) -> str:
        """Its flag on the command line."""
        return "--" + self.name.lower().replace("_", "-")

    def check(self, value: Any) -> None:
        """Raises InputError for a value that cannot be used."""
        whole = self.form != "number"
        if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
            raise InputError("content", f"{self.name} must be a {'whole ' * whole}number, found {value!r}")
        number = float(value)
        if not (number > self.minimum if self.above else number >= self.minimum):
            raise InputError("content", f"{self.rule}, found {value}")


WINDOW = Option(
    "window_cM",
    "number",
    "Length of a window, at most.",
    above=True,
    rule="a window must have a positive length in cM",
)
MAX_MEMORY = Option(
    "max_memory",
    "size",
    "Such as 2G: work on less at a time to stay below. Results do not depend on it.",
    above=True,
    rule="a budget of memory must be positive",
)
POINTS = Option(
    "inducing_points",
    "count",
    "Inducing points (averages of panel haplotypes) of each block, at most.",
    default_text="1024",
    minimum=2,
    rule="the number of inducing points must be at least 2",
    loading=True,
    chooses=True,
)


@dataclass(frozen=True)
class Training:
    """How a predictor is trained.

    Attributes
    ----------
    settings : str
        "module:attribute" of its settings (a dataclass).
    learner : str
        "module:attribute" of its `Learner`.
    """

    settings: str
    learner: str


@dataclass(frozen=True)
class PredictorRow:
    """A predictor.

    Attributes
    ----------
    name : str
        On the command line.
    help : str
        What it is, for a list of predictors.
    kind : str
        In its checkpoints.
    reads : tuple of str
        What a panel may hold for it, see `ReferencePanel.holds`.
    load : str
        "module:attribute" of a function of weights, settings, fingerprint, device and options that returns
        the `Predictor`.
    aliases : tuple of str
        Other names on the command line.
    has_weights : bool
        It is loaded from a checkpoint.
    shipped : str or None
        The checkpoint in the package.
    options : tuple of Option
        Its options.
    auto_device : str or None
        What the device "auto" means for it; None if it only computes on the processor.
    training : Training or None
        None if it is not trained.
    """

    name: str
    help: str
    kind: str
    reads: tuple[str, ...]
    load: str
    aliases: tuple[str, ...] = ()
    has_weights: bool = True
    shipped: str | None = None
    options: tuple[Option, ...] = ()
    auto_device: str | None = None
    training: Training | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Its name and its aliases."""
        return self.name, *self.aliases

    @property
    def shipped_checkpoint(self) -> Path:
        """Path of the shipped checkpoint; raises InputError if there is none."""
        if self.shipped is None:
            raise InputError(
                "content", f"no model of the kind {self.kind!r} is shipped: give a checkpoint of your own"
            )
        return WEIGHTS / self.shipped

    def takes(self, name: str) -> bool:
        """Whether it has an option of this name."""
        return any(option.name == name for option in self.options)

    def chosen(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """All of its options, with defaults for those that are not given.

        Parameters
        ----------
        given : mapping
            Values by name.

        Returns
        -------
        dict
            A value for each option.

        Raises
        ------
        InputError
            It does not take one of the options, or not with this value.
        """
        for name in given:
            if not self.takes(name):
                raise InputError("content", _not_taken(name, self))
        for option in self.options:
            if option.name in given:
                option.check(given[option.name])
        return {option.name: given.get(option.name, option.default) for option in self.options}


PREDICTORS: tuple[PredictorRow, ...] = (
    PredictorRow(
        "haplotype",
        "attention to the panel's haplotypes",
        kind=HAPLOTYPE_KIND,
        reads=(HAPLOTYPES,),
        load="spinimpute.predictors.haplotype_attention.predictor:load",
        shipped="haplotype.safetensors",
        options=(
            replace(WINDOW, default=math.inf, default_text="what memory allows"),
            MAX_MEMORY,
        ),
        auto_device="cpu",  # which it is made for
        training=Training(
            "spinimpute.predictors.haplotype_attention.settings:HaplotypeSettings",
            "spinimpute.predictors.haplotype_attention.learner:HaplotypeLearner",
        ),
    ),
    PredictorRow(
        "spin",
        "SPIN: attention to inducing points that carry the panel's alleles",
        kind=SPIN_KIND,
        reads=(HAPLOTYPES, INDUCING_POINTS),
        load="spinimpute.predictors.spin.predictor:load",
        aliases=("inducing",),
        shipped="spin.safetensors",
        options=(
            POINTS,
            replace(WINDOW, default=2.0, default_text="2"),
        ),
        auto_device="auto",
        training=Training(
            "spinimpute.predictors.spin.network:SPINSettings",
            "spinimpute.predictors.spin.learner:SPINLearner",
        ),
    ),
)


def imported(reference: str) -> Any:
    """The object that "module:attribute" names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def row_named(name: str) -> PredictorRow:
    """The row of a predictor's name; raises InputError for an unknown name."""
    for row in PREDICTORS:
        if name in row.names:
            return row
    names = " or ".join(row.name for row in PREDICTORS)
    raise InputError("content", f"predictor must be {names}, found {name!r}")


def row_of_kind(kind: object) -> PredictorRow | None:
    """The row of a checkpoint's kind, if there is one."""
    return next((row for row in PREDICTORS if row.kind == kind), None)


def default_row(holds: str | None, given: Mapping[str, Any]) -> PredictorRow:
    """The predictor if none is named: the first one that fits.

    Parameters
    ----------
    holds : str or None
        What the panel holds; None for any panel.
    given : mapping
        Options that were given; some choose a predictor.

    Returns
    -------
    PredictorRow
        Its row.

    Raises
    ------
    InputError
        No predictor reads such a panel.
    """
    fitting = [row for row in PREDICTORS if holds is None or holds in row.reads]
    if not fitting:
        raise InputError("content", f"no predictor reads a panel that holds {holds}")
    choosing = {option.name for option in options_by_name().values() if option.chooses} & given.keys()
    return next((row for row in fitting if any(map(row.takes, choosing))), fitting[0])


def options_by_name() -> dict[str, Option]:
    """The options of all predictors; options with the same name differ in their defaults only."""
    found: dict[str, Option] = {}
    for row in PREDICTORS:
        for option in row.options:
            found.setdefault(option.name, option)
    return found


def option_help(name: str) -> str:
    """Text of the command line on an option: what it does, its default, and its predictors."""
    rows = [row for row in PREDICTORS if row.takes(name)]
    defaults: dict[str, list[str]] = {}
    for row in rows:
        (option,) = (option for option in row.options if option.name == name)
        defaults.setdefault(option.default_text, []).append(row.name)
    of = {text: ", ".join(names) for text, names in defaults.items()}
    said = ", ".join(f"{text} ({names})" for text, names in of.items() if text)
    if said:
        return f"{options_by_name()[name].help} Default: {said}."
    return f"{options_by_name()[name].help} For {of['']}."


def _not_taken(name: str, row: PredictorRow) -> str:
    takers = [other.name for other in PREDICTORS if other.takes(name)]
    if not takers:
        known = ", ".join(option.name for option in row.options) or "none"
        return f"the predictor {row.name!r} has no option {name!r}; its options: {known}"
    flag = options_by_name()[name].flag
    return (
        f"the predictor {row.name!r} does not take {flag} ({name}), which is for {' and '.join(takers)}: "
        "leave it out, or choose another predictor"
    )
