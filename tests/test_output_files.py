"""Outputs that would destroy an input, or cannot be written, are refused before work starts."""

import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import spinimpute
from spinimpute.errors import InputError
from spinimpute.output_files import check_output, temporary_folder
from spinimpute.vcf import indexed_file
from spinimpute.vcf import writer as vcf_writer

EXAMPLE = Path(__file__).resolve().parent.parent / "data" / "example"


def copy(source: Path, folder: Path) -> Path:
    target = folder / source.name
    target.write_bytes(source.read_bytes())
    return target


def test_an_input_is_never_overwritten(tmp_path: Path) -> None:
    target, panel = copy(EXAMPLE / "target.vcf.gz", tmp_path), copy(EXAMPLE / "panel.vcf.gz", tmp_path)
    attempts: list[Callable[[], object]] = [
        lambda: spinimpute.impute(target, target, panel, force=True),
        lambda: spinimpute.impute(target, panel, panel, force=True),
        lambda: spinimpute.build_panel(panel, panel, force=True),
    ]
    before = target.read_bytes(), panel.read_bytes()
    for attempt in attempts:
        with pytest.raises(InputError, match="also read from"):
            attempt()
    assert (target.read_bytes(), panel.read_bytes()) == before


@pytest.mark.parametrize("index", [".tbi", ".csi"])
def test_a_folder_in_the_place_of_the_index(tmp_path: Path, index: str) -> None:
    out = tmp_path / "o.vcf.gz"
    (tmp_path / f"o.vcf.gz{index}").mkdir()
    with pytest.raises(
        InputError, match=rf"cannot write .*o\.vcf\.gz\{index}, the index of .*: it is a folder"
    ):
        check_output(out, True, [])


def test_standard_output() -> None:
    with pytest.raises(InputError, match="standard output cannot be written"):
        check_output("-", False, [])


@pytest.mark.parametrize("target", ["a.vcf", "nowhere/a.vcf", "/dev/stdout"])
def test_links_are_neither_replaced_nor_followed(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.vcf").write_text("x")
    link = tmp_path / "b.vcf"
    link.symlink_to(target)
    with pytest.raises(InputError, match=f"it is a link, to {target}; give the name of the file itself"):
        check_output(link, True, [])


def test_another_name_of_an_input_is_that_input(tmp_path: Path) -> None:
    source, other = tmp_path / "a.vcf", tmp_path / "b.vcf"
    source.write_text("x")
    other.hardlink_to(source)
    with pytest.raises(InputError, match="also read from"):
        check_output(other, True, [source, None, 3])
    assert check_output(tmp_path / "new.vcf", False, [source]) == tmp_path / "new.vcf"


def test_existing_files_need_force(tmp_path: Path) -> None:
    existing = tmp_path / "a"
    existing.touch()
    assert check_output(existing, True, []) == existing
    with pytest.raises(InputError, match="already exists; use force=True to overwrite or wait"):
        check_output(existing, False, [], " or wait")


def test_an_interrupt_while_the_writer_starts_leaves_nothing(tmp_path: Path) -> None:
    with (
        mock.patch.object(indexed_file, "BgzfWriter", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        vcf_writer.GenotypeWriter(tmp_path / "o.bcf", ["a"], np.array([2], np.uint8), ["##contig=<ID=1>"])
    assert list(tmp_path.iterdir()) == []


def test_temporary_folders_of_other_machines_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may share the folder, but not see each other's locks."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(platform, "node", lambda: "this/one")
    for name in ("spinimpute-this_one-01234567.parts", "spinimpute-other-01234567.parts"):
        (tmp_path / name).mkdir()
    with temporary_folder() as folder:
        assert folder.name.startswith("spinimpute-this_one-")
    assert [path.name for path in tmp_path.iterdir()] == ["spinimpute-other-01234567.parts"]
