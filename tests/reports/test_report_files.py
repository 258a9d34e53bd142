"""Report files of `impute`: allele frequencies and provenance on the page, figures, MultiQC's table."""

import gzip
import html
import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from xml.etree import ElementTree

import pandas as pd
import pytest

import spinimpute
from spinimpute.quality.summary import ImputationSummary
from spinimpute.reports.multiqc import SampleTable
from spinimpute.reports.page import Page
from spinimpute.reports.report_files import CHARTS, ReportFiles
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.partial_files import PartialFile

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "data" / "example"
TARGET = EXAMPLE / "target.vcf.gz"
N_SAMPLES, N_TYPED = 20, 246
Write = Callable[..., ImputationSummary]


@pytest.fixture
def panel(example_panel) -> Path:
    return example_panel.path


@pytest.fixture
def imputed(panel, tmp_path) -> Write:
    """imputed(target, force=..., **outputs): a run that writes what is asked for."""

    def run(target: Path = TARGET, force: bool = False, **outputs: Path | None) -> ImputationSummary:
        output = spinimpute.OutputSettings(**outputs)  # type: ignore[arg-type]
        return spinimpute.impute(target, tmp_path / "o.bcf", panel, output=output, force=force)

    return run


def changed(path: Path, change: Callable[[int, list[str]], list[str]]) -> Path:
    """The example's target with changed records; change(number, columns) gives the new columns."""
    lines = gzip.decompress(TARGET.read_bytes()).decode().splitlines()
    head = [line for line in lines if line.startswith("#")]
    records = [change(i, line.split("\t")) for i, line in enumerate(lines[len(head) :])]
    path.write_text("\n".join([*head, *("\t".join(record) for record in records)]) + "\n")
    return path


def section(page: Path, title: str) -> str:
    text = page.read_text()
    return text[text.index(f"<h2>{title}</h2>") :].partition("</section>")[0]


def cells(part: str) -> list[list[str]]:
    rows = re.findall(r"<tr>(.*?)</tr>", part.partition("<tbody>")[2].partition("</tbody>")[0])
    return [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)] for row in rows]


def test_sites_that_are_far_off_are_named(imputed, tmp_path):
    """Calls are exchanged at a few sites, as by a wrong strand; sites with a rare allele are detected."""
    turned: list[str] = []

    def exchange(number: int, record: list[str]) -> list[str]:
        calls = "".join(record[9:])
        if number % 10 or not 0 < calls.count("1") <= 4:
            return record
        turned.append(record[1])
        return record[:9] + [call.translate(str.maketrans("01", "10")) for call in record[9:]]

    target, page = changed(tmp_path / "t.vcf", exchange), tmp_path / "r.html"
    imputed(target, report=page)
    part = section(page, "Allele frequencies of target and panel")
    found = cells(part)
    assert len(turned) >= 3
    assert [row[0].partition(":")[2] for row in sorted(found, key=lambda row: int(row[0][3:]))] == turned
    assert f"at {N_TYPED} typed sites, of which {len(turned)} are far off" in part
    assert {row[-1].partition(":")[0] for row in found} == {"as common as the panel's other allele"}
    apart = [abs(float(row[3]) - float(row[4])) for row in found]
    assert apart == sorted(apart, reverse=True)
    assert len(re.findall("<use[^>]*fill: var\\(--second\\)", part)) == len(turned) + 1  # and the legend


def test_a_target_that_fits_has_none(imputed, tmp_path):
    imputed(report=tmp_path / "r.html")
    part = section(tmp_path / "r.html", "Allele frequencies of target and panel")
    assert "of which 0 are far off; their correlation is 0.9" in part
    assert "<table" not in part


def test_frequencies_of_one_person_say_little(imputed, tmp_path):
    one = tmp_path / "one.vcf"
    changed(one, lambda _, record: record[:10])
    lines = one.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("#CHROM"))
    lines[at] = "\t".join(lines[at].split("\t")[:10]) + "\n"
    one.write_text("".join(lines))
    imputed(one, report=tmp_path / "r.html")
    assert "A frequency from fewer than 40 alleles" in section(
        tmp_path / "r.html", "Allele frequencies of target and panel"
    )


def test_how_it_was_made(panel, tmp_path):
    page = tmp_path / "r.html"
    out = tmp_path / "o.vcf"
    done = subprocess.run(
        [
            sys.executable, "-m", "spinimpute", "impute", "--vcf", TARGET, "--panel", panel, "--out", out,
            "--format", "GT", "--report", page, "--quiet",
        ],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    shown = {row[0]: row[1] for row in cells(section(page, "How it was made"))}
    header = [line for line in out.read_text().splitlines() if line.startswith("##")]
    (command,) = [line.partition("=")[2] for line in header if line.startswith("##spinimpute_command=")]
    (model,) = [line.partition("=")[2] for line in header if line.startswith("##spinimpute_model=")]
    assert shown["command"] == command
    assert [word for word in shown["model"].replace(", ", " ").split() if word != "on"] == model.split()
    with spinimpute.Panel.open(panel) as opened:
        assert shown["panel's checksum"] == f"panel.spin: {opened.checksum}"
    assert shown["panel's source"].startswith("panel.spin: panel.vcf.gz, by spinimpute ")
    assert shown["genetic map"] == "panel.spin: genetic.map (PLINK, chromosome 20, 41 points)"
    assert shown["panel's genome build"] == shown["target's genome build"] == "not stated for chromosome 20"


def test_from_python_there_is_no_command(imputed, tmp_path):
    imputed(report=tmp_path / "r.html")
    shown = {row[0]: row[1] for row in cells(section(tmp_path / "r.html", "How it was made"))}
    assert shown["command"] == "none: called from Python"


def test_figures_are_the_charts_of_the_page(imputed, tmp_path):
    page, folder = tmp_path / "r.html", tmp_path / "figures"
    imputed(report=page, report_figures=folder)
    drawn = [path.name for path in sorted(folder.iterdir())]
    assert drawn == sorted(f"{name}.svg" for name in CHARTS)
    text = page.read_text()
    for path in folder.iterdir():
        figure = path.read_text()
        ElementTree.fromstring(figure)
        assert "var(" not in figure
        title = re.search("<title>(.*?)</title>", figure)
        assert title is not None
        assert f"<figcaption>{title[1]}</figcaption>" in text
        shapes = re.findall(r'<path d="[^"]+"', figure)
        assert shapes
        assert all(shape in text for shape in shapes)


def test_figures_without_a_page(imputed, tmp_path):
    imputed(report_figures=tmp_path / "figures")
    assert len(list((tmp_path / "figures").iterdir())) == len(CHARTS)
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.parametrize("name", ["", "-"])
def test_figures_need_a_name_for_their_folder(imputed, tmp_path, name):
    with pytest.raises(InputError, match="is not a folder for the figures"):
        imputed(report_figures=name)
    assert not list(tmp_path.glob("*.bcf"))


def test_figures_that_are_there_stay_without_force(imputed, panel, tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    mine, old, gone = folder / "mine.svg", folder / f"{CHARTS[0]}.svg", folder / "typed-sites.svg"
    for path in (mine, old, gone):
        path.write_text("old")
    with pytest.raises(InputError, match=r"\.svg already exists; use force=True"):
        imputed(report_figures=folder)
    assert old.read_text() == "old"
    spinimpute.impute_sequenced(
        tmp_path / "s.bcf",
        panel,
        spinimpute.SequencingSettings(TARGET),
        region=spinimpute.RegionSettings("20:1-100000"),
        output=spinimpute.OutputSettings(report_figures=folder),
        force=True,
    )
    assert mine.read_text() == "old"
    assert "<svg " in old.read_text()
    assert not gone.exists()  # of an earlier report: sequenced samples have no such chart


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({"multiqc": "samples.json"}, r"Give a name that ends in _mqc\.json, such as spinimpute_mqc\.json"),
        ({"report_figures": "none/figures"}, r"cannot be made: there is no folder .*none"),
        ({"report_figures": "file"}, r"file is not a folder"),
        ({"report_figures": "o.bcf"}, r"is both a file and the folder of the figures"),
        ({"report": "a_mqc.json", "multiqc": "a_mqc.json"}, r"to be written to the same file"),
    ],
)
def test_invalid_names_are_refused_before_work_starts(imputed, tmp_path, outputs, message):
    (tmp_path / "file").write_text("mine")
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=message):
        imputed(force=True, **{name: tmp_path / given for name, given in outputs.items()})
    assert sorted(tmp_path.iterdir()) == before


def test_the_table_of_samples(imputed, tmp_path):
    """A third of the calls of the last sample is missing, which only changes its own row."""

    def spoilt(number: int, record: list[str]) -> list[str]:
        return record if number % 3 else [*record[:-1], ".|."]

    path = tmp_path / "run_mqc.json"
    target = changed(tmp_path / "t.vcf", spoilt)
    summary = imputed(target, multiqc=path)
    content = json.loads(path.read_text())
    assert (content["id"], content["plot_type"]) == ("spinimpute_arrays", "table")
    data = content["data"]
    assert len(data) == N_SAMPLES
    *others, last = data.values()
    assert last["typed"] == N_TYPED - len(range(0, N_TYPED, 3))
    assert last["call_rate"] == pytest.approx(100 * last["typed"] / N_TYPED)
    assert {row["typed"] for row in others} == {N_TYPED}
    assert set(content["headers"]) >= set(last) > {"expected_r2", "r2"}
    assert summary.leave_one_out is not None
    for row in summary.leave_one_out.by_sample():
        assert data[row["sample"]]["r2"] == row["r2"]
        assert data[row["sample"]]["minor_concordance"] == pytest.approx(100 * row["minor_concordance"])


def test_inducing_panels_have_no_leave_one_out(panel, tmp_path):
    made, page, table = (tmp_path / name for name in ("p.spip", "r.html", "r_mqc.json"))
    with spinimpute.Panel.open(panel) as opened:
        spinimpute.build_inducing_panel(opened, made, TARGET, inducing_points=8).close()
    output = spinimpute.OutputSettings(report=page, multiqc=table)
    spinimpute.impute(TARGET, tmp_path / "o.bcf", made, output=output)
    data = json.loads(table.read_text())["data"]
    assert len(data) == N_SAMPLES
    assert all(set(row) == {"call_rate", "typed", "expected_r2"} for row in data.values())
    shown = cells(section(page, "Quality by sample"))
    assert [float(row[3]) for row in shown] == sorted(round(row["expected_r2"], 4) for row in data.values())
    (checksum,) = [row[1] for row in cells(section(page, "How it was made")) if "checksum" in row[0]]
    assert "at most 8 inducing points of the panel" in checksum


def test_the_expected_r2_is_about_the_true_one(panel, imputed, tmp_path):
    path = tmp_path / "run_mqc.json"
    imputed(multiqc=path)
    true = spinimpute.evaluate(EXAMPLE / "truth.vcf.gz", tmp_path / "o.bcf", panel, TARGET).by_sample
    expected = {sample: row["expected_r2"] for sample, row in json.loads(path.read_text())["data"].items()}
    both = pd.DataFrame(true).set_index("sample")[["pooled_r2"]].assign(expected=pd.Series(expected))
    assert both.expected.mean() == pytest.approx(both.pooled_r2.mean(), abs=0.02)
    assert both.corr("spearman").iloc[0, 1] > 0.8


def test_multiqc_shows_what_the_files_say(panel, imputed, tmp_path):
    if importlib.util.find_spec("multiqc") is None:
        pytest.skip("multiqc is not installed: pip install multiqc")
    runs = tmp_path / "runs"
    runs.mkdir()
    imputed(multiqc=runs / "arrays_mqc.json")
    spinimpute.impute_sequenced(
        tmp_path / "s.bcf",
        panel,
        spinimpute.SequencingSettings(TARGET),
        region=spinimpute.RegionSettings("20:1-100000"),
        output=spinimpute.OutputSettings(multiqc=runs / "sequenced_mqc.json"),
    )
    done = subprocess.run(
        [sys.executable, "-m", "multiqc", runs, "-o", tmp_path / "shown", "--no-ansi", "--no-version-check"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "shown" / "multiqc_report.html").is_file()
    for kind in ("arrays", "sequenced"):
        content = json.loads((runs / f"{kind}_mqc.json").read_text())
        shown = tmp_path / "shown" / "multiqc_data" / f"multiqc_{content['id']}_table.txt"
        table = pd.read_csv(shown, sep="\t", index_col="Sample")
        wanted = pd.DataFrame.from_dict(content["data"], orient="index")
        pd.testing.assert_frame_equal(
            table.sort_index(), wanted.sort_index(), check_names=False, check_dtype=False
        )


def test_charts_of_an_earlier_run_stay_if_this_one_fails(tmp_path):
    folder = tmp_path / "figures"
    folder.mkdir()
    earlier = folder / f"{CHARTS[0]}.svg"
    earlier.write_text("old")
    files = ReportFiles(None, folder, None)
    nothing = Page("title", "", [], "spinimpute")

    def fail() -> None:
        with ExitStack() as beside:
            files.write(nothing, SampleTable("i", "n", "d", (), {}), beside)
            raise OSError("the output has no room")

    with pytest.raises(OSError, match="the output"):
        fail()
    assert earlier.read_text() == "old"
    with ExitStack() as beside:
        files.write(nothing, SampleTable("i", "n", "d", (), {}), beside)
    assert not earlier.exists()


def test_a_killed_run_leaves_no_older_report(imputed, tmp_path, monkeypatch):
    """It is killed when its genotypes are complete and its report is not."""
    paths = {"report": tmp_path / "r.html", "multiqc": tmp_path / "r_mqc.json"}
    imputed(**paths)
    complete, completed = PartialFile.complete, []

    def complete_genotypes(file: PartialFile) -> None:
        if not file.final.name.startswith("o.bcf"):
            raise KeyboardInterrupt
        complete(file)
        completed.append(file.final)

    monkeypatch.setattr(PartialFile, "complete", complete_genotypes)
    with pytest.raises(KeyboardInterrupt):
        imputed(force=True, **paths)
    assert completed[-1] == tmp_path / "o.bcf"
    assert not any(path.exists() for path in paths.values())
