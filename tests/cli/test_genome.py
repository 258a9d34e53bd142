"""`spinimpute impute` with a panel and a target for each chromosome; the example serves as two of them."""

import gzip
import os
from pathlib import Path

import pytest

import spinimpute

from .conftest import records


def renamed(source: Path, out: Path, chrom: str) -> Path:
    """The example as if it were another chromosome."""
    text = gzip.decompress(source.read_bytes()).decode()
    out.write_text(text.replace("ID=20,", f"ID={chrom},").replace("\n20\t", f"\n{chrom}\t"))
    return out


@pytest.fixture(scope="module")
def other_panel(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("other")
    text = renamed(example / "panel.vcf.gz", folder / "panel.vcf", "21")
    spinimpute.build_panel(text, folder / "21.spin").close()
    return folder / "21.spin"


def test_each_chromosome_has_its_files(run, example, panel, other_panel, tmp_path):
    target = example / "target.vcf.gz"
    other = renamed(target, tmp_path / "21.vcf", "21")
    for vcf, one, name in ((target, panel, "a"), (other, other_panel, "b")):
        run.impute(vcf, one, tmp_path / f"{name}.vcf").ok()
    given = ("--panel", other_panel, "--panel", panel, "--vcf", other, "--vcf", target)
    done = run("impute", *given, "--out", tmp_path / "all.vcf").ok()
    apart = records(tmp_path / "a.vcf") + records(tmp_path / "b.vcf")
    assert records(tmp_path / "all.vcf") == apart
    assert f"written:  {len(apart)} sites" in done.err
    done = run("impute", *given, "--out", tmp_path / "c{chrom}.vcf", "-q")
    assert (done.code, done.err) == (0, "")
    assert records(tmp_path / "c20.vcf") + records(tmp_path / "c21.vcf") == apart


@pytest.mark.parametrize("command", ["phase", "convert"])
def test_folders_of_panels_for_other_commands(run, example, panel, other_panel, tmp_path, command):
    other = renamed(example / "target.vcf.gz", tmp_path / "21.vcf", "21")
    (tmp_path / "panels").mkdir()
    for one, name in ((panel, "20.spin"), (other_panel, "21.spin")):
        (tmp_path / "panels" / name).symlink_to(one)
    given = ("--panel", tmp_path / "panels", "--vcf", other, "--vcf", example / "target.vcf.gz")
    run(command, *given, "--out", tmp_path / "all.vcf").ok("written:  492 sites")
    run(command, *given, "--out", tmp_path / "c{chrom}.vcf", "-q").ok()
    assert records(tmp_path / "all.vcf") == records(tmp_path / "c20.vcf") + records(tmp_path / "c21.vcf")
    run(command, *given, "--out", tmp_path / "c{chrom}.vcf").refused("c20.vcf already exists")
    run(command, *given, "--out", tmp_path / "c{chr}.vcf").refused("unknown placeholder {chr}")
    run(command, *given, "--out", other, "--force").refused("it is also read from")


def test_a_folder_for_each_chromosome(run, example, panel, other_panel, tmp_path):
    other = renamed(example / "target.vcf.gz", tmp_path / "21.vcf", "21")
    given = ("--panel", other_panel, "--panel", panel, "--vcf", other, "--vcf", example / "target.vcf.gz")
    for chrom in ("20", "21"):
        (tmp_path / chrom).mkdir()
    run("impute", *given, "--out", tmp_path / "{chrom}" / "o.vcf", "--log", tmp_path / "log").ok()
    for chrom in ("20", "21"):
        assert {line.split("\t")[0] for line in records(tmp_path / chrom / "o.vcf")} == {chrom}


@pytest.mark.parametrize("name", ["o.{chr}.vcf", "{CHROM}/o.vcf", "{chrom}.{}.vcf", "o.{1}.vcf"])
def test_other_words_in_braces_are_refused(run, example, panel, tmp_path, name):
    """Before standard input is read, too."""
    for target in (example / "target.vcf.gz", "-"):
        done = run.impute(target, panel, tmp_path / name).refused("unknown placeholder {")
        assert done.err.endswith("give a name without braces\n")
    (tmp_path / "{run}").mkdir()
    out = tmp_path / "{run}" / "o.vcf"
    run.impute(example / "target.vcf.gz", panel, out).ok()


def test_hidden_files_in_a_folder_of_panels_are_ignored(run, example, panel, tmp_path):
    """macOS writes the attributes of panel.spin to ._panel.spin on some disks."""
    (tmp_path / "panels").mkdir()
    (tmp_path / "panels" / "20.spin").write_bytes(panel.read_bytes())
    (tmp_path / "panels" / "._20.spin").write_bytes(b"attributes")
    run.convert(example / "target.vcf.gz", tmp_path / "panels", tmp_path / "o.vcf").ok()


def test_the_folder_that_is_missing_is_named(run, example, panel, tmp_path):
    """Folders that are there may be called anything."""
    (tmp_path / "{run}").mkdir()
    for command in ("impute", "phase"):
        out = tmp_path / "{run}" / "sub" / "o.vcf"
        run(command, "--vcf", example / "target.vcf.gz", "--panel", panel, "--out", out).refused(
            f"there is no folder {out.parent}; create it"
        )


@pytest.mark.parametrize(
    "command",
    ["panel build --vcf {folder}/panel.vcf.gz", "ligate {folder}/a.vcf.gz", "panel merge a.spin b.spin"],
)
def test_outputs_of_other_commands_have_no_words_in_braces(run, example, tmp_path, command):
    words = command.replace("{folder}", str(example)).split()
    run(*words, "--out", tmp_path / "o.{chrom}.x").refused(
        "{chrom} is for the output of 'impute', 'phase' and 'convert'. Give a name without braces\n"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("option", "name"),
    [("--report", "r.{chrom}.html"), ("--multiqc", "{chrom}_mqc.json"), ("--report-figures", "{chr}")],
)
def test_there_is_one_report_for_all_chromosomes(run, example, panel, tmp_path, option, name):
    out, target = tmp_path / "o.{chrom}.vcf", example / "target.vcf.gz"
    for kind in ("--vcf", "--gl"):
        done = run("impute", kind, target, "--panel", panel, "--out", out, option, tmp_path / name).refused(
            "because all chromosomes have one report"
        )
        assert done.err.endswith("Give a name without braces.\n")
    assert not list(tmp_path.iterdir())


def test_files_of_an_earlier_run_are_named(run, example, panel, other_panel, tmp_path):
    """Those of chromosomes that are left out; they stay."""
    target = example / "target.vcf.gz"
    old = tmp_path / "c21.vcf"
    text = "of an earlier run"
    said = f"{old} is of an earlier run and is kept: this run leaves chromosome 21 out\n"
    given = ("--panel", other_panel, "--panel", panel, "--vcf", target, "--out", tmp_path / "c{chrom}.vcf")
    done = run("impute", *given).ok()
    assert "was there before" not in done.err
    old.write_text(text)
    run("impute", *given).refused(f"{tmp_path / 'c20.vcf'} already exists")
    done = run("impute", *given, "--force")
    assert (done.code, old.read_text()) == (0, text)
    assert said in done.err
    third = renamed(target, tmp_path / "22.vcf", "22")
    done = run("impute", *given, "--vcf", third, "--force")
    assert (done.code, old.read_text()) == (0, text)
    assert said in done.err
    assert "was there before" not in done.err.replace(said, "")
    done = run("impute", *given, "--vcf", third, "--region", "20:1-200000", "--force")
    assert (done.code, "left out" in done.err, "was there before" in done.err) == (0, False, False)


def test_bgen_holds_one_chromosome(run, example, panel, other_panel, tmp_path):
    target = example / "target.vcf.gz"
    other = renamed(target, tmp_path / "21.vcf", "21")
    given = ("--panel", other_panel, "--panel", panel, "--vcf", other, "--vcf", target)
    run("impute", *given, "--out", tmp_path / "all.bgen").refused(
        "all.bgen would hold 2 chromosomes, but .bgen files hold one. Put {chrom} in its name"
    )
    run("impute", *given, "--out", tmp_path / "c{chrom}.bgen").ok()
    assert {path.name for path in tmp_path.glob("*.bgen")} == {"c20.bgen", "c21.bgen"}


def test_standard_input_is_one_file(run, panel, tmp_path):
    run("impute", "--vcf", "-", "--vcf", "b.vcf", "--panel", panel, "--out", tmp_path / "o.vcf").refused(
        "--vcf is given several times: read standard input (-) alone"
    )


def test_panels_of_the_environment(run, example, panel, other_panel, tmp_path, monkeypatch):
    monkeypatch.setenv("SPINIMPUTE_PANEL", os.pathsep.join([str(panel), str(other_panel)]))
    run("impute", "--vcf", example / "target.vcf.gz", "--out", tmp_path / "o.vcf").ok(
        "warning: chromosome 21 is left out"
    )


def test_what_can_not_be_given_twice(run, example, panel, other_panel, tmp_path):
    out, target = tmp_path / "o.vcf", example / "target.vcf.gz"
    run("impute", "--vcf", target, "--panel", panel, "--panel", panel, "--out", out).refused(
        "panel.spin are the same: give one of them"
    )
    run("impute", "--vcf", target, "--vcf", target, "--panel", panel, "--out", out).refused(
        "both contain chromosome 20"
    )
    run("impute", "--gl", target, "--gl", target, "--panel", panel, "--out", out).refused(
        "both contain chromosome 20"
    )
    run.impute(target, panel, out, "--out", tmp_path / "p.vcf").refused("--out is given 2 times")
    assert not out.exists()


def test_some_samples_are_as_in_a_file_of_their_own(run, example, panel, tmp_path):
    lines = gzip.decompress((example / "target.vcf.gz").read_bytes()).decode().splitlines()
    head = next(line for line in lines if line.startswith("#CHROM")).split("\t")
    columns = [head.index(name) for name in (head[12], head[10])]
    own = tmp_path / "own.vcf"
    own.write_text(
        "".join(
            (
                line
                if line.startswith("##")
                else "\t".join([*(f := line.split("\t"))[:9], *(f[i] for i in columns)])
            )
            + "\n"
            for line in lines
        )
    )
    names = f"{head[12]},{head[10]}"
    listed = tmp_path / "names.txt"
    listed.write_text(names.replace(",", "\n"))
    given = ("--vcf", example / "target.vcf.gz", "--panel", panel)
    run.impute(own, panel, tmp_path / "a.vcf").ok()
    run("impute", *given, "--samples", names, "--out", tmp_path / "b.vcf").ok()
    run("impute", *given, "--samples-file", listed, "--out", tmp_path / "c.vcf").ok()
    assert records(tmp_path / "a.vcf") == records(tmp_path / "b.vcf") == records(tmp_path / "c.vcf")
    run("impute", *given, "--samples", "nobody", "--out", tmp_path / "d.vcf").refused(
        "not in the file: nobody"
    )
    for wrong in (f"{head[12]},,{head[10]}", "", f"{names},"):
        run("impute", *given, "--samples", wrong, "--out", tmp_path / "d.vcf").refused(
            f"--samples {wrong!r}: a name is empty"
        )
    run("impute", *given, "--samples", names, "--samples-file", listed, "--out", tmp_path / "d.vcf").refused(
        "Give one of them"
    )
