"""`spinimpute impute`: what it hands to the library, and files in, files out."""

import gzip
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import cyvcf2
import numpy as np
import pytest

from spinimpute.pipeline.settings import PredictorSettings, RegionSettings, Resources, TargetSettings
from spinimpute.quality.summary import ImputationSummary

Run = Callable[..., Any]

LIBRARY = "spinimpute.pipeline.impute.impute"


def test_windows_that_deserve_a_look(run, panel, dense_target, tmp_path):
    """All windows in one line, and a line for each in which few of the target's sites are panel sites."""
    lines = dense_target.read_text().splitlines()
    rows = [i for i, line in enumerate(lines) if line[0] != "#"]
    done = run.impute(dense_target, panel, tmp_path / "a.vcf", "--window-cm", "0.2").ok()
    (line,) = [line for line in done.err.splitlines() if line.startswith("windows:")]
    n_windows = int(re.fullmatch(r"windows:  (\d+), with [\d.]+% to [\d.]+% of their sites typed", line)[1])
    assert n_windows > 3
    for i in rows[600:1200]:  # the panel has no site with these alleles
        fields = lines[i].split("\t")
        lines[i] = "\t".join([*fields[:3], fields[3] + "TTT", fields[4] + "G", *fields[5:]])
    changed = tmp_path / "changed.vcf"
    changed.write_text("\n".join(lines) + "\n")
    done = run.impute(changed, panel, tmp_path / "b.vcf", "--window-cm", "0.2").ok()
    first, last = (int(lines[rows[i]].split("\t")[1]) for i in (600, 1199))
    found = re.findall(r"20:(\d+)-(\d+): only (\d+) of (\d+) typed sites are panel sites", done.err)
    assert found
    for start, end, n_matched, n_sites in np.array(found, int):
        inside = [i for i in rows if start <= int(lines[i].split("\t")[1]) <= end]
        assert (len(inside), sum(not 600 <= i - rows[0] < 1200 for i in inside)) == (n_sites, n_matched)
        assert start < last
        assert end > first


class TestArguments:
    def test_defaults(self, run):
        with mock.patch(LIBRARY, return_value=ImputationSummary()) as library:
            done = run.impute("t.vcf", "p.spin", "o.bcf")
        assert done.code == 0
        (vcf, out, panel), options = library.call_args
        assert [str(path) for path in (vcf, out, panel)] == ["t.vcf", "o.bcf", "p.spin"]
        output = options.pop("output")
        assert (tuple(output.formats), output.decimals) == (("GT", "DS"), 3)
        assert (output.output_type, output.keep_unmatched) == (None, False)
        assert (output.leave_one_out, output.report_files.is_requested) == (False, False)
        options.pop("progress")
        assert options == {
            "genetic_map": None,
            "predictor": PredictorSettings(),
            "target": TargetSettings(),
            "phasing": "auto",
            "region": RegionSettings(),
            "resources": Resources(),
            "min_typed_ratio": None,
            "force": False,
        }

    def test_everything(self, run):
        arguments = [
            "--vcf", "t.vcf", "--panel", "p.bcf", "-o", "o.x", "-O", "b", "--format", "ds,GT,HDS,GP",
            "-r", "20:5-9", "--map", "m.map", "--keep-unmatched", "--model", "w.safetensors",
            "--inducing-points", "64", "--window-cm", "3", "--threads", "3",
            "--device", "cpu", "--force", "--quiet", "--decimals", "4",
            "--report", "r.html", "--report-figures", "figures", "--multiqc", "r_mqc.json",
        ]  # fmt: skip
        with mock.patch(LIBRARY, return_value=ImputationSummary()) as library:
            done = run("impute", *arguments)
        assert (done.code, done.err) == (0, "")
        options = library.call_args.kwargs
        output = options["output"]
        assert tuple(output.formats) == ("GT", "DS", "HDS", "GP")  # VCF wants GT first
        assert (output.output_type, output.keep_unmatched, output.decimals) == ("b", True, 4)
        assert (output.report, output.report_figures, output.multiqc) == ("r.html", "figures", "r_mqc.json")
        assert str(options["genetic_map"]) == "m.map"
        chosen = {"inducing_points": 64, "window_cM": 3.0}
        assert options["predictor"] == PredictorSettings(model="w.safetensors", options=chosen)
        assert options["region"] == RegionSettings("20:5-9")
        assert options["resources"] == Resources(3, "cpu")
        assert options["force"] is True

    def test_inducing_points_say_that_they_select_spin(self, run, example, panel, tmp_path):
        given = (example / "target.vcf.gz", panel, tmp_path / "o.vcf", "--region", "20:1-20000", "--force")
        warning = (
            "--inducing-points selected the predictor spin in place of haplotype, which is more accurate. "
            "Leave the option out, or give --predictor spin"
        )
        done = run.impute(*given, "--inducing-points", "8", "-q").ok()
        assert done.err.count(warning) == 1
        done = run.impute(*given, "--inducing-points", "8", "--predictor", "spin", "-q").ok()
        assert "selected" not in done.err

    def test_a_budget_is_a_size(self, run):
        with mock.patch(LIBRARY, return_value=ImputationSummary()) as library:
            run.impute("t", "p.spin", "o.vcf", "--max-memory", "2G")
        assert library.call_args.kwargs["resources"] == Resources(max_memory=2 * 2**30)
        assert library.call_args.kwargs["predictor"] == PredictorSettings()

    def test_panel_of_the_environment(self, run, monkeypatch):
        monkeypatch.setenv("SPINIMPUTE_PANEL", "env.spin")
        for given, used in ([], "env.spin"), (["--panel", "own.spin"], "own.spin"):
            with mock.patch(LIBRARY, return_value=ImputationSummary()) as library:
                run("impute", "--vcf", "t.vcf", "--out", "o.bcf", *given)
            assert str(library.call_args.args[2]) == used
            lines = library.call_args.kwargs["output"].header_lines
            assert any(f"--panel {used}" in line for line in lines)

    @pytest.mark.parametrize("value", [None, ""])
    def test_no_panel_says_how_to_get_one(self, run, monkeypatch, value):
        if value is not None:
            monkeypatch.setenv("SPINIMPUTE_PANEL", value)
        failed = run("impute", "--vcf", "t.vcf", "--out", "o.vcf.gz").refused()
        assert failed.err.startswith("spinimpute: error: no ")
        for hint in ("SPINIMPUTE_PANEL", "1000 Genomes", "spinimpute panel build --vcf"):
            assert hint in failed.err

    @pytest.mark.parametrize("decimals", ["0", "6", "2.5", "x"])
    def test_bad_decimals(self, run, decimals):
        run.impute("t", "p.spin", "o.vcf", "--decimals", decimals).refused("--decimals")

    @pytest.mark.parametrize("formats", ["XX", "GT,GT", "", "GT,,DS", "GT DS"])
    def test_bad_format(self, run, formats):
        failed = run.impute("t", "p.spin", "o.vcf", "--format", formats).refused()
        assert failed.err.startswith("spinimpute: error: --format")
        assert "HDS" in failed.err or "twice" in failed.err

    def test_summary_and_its_warnings(self, run):
        summary = ImputationSummary(samples=3, warnings=["look out"])
        for quiet in [], ["--quiet"]:
            with mock.patch(LIBRARY, return_value=summary):
                done = run.impute("t", "p.spin", "o.vcf", *quiet)
            assert done.out == ""
            assert "spinimpute: warning: look out\n" in done.err
            assert ("3 samples" in done.err) is not bool(quiet)


class TestHeaderLine:
    def lines(self, run: Run, *arguments: object) -> list[str]:
        with mock.patch(LIBRARY, return_value=ImputationSummary()) as library:
            done = run("impute", *arguments)
        assert done.code == 0
        return list(library.call_args.kwargs["output"].header_lines)

    def test_only_what_influences_the_result(self, run):
        common = ["--vcf", "t.vcf", "--panel", "p.spin", "--region", "20"]
        plain = self.lines(run, *common, "--out", "a.bcf")
        for idle in (
            ["--out", "b.bcf", "--threads", "2", "--quiet", "--force", "--device", "cpu"],
            ["--out=b.bcf", "--threads=2"],
            ["-ob.bcf"],
            ["-o", "b.bcf"],
        ):
            assert self.lines(run, *common, *idle) == plain
        assert self.lines(run, "--vcf", "t.vcf", "--panel", "p.spin", "--out", "a.bcf") != plain
        assert "##spinimpute_command=spinimpute impute --vcf t.vcf --panel p.spin --region 20" in plain

    def test_an_option_that_is_repeated(self, run, tmp_path):
        reads = ["--bam", "a.bam", "--bam", "b c.bam"]
        with mock.patch("spinimpute.pipeline.sequenced.impute.impute_sequenced") as library:
            library.return_value.warnings = []
            run("impute", *reads, "--panel", "p.spin", "--out", tmp_path / "o.bcf", "--quiet")
        (line,) = library.call_args.kwargs["output"].header_lines
        assert line.endswith("impute --bam a.bam --bam 'b c.bam' --panel p.spin")

    @pytest.mark.parametrize("name", ["a\nb.vcf", "a\r\n##x.vcf", "a\tb.vcf", "a b.vcf", "a\u2028b.vcf"])
    def test_strange_names_stay_on_one_line(self, run, name):
        for line in self.lines(run, "--vcf", name, "--panel", "p.spin", "--out", "o.bcf"):
            assert len(line.splitlines()) == 1
            assert "\t" not in line

    def test_names_are_not_changed(self, run):
        """Two blanks are another name than one."""
        (line, *_) = self.lines(run, "--vcf", "a  b.vcf", "--panel", "p.spin", "--out", "o.bcf")
        assert "'a  b.vcf'" in line

    def test_a_name_that_is_not_text(self, script, example, panel, tmp_path):
        copy = tmp_path / os.fsdecode(b"panel\xff.spin")
        copy.write_bytes(panel.read_bytes())
        target, out = example / "target.vcf.gz", tmp_path / "o.vcf"
        done = script.impute(target, copy, out, "--region", "20:1-50000")
        assert "Traceback" not in done.err
        assert done.code == 0
        assert "\\xff" in out.read_text().partition("##spinimpute_command=")[2].partition("\n")[0]


class TestEndToEnd:
    @pytest.mark.parametrize("suffix", [".vcf.gz", ".bcf", ".vcf"])
    def test_output_is_readable(self, run, example, panel, tmp_path, suffix):
        out = tmp_path / f"o{suffix}"
        region = ("--region", "chr20:1-200000", "--format", "GT,DS,GP")
        run.impute(example / "target.vcf.gz", panel, out, *region).ok("20 samples")
        vcf = cyvcf2.VCF(str(out))
        assert len(vcf.samples) == 20
        records = list(vcf)
        assert {record.FORMAT[0] for record in records} == {"GT"}
        assert all(record.FORMAT == ["GT", "DS", "GP"] for record in records)
        at = [record.POS for record in records]
        assert at == [v.POS for v in cyvcf2.VCF(str(example / "panel.vcf.gz")) if v.POS <= 200_000]
        index = {".vcf.gz": [".tbi"], ".bcf": [".csi"], ".vcf": []}[suffix]
        assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
            [out.name, *(out.name + i for i in index)]
        )

    def test_output_type_without_a_known_suffix(self, run, example, panel, tmp_path):
        target, out = example / "target.vcf.gz", tmp_path / "imputed.genotypes"
        run.impute(target, panel, out).refused("has no known format")
        assert not list(tmp_path.iterdir())
        done = run.impute(target, panel, out, "-O", "b", "--region", "20:1-50000", "--quiet")
        assert (done.code, done.err) == (0, "")
        assert gzip.decompress(out.read_bytes()).startswith(b"BCF")

    def test_panel_from_a_vcf(self, run, example, panel, tmp_path):
        outs = [tmp_path / "spin.vcf", tmp_path / "vcf.vcf"]
        region = ("--region", "20:1-100000")
        run.impute(example / "target.vcf.gz", panel, outs[0], *region)
        with_map = ("--map", example / "genetic.map", *region)
        done = run.impute(example / "target.vcf.gz", example / "panel.vcf.gz", outs[1], *with_map).ok()
        assert "warning" not in done.err
        first, second = (
            [line for line in out.read_text().splitlines() if "spinimpute_command" not in line]
            for out in outs
        )
        assert first == second

    def test_prefix_of_the_chromosome(self, run, example, panel, tmp_path, edited_target):
        prefixed = edited_target(
            lambda text: re.sub(r"^20\t", "chr20\t", text.replace("ID=20", "ID=chr20"), flags=re.M)
        )
        outs = [tmp_path / "a.vcf", tmp_path / "b.vcf"]
        for target, out in zip((example / "target.vcf.gz", prefixed), outs, strict=True):
            run.impute(target, panel, out, "--region", "20:1-100000").ok()
        records = [[line for line in out.read_text().splitlines() if line[0] != "#"] for out in outs]
        assert records[0] == records[1]

    def test_unmatched_sites(self, run, example, panel, tmp_path, edited_target):
        def with_insertion(text: str) -> str:
            first = next(line for line in text.splitlines() if line.startswith("20\t"))
            columns = first.split("\t")
            columns[1:5] = [str(int(columns[1]) + 1), "new", "A", "ACGT"]
            return text.replace(first, first + "\n" + "\t".join(columns))

        target, out = edited_target(with_insertion), tmp_path / "o.vcf"
        region = ("--region", "20:1-100000", "--force")
        done = run.impute(target, panel, out, *region)
        assert "1 not matched: " in done.err
        assert "\tnew\t" not in out.read_text()
        run.impute(target, panel, out, *region, "--keep-unmatched").ok()
        assert out.read_text().count("\tnew\t") == 1


class TestRefusals:
    """Exit 2, a message that starts with our name, nothing written."""

    @pytest.fixture
    def refused(self, script: Run, run: Run, example: Path, panel: Path, tmp_path: Path) -> Run:
        def impute(**given: object) -> str:
            """Impute with these options; the message."""
            options = {"vcf": example / "target.vcf.gz", "panel": panel, "out": tmp_path / "out" / "o.vcf.gz"}
            (tmp_path / "out").mkdir(exist_ok=True)
            before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
            arguments = [
                text for name, value in (options | given).items() for text in (f"--{name}", str(value))
            ]
            failed = run("impute", *arguments).refused()
            assert failed.out == ""
            assert failed.err.count("spinimpute: error: ") == 1
            assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
            return str(failed.err)

        return impute

    def test_existing_output(self, refused, tmp_path):
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "o.vcf.gz").write_text("precious")
        assert "already exists; use --force to overwrite" in refused()

    def test_missing_files(self, refused, tmp_path):
        absent = tmp_path / "absent"
        assert f"target {absent}.vcf.gz: there is no such file" in refused(vcf=f"{absent}.vcf.gz")
        assert f"{absent}.spin" in refused(panel=f"{absent}.spin")
        assert f"{absent}.bcf" in refused(panel=f"{absent}.bcf")
        assert f"{absent}.safetensors: there is no such file" in refused(model=f"{absent}.safetensors")
        assert "there is no folder" in refused(out=absent / "o.vcf.gz")
        assert "folder" in refused(vcf=tmp_path)

    def test_missing_map(self, refused, example, tmp_path):
        assert "absent.map" in refused(panel=example / "panel.vcf.gz", map=tmp_path / "absent.map")

    def test_map_with_a_panel_file(self, refused, example):
        assert "has its genetic map in it" in refused(map=example / "genetic.map")

    @pytest.mark.parametrize(
        ("region", "said"),
        [
            ("20:9-5", "the region '20:9-5' is empty"),
            ("20:x-y", "cannot read the region"),
            ("", "cannot read the region"),
            ("21:1-5", "the panel is of chromosome"),
            ("20:5000000-6000000", "no site in"),
        ],
    )
    def test_bad_region(self, refused, region, said):
        assert said in refused(region=region)

    def test_unphased_target(self, refused, edited_target):
        message = refused(vcf=edited_target(lambda text: text.replace("0|1", "0/1")), phasing="never")
        assert "unphased heterozygote. Phase the file first" in message
        assert "sample target_" in message
        assert "20:" in message

    def test_foreign_model(self, refused, panel):
        assert "not a readable safetensors file" in refused(model=panel)

    def test_no_cuda(self, refused):
        with mock.patch("torch.cuda.is_available", return_value=False):
            assert "no CUDA device is available" in refused(device="cuda")

    @pytest.mark.parametrize("predictor", ["haplotype", "spin"])
    @pytest.mark.parametrize("length", ["0", "nan"])
    def test_impossible_windows(self, refused, predictor, length):
        said = refused(predictor=predictor, **{"window-cm": length})
        assert "a window must have a positive length" in said

    @pytest.mark.parametrize("predictor", ["haplotype", "spin"])
    def test_more_windows_than_anyone_wants(self, refused, predictor):
        said = refused(predictor=predictor, **{"window-cm": "1e-6"})
        assert "windows of 1e-06 cM would be more than 100,000" in said

    @pytest.mark.parametrize(
        ("predictor", "given"), [("haplotype", "inducing-points"), ("spin", "max-memory")]
    )
    def test_options_of_another_predictor(self, refused, predictor, given):
        chosen = {} if predictor is None else {"predictor": predictor}
        said = refused(**chosen, **{given: "7"})
        assert f"the predictor {predictor or 'haplotype'!r} does not take --{given}" in said

    def test_a_name_that_is_too_long(self, refused, tmp_path):
        refused(vcf=tmp_path / ("x" * 300))
        refused(panel=tmp_path / ("x" * 300 + ".spin"))
        refused(out=tmp_path / ("x" * 300 + ".bcf"))


@pytest.mark.parametrize("called", [True, False])
def test_stretches_without_typed_sites_are_told(run, panel, edited_target, tmp_path, called):
    """Typed are a few sites at one end; the panel's other end is more than 0.5 cM away, or not called."""

    def few(text: str) -> str:
        lines = text.splitlines(keepends=True)
        last = text.count("\n#") + 41
        return "".join(lines[:last] + ([] if called else [re.sub(r"\d\|\d", "./.", x) for x in lines[last:]]))

    target = edited_target(few)
    out, page = tmp_path / "o.vcf", tmp_path / "o.html"
    common = ("impute", "--vcf", target, "--panel", panel, "--out", out)
    done = run(*common, "--report", page).ok()
    told = r"warning: hardly any site is typed in 20:(\d+)-(\d+) \(0 typed and (\d+) imputed sites\)"
    warning = re.search(told, done.err)
    assert warning is not None
    start, end, n_sites = map(int, warning.groups())
    far = [record.POS for record in cyvcf2.VCF(str(out)) if record.INFO.get("FAR")]
    assert [far[0], far[-1], len(far)] == [start, end, n_sites]
    stretch = f"20:{start}-{end} (0 typed and {n_sites} imputed sites)"
    assert f"untyped:  {stretch}" in done.err
    assert f"20:{start}-{end}</td>" in page.read_text()
    assert f"typed in {stretch}" in run("check", "--vcf", target, "--panel", panel).out
    out.unlink()
    run(*common, "--min-typed-ratio", 0.05).refused("in 20:", "--min-typed-ratio requires 5.0000%")
    assert not out.exists()
    run(*common, "--min-typed-ratio", 0.005).ok()
