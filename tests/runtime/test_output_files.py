"""Outputs that would destroy an input, or cannot be written, are refused before work starts."""

import gzip
import multiprocessing
import os
import platform
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline.typed_file import convert
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.output_files import check_output, temporary_folder
from spinimpute.vcf import writer as vcf_writer
from spinimpute.vcf.header import OutputLayout

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"


def copy(source: Path, folder: Path) -> Path:
    target = folder / source.name
    target.write_bytes(source.read_bytes())
    return target


def test_an_input_is_never_overwritten(tmp_path):
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
def test_a_folder_in_the_place_of_the_index(tmp_path, index):
    out = tmp_path / "o.vcf.gz"
    (tmp_path / f"o.vcf.gz{index}").mkdir()
    with pytest.raises(
        InputError, match=rf"cannot write .*o\.vcf\.gz\{index}, the index of .*: it is a folder"
    ):
        check_output(out, True, [])


@pytest.mark.parametrize("target", ["a.vcf", "nowhere/a.vcf", "/dev/stdout"])
def test_links_are_neither_replaced_nor_followed(tmp_path, target):
    (tmp_path / "a.vcf").write_text("x")
    link = tmp_path / "b.vcf"
    link.symlink_to(target)
    with pytest.raises(InputError, match=f"it is a link, to {target}; give the name of the file itself"):
        check_output(link, True, [])


def test_the_name_of_standard_output_is_told():
    with pytest.raises(
        InputError, match=r"cannot write /dev/stdout: it is a link, to .*; standard output is -"
    ):
        check_output("/dev/stdout", True, [])


def test_another_name_of_an_input_is_that_input(tmp_path):
    source, other = tmp_path / "a.vcf", tmp_path / "b.vcf"
    source.write_text("x")
    other.hardlink_to(source)
    with pytest.raises(InputError, match="also read from"):
        check_output(other, True, [source, None, 3])
    assert check_output(tmp_path / "new.vcf", False, [source]) == tmp_path / "new.vcf"


def test_existing_files_need_force(tmp_path):
    existing = tmp_path / "a"
    existing.touch()
    assert check_output(existing, True, []) == existing
    with pytest.raises(InputError, match="already exists; use force=True to overwrite or wait"):
        check_output(existing, False, [], " or wait")


def test_an_interrupt_while_the_writer_starts_leaves_nothing(tmp_path):
    layout = OutputLayout(["a"], np.array([2], np.uint8), ["##contig=<ID=1>"])
    with (
        mock.patch.object(vcf_writer, "BgzfWriter", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        vcf_writer.GenotypeWriter(tmp_path / "o.bcf", layout)
    assert list(tmp_path.iterdir()) == []


def test_temporary_folders_of_other_machines_stay(tmp_path, monkeypatch):
    """They may share the folder, but not see each other's locks."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(platform, "node", lambda: "this/one")
    for name in ("spinimpute-this_one-01234567.parts", "spinimpute-other-01234567.parts"):
        (tmp_path / name).mkdir()
    with temporary_folder() as folder:
        assert folder.name.startswith("spinimpute-this_one-")
    assert [path.name for path in tmp_path.iterdir()] == ["spinimpute-other-01234567.parts"]


def killed_at(step: int, run: Callable[[], object]) -> bool:
    """Whether a process, in which `run` is killed at its step-th change of names, got as far as that.

    Odd steps are before a change, even ones after it.
    """

    def child() -> None:
        done = 0

        def counted(change: Callable[..., None]) -> Callable[..., None]:
            def change_or_die(*names: object, **options: object) -> None:
                nonlocal done
                done += 1
                if done == step:
                    os._exit(9)
                change(*names, **options)
                done += 1
                if done == step:
                    os._exit(9)

            return change_or_die

        for name in ("replace", "rename", "unlink", "remove"):
            setattr(os, name, counted(getattr(os, name)))
        run()
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join()
    assert process.exitcode in (0, 9)
    return process.exitcode == 9


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".part"}


@pytest.mark.parametrize("name", ["o.pgen", "o.bgen", "o.vcf.gz", "o.bcf"])
def test_a_kill_leaves_no_files_of_two_runs(tmp_path, example_panel, name):
    """Other samples and sites: no file of the earlier run is one of the later."""
    lines = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
    few = [line if line.startswith("##") else line.rpartition("\t")[0] for line in lines[:-9]]
    (tmp_path / "few.vcf").write_text("\n".join(few) + "\n")
    out = tmp_path / "made" / name
    out.parent.mkdir()

    def run(target: Path) -> dict[str, bytes]:
        convert(target, out, example_panel, force=True)
        return files_of(out.parent)

    later, earlier = run(tmp_path / "few.vcf"), run(EXAMPLE / "target.vcf.gz")
    assert all(later[name] != content for name, content in earlier.items())
    step = 1
    while killed_at(step, lambda: run(tmp_path / "few.vcf")):
        left = files_of(out.parent)
        assert name not in left or left in (earlier, later), f"step {step} leaves {sorted(left)}"
        run(EXAMPLE / "target.vcf.gz")
        step += 1
    assert step > 6
    assert files_of(out.parent) == later
