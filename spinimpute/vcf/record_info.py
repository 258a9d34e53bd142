"""The INFO fields of output records, rounded once so that VCF and BCF agree."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spinimpute.vcf.header import OutputHeader


@dataclass(frozen=True)
class InfoValues:
    """The INFO fields of r records."""

    columns: dict[str, list[str | None]]  # key -> the value of each record as text, None where it is left out
    typed: list[bool]

    @classmethod
    def from_arrays(
        cls, header: OutputHeader, arrays: Mapping[str, np.ndarray | None], typed: np.ndarray
    ) -> "InfoValues":
        """Format the arrays in the order of the header.

        Parameters:
            arrays: per INFO key numbers (r,), of which those that are not finite are left out, or None.
            typed: bool (r,), the TYPED flag (IMPUTED where it is false).
        Raises:
            ValueError: a key is not in the header, is no number there, or has another length.
        """
        unknown = [key for key in arrays if header.info_types.get(key) not in ("Float", "Integer")]
        if unknown:
            raise ValueError(f"the header defines no numeric INFO field {', '.join(unknown)}")
        columns = {}
        for key, info_type in header.info_types.items():
            values = arrays.get(key)
            if values is None:
                continue
            if np.shape(values) != np.shape(typed):
                raise ValueError(f"INFO/{key} has shape {np.shape(values)}, the records {np.shape(typed)}")
            pattern = "%.6g" if key == "AF" else "%.4f" if info_type == "Float" else "%d"
            columns[key] = [
                pattern % value if math.isfinite(value) else None for value in np.asarray(values).tolist()
            ]
        return cls(columns, typed.tolist())

    def part(self, records: slice) -> "InfoValues":
        """The values of some of the records."""
        return InfoValues({key: values[records] for key, values in self.columns.items()}, self.typed[records])

    def texts(self) -> list[str]:
        """The INFO column of each record."""
        records = ["TYPED" if is_typed else "IMPUTED" for is_typed in self.typed]
        for key, values in reversed(self.columns.items()):
            records = [
                record if value is None else f"{key}={value};{record}"
                for record, value in zip(records, values, strict=True)
            ]
        return records
