"""`spinimpute tabular` in a temporary folder, and a table there."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from spinimpute.cli.main import run_command


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., Result]:
    """run(*arguments): `spinimpute tabular` in the temporary folder."""
    monkeypatch.chdir(tmp_path)

    def run_main(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["spinimpute", "tabular", *map(str, arguments)])
        with pytest.raises(SystemExit) as exited:
            run_command()
        out, err = capfd.readouterr()
        assert "Traceback" not in err
        return Result(int(exited.value.code or 0), out, err)

    return run_main


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
