"""`spinimpute impute --gl` and `--bam`: what is handed to the library, and files in, files out."""

import gzip
import os
from pathlib import Path
from unittest import mock

import cyvcf2
import numpy as np

import spinimpute
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import RegionSettings, Resources
from spinimpute.quality.summary import SequencedSummary
from spinimpute.sequencing.likelihoods import GenotypeLikelihoods
from spinimpute.sequencing.pileup import PileupSettings

LIBRARY = "spinimpute.pipeline.sequenced.impute.impute_sequenced"


def numbers(path: Path) -> tuple[list[int], np.ndarray]:
    """Positions and dosages."""
    vcf = cyvcf2.VCF(str(path))
    found = [(v.POS, v.format("DS")[:, 0]) for v in vcf]
    vcf.close()
    return [position for position, _ in found], np.array([dosage for _, dosage in found])


def summary_of_one() -> SequencedSummary:
    summary = SequencedSummary()
    phred_SX3 = np.array([[[0, 3, 30]]], np.uint8)
    summary.count(GenotypeLikelihoods(["one"], np.array([2], np.uint8), np.array([4]), phred_SX3, None, 1), 2)
    return summary


class TestArguments:
    def test_defaults(self, run):
        with mock.patch(LIBRARY, return_value=summary_of_one()) as library:
            done = run("impute", "--gl", "g.vcf", "--panel", "p.spin", "--out", "o.bcf")
        assert done.code == 0, done.err
        (out, panel, given), options = library.call_args
        assert (str(out), str(panel)) == ("o.bcf", "p.spin")
        assert given == SequencingSettings(
            "g.vcf", [], None, None, PileupSettings(10, 10, 40), None, names=[]
        )
        output = options.pop("output")
        assert (tuple(output.formats), output.decimals, output.output_type) == (("GT", "DS"), 3, None)
        assert not output.report_files.is_requested
        options.pop("progress")
        assert options == {
            "genetic_map": None,
            "region": RegionSettings(),
            "resources": Resources(),
            "force": False,
        }

    def test_everything(self, run, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        for name in ("c.bam", "d e.cram"):
            (tmp_path / name).touch()
        listed, sex = tmp_path / "list", tmp_path / "sex"
        listed.write_text("\nc.bam\n  d e.cram \tMr D\n")
        sex.write_text("one M\n")
        arguments = [
            "--gl", "g.vcf", "--bam", "a.bam", "--bam", "b.bam", "--bam-list", listed, "--reference", "r.fa",
            "--min-mapping-quality", 3, "--min-base-quality", 4, "--max-depth", 5, "--indels", "--sex", sex,
            "--panel", "p.bcf", "-o", "o.x", "-O", "b", "--format", "gp,GT", "-r", "20:5-9", "--buffer", 2,
            "--map", "m.map", "--threads", 3, "--force", "--quiet", "--decimals", 4, "--report", "r.html",
            "--report-figures", "figures", "--multiqc", "r_mqc.json", "--max-memory", "2G",
        ]  # fmt: skip
        with mock.patch(LIBRARY, return_value=summary_of_one()) as library:
            done = run("impute", *arguments)
        assert (done.code, done.err) == (0, "")
        given, options = library.call_args.args[2], library.call_args.kwargs
        assert list(given.alignments) == ["a.bam", "b.bam", "c.bam", "d e.cram"]
        assert list(given.names) == [None, None, None, "Mr D"]
        assert (given.likelihoods, given.reference) == ("g.vcf", "r.fa")
        assert given.pileup == PileupSettings(3, 4, 5, indels=True)
        assert given.sexes == {"one": True}
        assert tuple(options["output"].formats) == ("GT", "GP")
        assert (options["output"].output_type, options["output"].decimals) == ("b", 4)
        output = options["output"]
        assert (output.report, output.report_figures, output.multiqc) == ("r.html", "figures", "r_mqc.json")
        assert options["region"] == RegionSettings("20:5-9", 2)
        assert options["resources"] == Resources(3, max_memory=2 * 2**30)
        assert options["genetic_map"] == "m.map"
        assert options["force"] is True

    def test_nothing_is_loaded_for_the_help(self, run):
        done = run("impute", "--help").ok()
        for option in ("--gl", "--bam", "--bam-list", "--reference", "--max-depth", "--min-base-quality"):
            assert option in done.out


# files in, files out


def test_likelihoods(run, truth, gl, small_panel, tmp_path):
    out = tmp_path / "o.vcf.gz"
    done = run("impute", "--gl", gl, "--panel", small_panel, "--out", out, "--threads", 1).ok(
        "target:   5 samples"
    )
    assert done.err.count("reads per site, none at") == 5
    assert f"output:   {out}" in done.err
    position, dosage_SX = numbers(out)
    _, sites, genotype_SX = truth
    assert position == [p for p, _, _ in sites]
    assert np.corrcoef(dosage_SX.ravel(), genotype_SX.ravel())[0, 1] > 0.95
    with gzip.open(out, "rt") as file:
        (command,) = [line for line in file if line.startswith("##spinimpute_command=")]
    assert f"--gl {gl}" in command
    assert "--threads" not in command
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.vcf.gz", "o.vcf.gz.tbi"]


def test_reads_and_a_list_of_them(run, truth, bam, write_reads, small_panel, tmp_path):
    two = write_reads(tmp_path / "two.bam", truth[1][::2], "two")
    listed = tmp_path / "list"
    listed.write_text(f"# two people\n{bam}\n  # the other one\n{two}\n")
    given = (["--bam", bam, "--bam", two], ["--bam-list", listed], ["--bam", bam, "--bam-list", listed])
    texts = []
    for i, options in enumerate(given[:2]):
        out = tmp_path / f"o{i}.vcf"
        done = run("impute", *options, "--panel", small_panel, "--out", out, "-t", 1, "--quiet")
        assert (done.code, done.err) == (0, "")
        texts.append([line for line in out.read_text().splitlines() if not line.startswith("##")])
    assert texts[0] == texts[1]
    assert texts[0][0].split("\t")[9:] == ["one", "two"]
    assert len(texts[0]) == len(truth[1]) + 1
    listed.write_text(f"{bam}\tMr One\n{two}\n")
    run("impute", "--bam-list", listed, "--panel", small_panel, "--out", tmp_path / "n.vcf", "-t", 1).ok()
    lines = [line for line in (tmp_path / "n.vcf").read_text().splitlines() if not line.startswith("##")]
    assert lines[0].split("\t")[9:] == ["Mr One", "two"]
    assert lines[1:] == texts[0][1:]
    listed.write_text(f"{bam}\n{two}\n")
    run("impute", *given[2], "--panel", small_panel, "--out", tmp_path / "twice.vcf").refused(
        f"reads {bam}: the file is given twice. Give it once."
    )


def test_a_file_name_that_is_no_text(run, truth, write_reads, small_panel, tmp_path):
    """It names the sample where no read group does, in the output and in the report."""
    written = write_reads(tmp_path / "x.bam", truth[1], " ")
    path = tmp_path / os.fsdecode(b"caf\xe9.bam")
    os.rename(f"{written}.bai", f"{path}.bai")
    os.rename(written, path)
    out, report = tmp_path / "o.vcf", tmp_path / "report.html"
    run("impute", "--bam", path, "--panel", small_panel, "--out", out, "--report", report).ok(
        r"coverage: caf\xe9: "
    )
    assert "\tFORMAT\tcaf\\xe9\n" in out.read_text()
    assert report.exists()


def test_a_panel_whose_header_states_another_build(run, truth, write_reads, small_panel, tmp_path):
    """As panels that were lifted over and kept their old header line: the reads decide."""
    sites = [site for site in truth[1] if len(site[1]) == len(site[2]) == 1]
    for length, name in ((1_000_000, "a"), (64_444_167, "b")):
        path = write_reads(tmp_path / f"{name}.bam", sites, "one", length)
        done = run("impute", "--bam", path, "--panel", small_panel, "--out", tmp_path / f"{name}.vcf").ok()
    assert done.err.count("the panel's header line (##contig=<ID=20,") == 1
    one, other = (numbers(tmp_path / f"{name}.vcf") for name in "ab")
    assert one[0] == other[0]
    np.testing.assert_array_equal(one[1], other[1])


def test_qualities_and_depth_reach_the_reads(run, bam, small_panel, tmp_path):
    for option, value in (("--min-base-quality", 21), ("--min-mapping-quality", 61)):
        run(
            "impute", "--bam", bam, "--panel", small_panel, "--out", tmp_path / "o.vcf", option, value
        ).refused("no base can be used")


def test_regions_are_joined(run, gl, small_panel, tmp_path):
    outs = []
    for region in ("20:1-150000", "20:150001-300000"):
        outs.append(tmp_path / f"{region.replace(':', '_')}.vcf.gz")
        done = run(
            "impute", "--gl", gl, "--panel", small_panel, "--out", outs[-1], "-r", region, "-t", 1, "-q"
        )
        assert (done.code, done.err) == (0, "")
    whole = tmp_path / "whole.vcf.gz"
    run("ligate", *outs, "--out", whole).ok()
    position, _ = numbers(whole)
    assert position == sorted(position)
    with spinimpute.Panel.open(small_panel) as panel:
        assert position == panel.position.tolist()


def test_one_file_as_likelihoods_and_as_array(run, gl, small_panel, tmp_path):
    twin = tmp_path / "twin.vcf"
    twin.symlink_to(gl)
    run("impute", "--gl", gl, "--vcf", twin, "--panel", small_panel, "--out", tmp_path / "o.vcf").refused(
        f"{gl} is given as array genotypes (--vcf) and as likelihoods (--gl), so its data would count "
        "twice. Give it once"
    )
    assert not (tmp_path / "o.vcf").exists()


def test_a_reference_that_is_not_used(run, bam, small_panel, tmp_path):
    """BAM needs none. Pipelines may give it to all their files."""
    (tmp_path / "genome.fa").write_text(">20\nACGT\n")
    given = ("impute", "--bam", bam, "--panel", small_panel, "--region", "20:1-50000", "-q")
    done = run(*given, "--out", tmp_path / "o.vcf", "--reference", tmp_path / "genome.fa").ok()
    assert f"reference {tmp_path / 'genome.fa'} is not used: no file of reads is a CRAM" in done.err
    assert "not used" not in run(*given, "--out", tmp_path / "p.vcf").ok().err
