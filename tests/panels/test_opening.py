"""Panels of every kind are recognized by their first bytes and have the same interface."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

import spinimpute
from spinimpute.panels.opening import get_panel_paths, is_panel_file, open_panel_file, open_reference
from spinimpute.panels.spin_files import join_panels
from spinimpute.pipeline.maps.build import refine_panel
from spinimpute.runtime.errors import InputError

ARRAY = np.arange(5, 4_400, 20)


@pytest.fixture(scope="module")
def files(
    example_panel: spinimpute.Panel, example_halves: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """One file of each kind; the names do not show the kind."""
    folder = tmp_path_factory.mktemp("kinds")
    found = {name: folder / name for name in ("haplotypes", "inducing", "parts")}
    shutil.copy(example_panel.path, found["haplotypes"])
    spinimpute.build_inducing_panel(example_panel, found["inducing"], ARRAY, 8).close()
    join_panels(example_halves, found["parts"])
    return found


@pytest.mark.parametrize(("kind", "n_panels"), [("haplotypes", 1), ("inducing", 1), ("parts", 2)])
def test_each_kind_is_opened(
    files: dict[str, Path], example_panel: spinimpute.Panel, kind: str, n_panels: int
) -> None:
    assert is_panel_file(files[kind])
    for panels in (open_panel_file(files[kind]), open_reference(files[kind])):
        with panels as opened:
            assert len(opened) == n_panels
            for name in ("frequency", "position"):
                found = np.concatenate([getattr(panel, name) for panel in opened])
                np.testing.assert_array_equal(found, getattr(example_panel, name))
            for panel in opened:
                assert (panel.n_samples, panel.n_haplotypes) == (150, 300)
                assert get_panel_paths(panel) == [files[kind]] == get_panel_paths(files[kind])
                panel.verify()


def test_parts_follow_one_another(example_halves: list[Path], tmp_path: Path) -> None:
    first, second = example_halves
    for parts in ([second, first], [first, first]):
        join_panels(parts, tmp_path / "x.spin")
        with (
            pytest.raises(InputError, match="parts are not in order of position"),
            open_reference(tmp_path / "x.spin"),
        ):
            pass


def test_interface_of_panels(files: dict[str, Path]) -> None:
    with open_panel_file(files["haplotypes"]) as (panel,), open_panel_file(files["inducing"]) as (made,):
        assert (panel.holds, made.holds) == ("haplotypes", "inducing points")
        assert panel.haplotypes is panel
        assert made.haplotypes is None
        assert panel.array_index is None
        assert made.array_index is not None
        np.testing.assert_array_equal(made.array_index, ARRAY)
        panel.check_typed(np.array([1]))
        made.check_typed(ARRAY[:1])
        with pytest.raises(InputError, match="none of the 1 typed sites is among the 220 sites of its array"):
            made.check_typed(np.array([1]))
        assert (panel.made_of, dict(panel.described())) == ("", {})
        assert made.made_of == f" (at most 8 inducing points of the panel {panel.checksum})"
        assert made.described()["array"] == "220 of these sites"


def test_files_that_are_not_panels(files: dict[str, Path], example: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.spin"
    text.write_text("no panel")
    for path, said in ((text, "not a spinimpute panel"), (tmp_path / "absent.spin", "cannot be opened")):
        assert not is_panel_file(path)
        with pytest.raises(InputError, match=said), open_panel_file(path):
            pass
        with pytest.raises(InputError, match=said), open_reference(path):
            pass
    assert not is_panel_file(example / "panel.vcf.gz")
    with pytest.raises(InputError, match="not a spinimpute panel"), open_panel_file(example / "panel.vcf.gz"):
        pass


def test_a_vcf_is_recognized_by_its_content(example: Path, tmp_path: Path) -> None:
    unnamed = tmp_path / "panel"
    shutil.copy(example / "panel.vcf.gz", unnamed)
    with open_reference(unnamed, example / "genetic.map") as (panel,):
        assert panel.holds == "haplotypes"
    for name, content, said in (
        ("text.vcf", b"no panel", "this is no VCF or BCF file"),
        ("truncated.vcf.gz", b"\x1f\x8b\x08short", "the compressed file is truncated"),
        ("damaged.vcf.gz", b"\x1f\x8b\x08\0" + bytes(6) + b"\xff\xff", "the compressed file is damaged"),
        ("damaged.spin", b"\x1f\x8b\x08damaged", "not a spinimpute panel"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=said), open_reference(tmp_path / name):
            pass
    with pytest.raises(InputError, match="there is no such file"), open_reference(tmp_path / "absent.bcf"):
        pass


def test_a_map_needs_a_vcf(
    files: dict[str, Path], example: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    genetic_map = example / "genetic.map"
    for panel in (*files.values(), example_panel):
        with pytest.raises(InputError, match="has its genetic map in it"), open_reference(panel, genetic_map):
            pass
    for absent in (tmp_path / "none.spin", tmp_path / "none"):
        with pytest.raises(InputError, match="No such file"), open_reference(absent, genetic_map):
            pass
    with open_reference(example / "panel.vcf.gz", genetic_map, refine=refine_panel) as (built,):
        assert built.checksum == example_panel.checksum
    with open_reference(example_panel) as opened:
        assert opened == [example_panel]


@pytest.mark.parametrize("kind", ["haplotypes", "inducing"])
def test_damage_is_found(files: dict[str, Path], tmp_path: Path, kind: str) -> None:
    content = bytearray(files[kind].read_bytes())
    content[200] ^= 1  # of a haplotype, or of a block
    path = tmp_path / "damaged"
    path.write_bytes(content)
    with open_panel_file(path) as (panel,), pytest.raises(InputError, match="damaged"):
        panel.verify()


def test_a_pipe_is_refused_unread(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert not is_panel_file(pipe)
    said = "panel .*pipe: it is not a regular file; copy it to one"
    with pytest.raises(InputError, match=said), open_panel_file(pipe):
        pass
    with pytest.raises(InputError, match=said), open_reference(pipe, tmp_path / "genetic.map"):
        pass
    with pytest.raises(InputError, match=said):
        spinimpute.build_panels(pipe, tmp_path / "p.spin")
