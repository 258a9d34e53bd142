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
        """Predict y at new positions of one table, or of B tables with equal numbers of points.

        B tables are given as arrays with a first axis B. Each table is predicted from its own context alone.

        Parameters
        ----------
        x_context : array (N, X), (N,) or (B, N, X)
            Inputs of the known points; N may be 0.
        y_context : array (N, Y) or (N,); of B tables: (B, N, Y) or (B, N)
            Outputs of the known points.
        x_target : array (Q, X), (Q,) or (B, Q, X)
            Inputs to predict at.
        samples : int
            Number of samples drawn by latent and bootstrapping models.
        seed : int
            Random seed of these samples. Each of B tables gets the samples that it gets alone.

        Returns
        -------
        float64 (Q, Y) or (B, Q, Y), without the axis Y if y_context has none
            Predicted means; of binary outputs, the probabilities of 1.
        float64 of the same shape
            Predicted standard deviations.

        Raises
        ------
        InputError
            An array has another number of columns than the tables of the fit, or holds values that are not
            finite numbers; or the arrays differ in B, or x_context and y_context in N.
        ValueError
            `samples` is not a positive whole number.
        """
        is_batch = np.ndim(x_context) == 3
        has_no_columns = np.ndim(y_context) == 1 + is_batch
        settings = self.model.settings
        x_BNX, y_BNY, x_BQX = (
            _checked(name, values, columns, is_batch)
            for name, values, columns in (
                ("x_context", x_context, settings.x_size),
                ("y_context", y_context, settings.y_size),
                ("x_target", x_target, settings.x_size),
            )
        )
        if x_BNX.shape[:2] != y_BNY.shape[:2] or len(x_BNX) != len(x_BQX):
            raise InputError(
                "content",
                "x_context and y_context must have the same points, and x_target the same tables, got the "
                f"shapes {np.shape(x_context)}, {np.shape(y_context)} and {np.shape(x_target)}",
            )
        scaled = self.x.scaled(x_BNX), self.y.scaled(y_BNY), self.x.scaled(x_BQX)
        mean_BQY, sd_BQY = self._predict([a.astype(np.float32) for a in scaled], samples, seed)
        results = mean_BQY * self.y.sd + self.y.mean, sd_BQY * self.y.sd
        mean, sd = (
            (values if is_batch else values[0])[..., 0 if has_no_columns else slice(None)]
            for values in results
        )
        return mean, sd

    @torch.no_grad()
    def _predict(
        self, scaled: Sequence[np.ndarray], samples: int, seed: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return means and standard deviations (B, Q, Y) in float64.

        Tables are predicted one by one, so that each gets the random samples that it gets alone. torch's
        random generator does not change.
        """
        shape = (*scaled[2].shape[:2], self.model.settings.y_size)
        mean_BQY, sd_BQY = np.empty(shape), np.empty(shape)
        with torch.random.fork_rng([]):
            for number in range(len(mean_BQY)):
                torch.manual_seed(seed)
                predicted = self.model(*(torch.from_numpy(a[number : number + 1]) for a in scaled), samples)
                mean_BQY[number], sd_BQY[number] = predicted.mean[0].numpy(), predicted.stddev[0].numpy()
        return mean_BQY, sd_BQY

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


def _checked(name: str, values: np.ndarray, columns: int, is_batch: bool) -> np.ndarray:
    """Return values as a float64 array (B, rows, columns), or raise InputError; B is 1 without `is_batch`."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError("content", f"{name} is not a numeric array ({error})") from error
    if array.ndim == 1 + is_batch:
        array = array[..., None]
    if array.ndim != 2 + is_batch or array.shape[-1] != columns:
        expected = f"(tables, points, {columns})" if is_batch else f"(points, {columns})"
        raise InputError("content", f"{name} must have the shape {expected}, got {np.shape(values)}")
    if not np.isfinite(array).all():
        raise InputError("content", f"{name} holds NaN or infinite numbers. Remove these points.")
    return array if is_batch else array[None]
