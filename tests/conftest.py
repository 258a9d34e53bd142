"""Fixtures that every test may ask for."""

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_genotypes() -> Path:
    """The folder of real genotypes kept beside the checkout (or named by SPINIMPUTE_SHARED)."""
    folder = Path(os.environ.get("SPINIMPUTE_SHARED", REPOSITORY.parent / "shared")) / "data" / "genotypes"
    if not folder.is_dir():
        pytest.skip(f"real genotypes are not at {folder}: set SPINIMPUTE_SHARED to the folder of data/")
    return folder
