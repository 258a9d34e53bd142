"""The registry of predictors: one row for each, with its name, options, checkpoint and training.

The command line, the loader and the training read these rows, so they contain no code for a particular
predictor. To add a predictor, write a subclass of `Predictor` (`predictors.interface`) in a new folder next
to this module, and add a row to PREDICTORS. Rows name functions and classes as "module:attribute"; they are
imported only when they are used. The command line can therefore list all options without loading torch.
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
HAPLOTYPE_KIND, SPIN_KIND = "haplotype", "spin"  # the entry `kind` of checkpoints


@dataclass(frozen=True)
class Option:
    """An option of a predictor."""

    name: str  # name in Python; the flag on the command line has hyphens
    value_type: str  # "count", "number" or "size" (of memory, in bytes)
    help: str  # one sentence
    default: Any = None  # None: the predictor chooses the value
    default_text: str = ""  # the default in words, for the help; "" omits it
    minimum: float = 0  # smallest allowed value
    exclusive: bool = False  # values must be larger than `minimum`; equal is not allowed
    rule: str = ""  # the allowed values in words, for the error message
    at_loading: bool = False  # the value is set when the predictor is loaded, not in each run
    selects_predictor: bool = False  # if no predictor is named, this option selects one that has the option

    @property
    def flag(self) -> str:
        """The option's flag on the command line."""
        return "--" + self.name.lower().replace("_", "-")

    def check(self, value: Any) -> None:
        """Raise InputError if the value is not allowed."""
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
    default=2.0,
    default_text="2",
    exclusive=True,
    rule="a window must have a positive length in cM",
)
MAX_MEMORY = Option(
    "max_memory",
    "size",
    "Memory budget, such as 2G. Results do not depend on it.",
    exclusive=True,
    rule="the memory budget must be positive",
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
    """The classes that train a predictor, as "module:attribute"."""

    settings: str  # dataclass of the table [model] in a configuration
    learner: str  # the `Learner`, which draws tasks and computes the loss


@dataclass(frozen=True)
class PredictorRow:
    """A row of the registry: a predictor."""

    name: str  # name on the command line
    help: str  # description in a list of predictors
    kind: str  # the entry `kind` of its checkpoints
    reads: tuple[str, ...]  # the kinds of panel that it can read, see `ReferencePanel.holds`
    load: str  # "module:attribute" of a function that returns the `Predictor` for an `interface.Checkpoint`
    has_weights: bool = True  # the predictor needs a checkpoint
    shipped: str | None = None  # name of the checkpoint in the package; None if there is none
    options: tuple[Option, ...] = ()
    auto_device: str | None = None  # device that "auto" stands for; None if it can only compute on the CPU
    training: Training | None = None  # None if the predictor cannot be trained

    @property
    def shipped_checkpoint(self) -> Path:
        """Return the path of the shipped checkpoint. Raise InputError if there is none."""
        if self.shipped is None:
            raise InputError(
                "arguments",
                f"no model of the kind {self.kind!r} is shipped. Give a checkpoint: {argument('model')}.",
            )
        return WEIGHTS / self.shipped

    def has_option(self, name: str) -> bool:
        """Return whether the predictor has an option of this name."""
        return any(option.name == name for option in self.options)

    def choose_options(self, user_options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of all options: those of `user_options`, and defaults for the other options.

        Raise InputError if the predictor does not have one of the options, or a value is not allowed.
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
        auto_device="cpu",  # the kernels are written for CPUs
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
        options=(POINTS, WINDOW),
        auto_device="auto",
        training=Training(
            "spinimpute.predictors.spin.settings:SPINSettings",
            "spinimpute.predictors.spin.learner:SPINLearner",
        ),
    ),
)


def import_attribute(reference: str) -> Any:
    """Import and return the object that `reference` names as "module:attribute"."""
    module, _, attribute = reference.partition(":")
    return getattr(import_module(module), attribute)


def row_by_name(name: str) -> PredictorRow:
    """Return the row with this name. Raise InputError if there is none."""
    for row in PREDICTORS:
        if name == row.name:
            return row
    names = " or ".join(row.name for row in PREDICTORS)
    raise InputError("argument", f"predictor must be {names}, got {name!r}")


def row_by_kind(kind: object) -> PredictorRow | None:
    """Return the row with the kind of a checkpoint, or None if the kind is unknown."""
    return next((row for row in PREDICTORS if row.kind == kind), None)


def default_row(holds: str | None, user_options: Mapping[str, Any]) -> PredictorRow:
    """Return the row to use if the user names no predictor.

    It is the first row that can read a panel that holds `holds`; None means any panel. If the user has set an
    option with `selects_predictor`, rows that have this option come first. Raise InputError if no predictor
    can read the panel.
    """
    fitting = [row for row in PREDICTORS if holds is None or holds in row.reads]
    if not fitting:
        raise InputError("mismatch", f"no predictor reads a panel that holds {holds}")
    selecting = {
        option.name for option in options_by_name().values() if option.selects_predictor
    } & user_options.keys()
    return next((row for row in fitting if any(map(row.has_option, selecting))), fitting[0])


def options_by_name() -> dict[str, Option]:
    """Return the options of all predictors. Options with equal names differ in their defaults only."""
    found: dict[str, Option] = {}
    for row in PREDICTORS:
        for option in row.options:
            found.setdefault(option.name, option)
    return found


def option_help(name: str) -> str:
    """Return the help text of an option: its effect, its default, and the predictors that have it."""
    rows = [row for row in PREDICTORS if row.has_option(name)]
    defaults: dict[str, list[str]] = {}
    for row in rows:
        (option,) = (option for option in row.options if option.name == name)
        defaults.setdefault(option.default_text, []).append(row.name)
    names_of_default = {text: ", ".join(names) for text, names in defaults.items()}
    listed = ", ".join(f"{text} ({names})" for text, names in names_of_default.items() if text)
    if listed:
        return f"{options_by_name()[name].help} Default: {listed}."
    return f"{options_by_name()[name].help} Only for {names_of_default['']}."


def _refusal_of_option(name: str, row: PredictorRow) -> str:
    predictors = [other_row.name for other_row in PREDICTORS if other_row.has_option(name)]
    if not predictors:
        names = ", ".join(option.name for option in row.options) or "none"
        return f"the predictor {row.name!r} has no option {name!r}; its options: {names}"
    flag = options_by_name()[name].flag
    return (
        f"the predictor {row.name!r} does not take {flag} ({name}), an option of {' and '.join(predictors)}. "
        "Leave it out, or choose another predictor."
    )
