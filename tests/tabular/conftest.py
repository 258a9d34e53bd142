"""`spinimpute tabular` in a temporary folder, and a table there."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest


@pytest.fixture
def run(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """run(*arguments): `spinimpute tabular` in the temporary folder."""
    monkeypatch.chdir(tmp_path)
    return partial(run, "tabular")


@pytest.fixture
def houses(tmp_path: Path) -> pd.DataFrame:
    """houses.csv: 60 rows of numbers, text, keys, gaps."""
    rng = np.random.default_rng(0)
    found = pd.DataFrame(
        {
            "key": [f"h{number}" for number in range(60)],
            "area": rng.normal(100, 20, 60).round(1).astype(str),
            "town": rng.choice(["Bern", "Köln, Süd", 'the "Y"'], 60),
            "zip": rng.choice(["007", "7", "10"], 60),
            "weight": rng.choice([0, 1, 2], 60),
            "price": rng.normal(500, 90, 60).round(2),
            "sold": rng.choice(["yes", "no"], 60),
        }
    )
    found.loc[::5, "area"] = "NA"
    found.to_csv(tmp_path / "houses.csv", index=False)
    return found
