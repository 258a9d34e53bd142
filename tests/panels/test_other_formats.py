"""Panels in the formats of other programs are refused with the command that converts them."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import spinimpute
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.panels.file_kind import check_panel_output
from spinimpute.panels.opening import open_reference
from spinimpute.runtime.errors import InputError
from tests.panels.panel_formats import (
    MAP,
    first_sites,
    read_vcf,
    write_bytes,
    write_hap_legend,
    write_m3vcf,
    write_vcf_text,
)

pytestmark = pytest.mark.slow

# name, content and a part of the message
FILES = [
    ("panel.bref3", b"\x7a\x88\x74\xf4\0", r"Beagle .* java -jar unbref3.jar {} > panel.vcf"),
    ("panel.msav", b"\x28\xb5\x2f\xfd\0", "Minimac4 .* sav export {} panel.vcf.gz"),
    ("panel.haps", b"20 rs1 10 A C 0 1 1 0\n", "SHAPEIT .* plink2 --haps {} ref-first --sample"),
    ("panel.hap", b"0 1 1 0\n", "IMPUTE.* spinimpute panel build --hap FILE --legend FILE --sample FILE"),
    ("panel.legend", b"id position a0 a1\n", "IMPUTE.* spinimpute panel build --hap FILE"),
]


@pytest.mark.parametrize(("name", "content", "said"), FILES)
@pytest.mark.parametrize("renamed", ["", "panel", "packed.gz"])
def test_formats_are_refused_with_a_conversion(
    tmp_path: Path, name: str, content: bytes, said: str, renamed: str
) -> None:
    path = write_bytes(tmp_path / (renamed or name), content)
    with pytest.raises(InputError, match=said.format(path)):
        compile_panel(BuildJob(path, tmp_path / "p.spin", MAP))
    with pytest.raises(InputError, match=said.format(path)), open_reference(path):
        pass


def test_formats_that_are_recognized_by_their_names(tmp_path: Path) -> None:
    for name, said in (
        ("panel.vcf.zst", "packed with Zstandard. Unpack it"),
        ("panel.imp5", "IMPUTE5 .* Give the VCF or BCF from which imp5Converter made it"),
    ):
        (tmp_path / name).write_bytes(b"\x28\xb5\x2f\xfd\0" if name.endswith(".zst") else b"any")
        with pytest.raises(InputError, match=said):
            compile_panel(BuildJob(tmp_path / name, tmp_path / "p.spin", MAP))


@pytest.mark.parametrize("program", ["bref3", "minimac4"])
def test_files_of_the_programs_are_recognized(
    run, example: Path, tmp_path: Path, program: str, index: Callable[[Path], None]
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    vcf = tmp_path / "p.bcf"
    subprocess.run(["bcftools", "view", example / "panel.vcf.gz", "-t", "20:1-30000", "-o", vcf], check=True)
    path = tmp_path / "panel"
    if program == "bref3":
        text = subprocess.check_output(["bcftools", "view", vcf])
        path.write_bytes(subprocess.check_output(["bref3"], input=text))
    else:
        index(vcf)
        subprocess.run(["minimac4", "--compress-reference", vcf, "-o", path], check=True)
    done = run("impute", "--vcf", example / "target.vcf.gz", "--panel", path, "-o", tmp_path / "o.vcf")
    assert (done.code, done.out) == (2, "")
    assert {"bref3": "a panel of Beagle", "minimac4": "a panel of Minimac4"}[program] in done.err


def test_panels_do_not_get_the_names_of_other_formats(
    run, example: Path, example_panel: spinimpute.Panel, example_halves: list[Path], tmp_path: Path
) -> None:
    vcf, array = example / "panel.vcf.gz", example / "array.txt"
    points = ["panel", "build", "--vcf", example_panel.path, "--inducing", 4, "--array", array]
    for name in ("p.vcf.gz", "p.BCF", "p.spip"):
        for words in (
            ["panel", "build", "--vcf", vcf],
            ["panel", "tune", "--panel", example_panel.path, "--array", array],
            ["panel", "merge", *example_halves],
        ):
            if words[1] == "build" and name == "p.spip":
                continue
            done = run(*words, "-o", tmp_path / name)
            assert (done.code, done.out) == (2, "")
            said = f"cannot write {tmp_path / name}: the name is that of another format. Name a panel of"
            assert said in done.err
    for name in ("p.vcf", "p.spin"):
        done = run(*points, "-o", tmp_path / name)
        assert (done.code, done.out) == (2, "")
        assert "the name is that of another format. Name an inducing panel .spip" in done.err
    for name in (
        "p.bcf",
        "p.pgen",
        "p.bgen",
        "p.m3vcf.gz",
        "p.msav",
        "p.bref3",
        "p.imp5",
        "p.hap",
        "p.txt",
        "p.tsv.gz",
    ):
        with pytest.raises(InputError, match="the name is that of another format"):
            check_panel_output(tmp_path / name, False, [])
    assert list(tmp_path.iterdir()) == []
    for name in ("p", "p.panel", "vcf", "p.spin"):
        assert check_panel_output(tmp_path / name, False, []) == tmp_path / name


def test_m3vcf_where_a_vcf_is_accepted(run, example: Path, tmp_path: Path) -> None:
    vcf = write_vcf_text(tmp_path / "p.vcf", first_sites(example / "panel.vcf.gz", 1_000))
    m3vcf = write_m3vcf(tmp_path / "p.m3vcf.gz", read_vcf(vcf), 2, 50)
    target = example / "target.vcf.gz"
    imputed = shutil.copy(example / "truth.vcf.gz", tmp_path / "imputed.vcf.gz")
    for number, panel in enumerate((vcf, m3vcf)):
        done = run("check", "--vcf", target, "--panel", panel, "-o", tmp_path / f"{number}.tsv")
        assert done.code == 0, done.err
        done = run("convert", "--vcf", target, "--panel", panel, "-q", "-o", tmp_path / f"{number}.vcf")
        assert done.code == 0, done.err
        done = run(
            "evaluate", "--panel", panel, "--truth", example / "truth.vcf.gz", "--typed", target,
            "--imputed", imputed, "-q", "-o", tmp_path / f"{number}",
        )  # fmt: skip
        assert done.code == 0, done.err
    tables = [sorted((tmp_path / str(number)).glob("*.tsv")) for number in range(2)]
    assert len(tables[0]) > 1
    assert [one.read_text() for one in tables[0]] == [one.read_text() for one in tables[1]]
    assert (tmp_path / "0.tsv").read_text() == (tmp_path / "1.tsv").read_text()
    records = [
        [line for line in (tmp_path / f"{i}.vcf").read_text().splitlines() if not line.startswith("##")]
        for i in range(2)
    ]
    assert records[0] == records[1]


def test_impute_from_the_haplotypes_of_impute_names_the_command(run, example: Path, tmp_path: Path) -> None:
    files = write_hap_legend(tmp_path, first_sites(example / "panel.vcf.gz", 20), ".gz")
    for panel in (files.hap, files.legend):
        done = run("impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "-o", tmp_path / "o.vcf")
        assert (done.code, done.out) == (2, "")
        assert "spinimpute panel build --hap FILE --legend FILE --sample FILE --chromosome CHR" in done.err
