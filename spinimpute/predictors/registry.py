"""The registry of predictors: a row for each, with everything that the rest of the program knows of it.

A new predictor is a folder beside this module with a `Predictor` (`predictors.interface`), and a row here.
Objects named "module:attribute" are imported only when they are used. So torch is loaded only for predictors
that need it, and the command line lists the options without it.
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
from spinimpute.runtime.errors import InputError, argument

WEIGHTS = Path(__file__).parent.parent / "weights"
HAPLOTYPE_KIND, SPIN_KIND = "haplotype", "spin"  # in checkpoints


@dataclass(frozen=True)
class Option:
    """An option of a predictor."""

    name: str  # in Python; on the command line with hyphens
    value_type: str  # "count", "number" or "size" (of memory, in bytes)
    help: str  # one sentence
    default: Any = None  # None leaves the choice to the predictor
    default_text: str = ""  # the default in words; "" for no text
    minimum: float = 0  # values must be at least this, or more than this if `exclusive`
    exclusive: bool = False
    rule: str = ""  # allowed values, for the error message
    at_loading: bool = False  # the option belongs to the loaded predictor, not to each run
    selects_predictor: bool = False  # without a predictor, the option chooses the predictor that takes it

    @property
    def flag(self) -> str:
        """The option's flag on the command line."""
        return "--" + self.name.lower().replace("_", "-")

    def check(self, value: Any) -> None:
        """Raise InputError for a value that cannot be used."""
        whole = self.value_type != "number"
        if not isinstance(value, Integral if whole else Real) or isinstance(value, bool):
            raise InputError("argument", f"{self.name} must be a {'whole ' * whole}number, got {value!r}")
        number = float(value)
        if not (number > self.minimum if self.exclusive else number >= self.minimum):
            raise InputError("argument", f"{self.rule}, got {value}")


WINDOW = Option(
    "window_cM",
    "number",
    "Maximum length of a window in cM.",
    exclusive=True,
    rule="a window must have a positive length in cM",
)
MAX_MEMORY = Option(
    "max_memory",
    "size",
    "Memory budget, such as 2G. Results do not depend on it.",
    exclusive=True,
    rule="a budget of memory must be positive",
)
POINTS = Option(
    "inducing_points",
    "count",
    "Maximum number of inducing points (averages of panel haplotypes) per block.",
    default_text="1024",
    minimum=2,
    rule="the number of inducing points must be at least 2",
    at_loading=True,
    selects_predictor=True,
)


@dataclass(frozen=True)
class Training:
    """How a predictor is trained; both are "module:attribute"."""

    settings: str  # a dataclass
    learner: str  # a `Learner`


@dataclass(frozen=True)
class PredictorRow:
    """A predictor."""

    name: str  # on the command line
    help: str  # for a list of predictors
    kind: str  # in checkpoints
    reads: tuple[str, ...]  # what a panel may hold, see `ReferencePanel.holds`
    load: str  # "module:attribute" of a function that turns a `Checkpoint` (`interface`) into the `Predictor`
    has_weights: bool = True  # the predictor is loaded from a checkpoint
    shipped: str | None = None  # the checkpoint in the package
    options: tuple[Option, ...] = ()
    auto_device: str | None = None  # what the device "auto" means; None if it only computes on the processor
    training: Training | None = None

    @property
    def shipped_checkpoint(self) -> Path:
        """Path of the shipped checkpoint; raises InputError without one."""
        if self.shipped is None:
            raise InputError(
                "arguments",
                f"no model of the kind {self.kind!r} is shipped. Give a checkpoint: {argument('model')}.",
            )
        return WEIGHTS / self.shipped

    def has_option(self, name: str) -> bool:
        """Whether the predictor has an option of this name."""
        return any(option.name == name for option in self.options)

    def choose_options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        """Values of all options, with defaults for those that are not given.

        Raises InputError for an option that the predictor does not take, or a value that is not allowed.
        """
        for name in user_options:
            if not self.has_option(name):
                raise InputError("arguments", _refusal_of_option(name, self))
        for option in self.options:
            if option.name in user_options:
                option.check(user_options[option.name])
        return {option.name: user_options.get(option.name, option.default) for option in self.options}


PREDICTORS: tuple[PredictorRow, ...] = (
    PredictorRow(
        "haplotype",
        "attention to the panel's haplotypes",
        kind=HAPLOTYPE_KIND,
        reads=(HAPLOTYPES,),
        load="spinimpute.predictors.haplotype_attention.predictor:load",
        shipped="haplotype.safetensors",
        options=(replace(WINDOW, default=math.inf, default_text="what memory allows"), MAX_MEMORY),
        auto_device="cpu",  # its kernels are made for processors
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
        shipped="spin.safetensors",
        options=(POINTS, replace(WINDOW, default=2.0, default_text="2")),
        auto_device="auto",
        training=Training(
            "spinimpute.predictors.spin.network:SPINSettings",
            "spinimpute.predictors.spin.learner:SPINLearner",
        ),
    ),
)


def import_attribute(reference: str) -> Any:
    """The object that "module:attribute" names."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def row_by_name(name: str) -> PredictorRow:
    """The row of a predictor's name; raises InputError for an unknown name."""
    for row in PREDICTORS:
        if name == row.name:
            return row
    names = " or ".join(row.name for row in PREDICTORS)
    raise InputError("argument", f"predictor must be {names}, got {name!r}")


def row_by_kind(kind: object) -> PredictorRow | None:
    """The row of a checkpoint's kind, or None."""
    return next((row for row in PREDICTORS if row.kind == kind), None)


def default_row(holds: str | None, user_options: Mapping[str, Any]) -> PredictorRow:
    """The predictor if none is named: the first row that reads such a panel, None for any panel.

    Some of the given options choose a predictor. Raises InputError if no predictor reads such a panel.
    """
    fitting = [row for row in PREDICTORS if holds is None or holds in row.reads]
    if not fitting:
        raise InputError("mismatch", f"no predictor reads a panel that holds {holds}")
    selecting = {
        option.name for option in options_by_name().values() if option.selects_predictor
    } & user_options.keys()
    return next((row for row in fitting if any(map(row.has_option, selecting))), fitting[0])


def options_by_name() -> dict[str, Option]:
    """The options of all predictors; options with the same name differ in their defaults only."""
    found: dict[str, Option] = {}
    for row in PREDICTORS:
        for option in row.options:
            found.setdefault(option.name, option)
    return found


def option_help(name: str) -> str:
    """Help text of an option: its effect, its default, and its predictors."""
    rows = [row for row in PREDICTORS if row.has_option(name)]
    defaults: dict[str, list[str]] = {}
    for row in rows:
        (option,) = (option for option in row.options if option.name == name)
        defaults.setdefault(option.default_text, []).append(row.name)
    of = {text: ", ".join(names) for text, names in defaults.items()}
    listed = ", ".join(f"{text} ({names})" for text, names in of.items() if text)
    if listed:
        return f"{options_by_name()[name].help} Default: {listed}."
    return f"{options_by_name()[name].help} Only for {of['']}."


def _refusal_of_option(name: str, row: PredictorRow) -> str:
    takers = [other.name for other in PREDICTORS if other.has_option(name)]
    if not takers:
        names = ", ".join(option.name for option in row.options) or "none"
        return f"the predictor {row.name!r} has no option {name!r}; its options: {names}"
    flag = options_by_name()[name].flag
    return (
        f"the predictor {row.name!r} does not take {flag} ({name}), an option of {' and '.join(takers)}. "
        "Leave it out, or choose another predictor."
    )
