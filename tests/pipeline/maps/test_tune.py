"""Tuning the map of a panel file: parts of chromosome X, and arrays and panels that will not do."""

import numpy as np
import pytest

from spinimpute.panels.spin_files import join_panels, open_spin_file
from spinimpute.pipeline.maps.tune import tune_panel
from spinimpute.runtime.errors import InputError


def test_an_array_of_too_few_sites(example_panel, tmp_path):
    array = tmp_path / "array.txt"
    sites = example_panel.sites
    array.write_text("".join(f"{sites.chrom} {position}\n" for position in sites.position[:3]))
    with pytest.raises(InputError, match="3 of its sites are in the panel"):
        tune_panel(example_panel.path, array, tmp_path / "o.spin")
    assert list(tmp_path.iterdir()) == [array]


def test_parts_of_x(example_panel, example_halves, tmp_path):
    """A part that the array does not reach stays as it is; an array that cannot be read is an error."""
    joined = tmp_path / "x.spin"
    join_panels(example_halves, joined)
    with pytest.raises(InputError, match="there is no such file"):
        tune_panel(joined, tmp_path / "no", tmp_path / "o.spin")
    array = tmp_path / "array.txt"
    sites = example_panel.sites
    array.write_text("".join(f"{sites.chrom} {position}\n" for position in sites.position[::20]))
    tune_panel(joined, array, tmp_path / "o.spin", threads=1)
    with open_spin_file(tmp_path / "o.spin") as parts:
        assert len(parts) == 2
        for part in parts:
            assert part.provenance["map tuned"]["sites"] > 100
            rows = np.isin(example_panel.position, part.position)
            assert not np.array_equal(part.cM, example_panel.cM[rows])
    with pytest.raises(InputError, match="tuned already"):
        tune_panel(tmp_path / "o.spin", array, tmp_path / "again.spin")
    assert not (tmp_path / "again.spin").exists()
