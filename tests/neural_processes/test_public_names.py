"""Public names of `spinimpute.neural_processes`."""

import subprocess
import sys

import pytest

import spinimpute.neural_processes as neural_processes


def test_every_public_name_can_be_imported() -> None:
    for name in neural_processes.__all__:
        assert name in dir(neural_processes)
        assert getattr(neural_processes, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'missing'"):
        neural_processes.missing  # noqa: B018


def test_settings_are_imported_without_torch() -> None:
    code = (
        "import sys; from spinimpute.neural_processes import KINDS, ModelSettings; ModelSettings(KINDS[0]);"
        "assert 'torch' not in sys.modules; from spinimpute.neural_processes import fit; fit.__call__;"
        "assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_missing_torch_is_explained() -> None:
    code = "import sys; sys.modules['torch'] = None; from spinimpute.neural_processes import fit"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingPackage: spinimpute.neural_processes.fit needs the package torch" in done.stderr
