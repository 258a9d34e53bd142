"""Result of `fit`: predictions in the units of the user's tables, and its files.

Axes: see `spinimpute.nn`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from spinimpute.neural_processes.models import NeuralProcess
from spinimpute.neural_processes.training import model_of, report_disagreement
from spinimpute.nn.model_weights import arrays_of
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.tensor_files import load_tensors, save_tensors

PROCESS_FORMAT = "spinimpute-fitted-process-1"


@dataclass(frozen=True)
class Scaler:
    """Mean and standard deviation of each column, over all tables."""

    mean: np.ndarray  # float64, because float32 is too coarse for columns with large offsets
    sd: np.ndarray

    @classmethod
    def from_tables(cls, columns: Sequence[np.ndarray]) -> Scaler:
        """Compute the scales from arrays (rows, columns)."""
        rows = np.concatenate(columns)
        constant = rows.max(axis=0) == rows.min(axis=0)  # rounding may give an sd above 0
        return cls(rows.mean(axis=0), np.where(constant, 1.0, rows.std(axis=0)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], name: str, columns: int) -> Scaler:
        """Return the scales `name` of a file. Raise ValueError if they are not those of so many columns."""
        mean, sd = arrays[f"{name}_mean"], arrays[f"{name}_sd"]
        for array in (mean, sd):
            if array.dtype != np.float64 or array.shape != (columns,) or not np.isfinite(array).all():
                raise ValueError(f"the scales of {name} are not {columns} finite numbers")
        if not (sd > 0).all():
            raise ValueError(f"a standard deviation of {name} is not positive")
        return cls(mean, sd)

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays that `from_arrays` reads."""
        return {f"{name}_mean": self.mean, f"{name}_sd": self.sd}

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Standardise values (..., columns)."""
        return (values - self.mean) / self.sd


class FittedProcess:
    """Result of `fit`: it predicts new tables from any number of their points, in the units of the tables."""

    def __init__(self, model: NeuralProcess, x: Scaler, y: Scaler) -> None:
        self.model, self.x, self.y = model.eval(), x, y

    def predict(
        self,
        x_context: np.ndarray,
        y_context: np.ndarray,
        x_target: np.ndarray,
        samples: int = 50,
        seed: int = 0,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Predict y at new positions of one table.

        Parameters
        ----------
        x_context : array (N, X) or (N,)
            Inputs of the known points; N may be 0.
        y_context : array (N, Y) or (N,)
            Outputs of the known points.
        x_target : array (Q, X) or (Q,)
            Inputs to predict at.
        samples : int
            Number of samples drawn by latent and bootstrapping models.
        seed : int
            Random seed of these samples.

        Returns
        -------
        float64 (Q, Y), or (Q,) if y_context has one dimension
            Predicted means.
        float64 of the same shape
            Predicted standard deviations.

        Raises
        ------
        InputError
            An array has another number of columns than the tables of the fit, or holds values that are not
            finite numbers; or x_context and y_context differ in length.
        ValueError
            `samples` is not a positive whole number.
        """
        is_vector = np.ndim(y_context) == 1
        x_NX = _checked("x_context", x_context, self.model.settings.x_size)
        y_NY = _checked("y_context", y_context, self.model.settings.y_size)
        x_QX = _checked("x_target", x_target, self.model.settings.x_size)
        if len(x_NX) != len(y_NY):
            raise InputError(
                "content",
                f"x_context and y_context must have the same length, got {len(x_NX)} and {len(y_NY)}",
            )
        mean, sd = self._predict(x_NX, y_NY, x_QX, samples, seed)
        return (mean[:, 0], sd[:, 0]) if is_vector else (mean, sd)

    @torch.no_grad()
    def _predict(
        self, x_NX: np.ndarray, y_NY: np.ndarray, x_QX: np.ndarray, samples: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations (Q, Y), without a change of torch's random generator."""
        scaled = self.x.scaled(x_NX), self.y.scaled(y_NY), self.x.scaled(x_QX)
        with torch.random.fork_rng([]):
            torch.manual_seed(seed)
            predicted = self.model(*(torch.from_numpy(a.astype(np.float32))[None] for a in scaled), samples)
        mean, sd = (values[0].double().numpy() for values in (predicted.mean, predicted.stddev))
        return mean * self.y.sd + self.y.mean, sd * self.y.sd

    def save(self, path: str | Path) -> None:
        """Write the model and the scales to a safetensors file.

        Parameters
        ----------
        path : str or Path
            File to write. An existing file is overwritten.

        Raises
        ------
        InputError
            The file cannot be written.
        """
        arrays = arrays_of(self.model.state_dict()) | self.x.arrays("x") | self.y.arrays("y")
        save_tensors(path, arrays, {"model": asdict(self.model.settings)}, PROCESS_FORMAT)

    @classmethod
    def load(cls, path: str | Path) -> FittedProcess:
        """Read a file that `save` wrote. The loaded process predicts exactly as the saved one did.

        Parameters
        ----------
        path : str or Path
            File to read.

        Returns
        -------
        FittedProcess
            The process on the CPU.

        Raises
        ------
        InputError
            The file is missing, damaged or of another format.
        """
        arrays, metadata = load_tensors(path, PROCESS_FORMAT, "fitted neural process")
        scale_names = {f"{axis}_{statistic}" for axis in "xy" for statistic in ("mean", "sd")}
        with report_disagreement(f"fitted neural process {path}"):
            weights = {name: array for name, array in arrays.items() if name not in scale_names}
            model = model_of(metadata["model"], weights)
            x = Scaler.from_arrays(arrays, "x", model.settings.x_size)
            y = Scaler.from_arrays(arrays, "y", model.settings.y_size)
        return cls(model, x, y)


def as_columns(values: np.ndarray) -> np.ndarray:
    """Return values as float64, with a vector as one column."""
    values = np.asarray(values, dtype=np.float64)
    return values[:, None] if values.ndim == 1 else values


def _checked(name: str, values: np.ndarray, columns: int) -> np.ndarray:
    """Return values as a float64 array (rows, columns), or raise InputError."""
    try:
        rows = as_columns(values)
    except (TypeError, ValueError) as error:
        raise InputError("content", f"{name} is not a numeric array ({error})") from error
    if rows.ndim != 2 or rows.shape[1] != columns:
        raise InputError("content", f"{name} must have the shape (points, {columns}), got {np.shape(values)}")
    if not np.isfinite(rows).all():
        raise InputError("content", f"{name} holds NaN or infinite numbers. Remove these points.")
    return rows
