"""Neural processes: networks that predict a function from a few of its points (the context).

They are trained on many functions of the same kind. The prediction at each further position (a target) is a
probability distribution.

A public name is imported when it is first used, so that `settings` can be imported without PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spinimpute.neural_processes.fitted import FittedProcess
    from spinimpute.neural_processes.fitting import fit
    from spinimpute.neural_processes.models import NeuralProcess, make_model
    from spinimpute.neural_processes.settings import KINDS, ModelSettings

# public name -> module that defines it
_MODULES = {
    "KINDS": "settings",
    "FittedProcess": "fitted",
    "ModelSettings": "settings",
    "NeuralProcess": "models",
    "fit": "fitting",
    "make_model": "models",
}

__all__ = ["KINDS", "FittedProcess", "ModelSettings", "NeuralProcess", "fit", "make_model"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'spinimpute.neural_processes' has no attribute {name!r}")
    from spinimpute.runtime.packages import explain_missing_packages

    with explain_missing_packages(f"spinimpute.neural_processes.{name}"):
        return getattr(import_module(f"spinimpute.neural_processes.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
