"""`impute --min-r2 --min-maf --sites`: what is left out, and the table of all sites, in every format."""

import gzip
import re
from pathlib import Path

import numpy as np
import pytest

import spinimpute

from .conftest import records
from .test_genome import renamed

R2, MAF = 0.8, 0.02
COLUMNS = ["CHROM", "POS", "ID", "REF", "ALT", "AF", "MAF", "AVG_CS", "R2", "ER2", "TYPED"]
REGION = "20:200000-400000"


def table(path: Path) -> list[list[str]]:
    return [line.split("\t") for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


def info(record: str) -> dict[str, str]:
    return dict((field + "=").split("=")[:2] for field in record.split("\t")[7].split(";"))


def passes(record: str, r2: float = R2, maf: float = MAF) -> bool:
    """Whether the record should be written, from its rounded INFO."""
    fields = info(record)
    return float(fields["MAF"]) >= maf and ("TYPED" in fields or float(fields["R2"]) >= r2)


@pytest.fixture(scope="module")
def whole(example: Path, panel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The output without filters."""
    path = tmp_path_factory.mktemp("whole") / "whole.vcf"
    region, output = spinimpute.RegionSettings(REGION), spinimpute.OutputSettings(leave_one_out=True)
    spinimpute.impute(example / "target.vcf.gz", path, panel, region=region, output=output)
    return path


def test_the_table_lists_all_sites_and_the_file_those_that_pass(run, example, panel, whole, tmp_path):
    out, sites = tmp_path / "o.vcf", tmp_path / "s.tsv.gz"
    more = ("--region", REGION, "--min-r2", R2, "--min-maf", MAF, "--sites", sites)
    done = run.impute(example / "target.vcf.gz", panel, out, *more, "--loo", tmp_path / "l").ok()
    every = records(whole)
    expected = [record for record in every if passes(record)]
    assert records(out) == expected
    typed = [record for record in every if "TYPED" in info(record)]
    assert sum(not passes(record) for record in typed) > 0
    assert f"written:  {len(expected)} sites\n" in done.err
    assert (
        f"          {len(every) - len(expected)} sites were left out: below --min-r2 or --min-maf" in done.err
    )
    head, *rows = table(sites)
    assert head == COLUMNS
    assert rows == [
        [
            *record.split("\t")[:5],
            *(fields.get(key, "NA") for key in COLUMNS[5:10]),
            str(int("TYPED" in fields)),
        ]
        for record, fields in ((record, info(record)) for record in every)
    ]
    assert sum(row[9] != "NA" for row in rows) > 5
    header = out.read_text()
    assert f"##spinimpute_filter=R2>={R2},MAF>={MAF}\n" in header
    assert str(sites) not in header
    assert "spinimpute_filter" not in whole.read_text()


def test_each_filter_alone(run, example, panel, whole, tmp_path):
    for name, option in (("r2", ("--min-r2", 0.5)), ("maf", ("--min-maf", 0.1))):
        out = tmp_path / f"{name}.vcf"
        run.impute(example / "target.vcf.gz", panel, out, "--region", REGION, *option).ok()
        limits = (0.5, 0) if name == "r2" else (0, 0.1)
        if name == "r2":  # typed sites at which all samples are equal: their R2 is 0
            assert any("TYPED" in info(record) and float(info(record)["R2"]) == 0 for record in records(out))
        assert [record.split("\t")[:5] for record in records(out)] == [
            record.split("\t")[:5] for record in records(whole) if passes(record, *limits)
        ]


def test_plink_and_bgen(run, example, panel, whole, tmp_path):
    """They have the records of the VCF. BGEN has a table without --sites, because it cannot store R2."""
    pgenlib, bgen = pytest.importorskip("pgenlib"), pytest.importorskip("bgen")
    kept = [record.split("\t") for record in records(whole) if passes(record)]
    expected = np.array([[float(call.split(":")[1]) for call in record[9:]] for record in kept])
    more = ("--region", REGION, "--min-r2", R2, "--min-maf", MAF)
    for name in ("o.pgen", "o.bgen"):
        run.impute(example / "target.vcf.gz", panel, tmp_path / name, *more).ok()
    rows = [line.split("\t") for line in records(tmp_path / "o.pvar")]
    assert [row[:7] for row in rows] == [record[:7] for record in kept]
    with pgenlib.PgenReader(bytes(tmp_path / "o.pgen")) as reader:
        assert reader.get_variant_ct() == len(kept)
        found = np.empty(expected.shape, np.float32)
        reader.read_dosages_range(0, len(kept), found)
    np.testing.assert_allclose(found, expected, atol=1 / 2**15)
    with bgen.BgenReader(tmp_path / "o.bgen") as variants:
        listed = list(variants)
    assert [[v.chrom, str(v.pos), v.rsid, *v.alleles] for v in listed] == [record[:5] for record in kept]
    assert [row[:5] for row in table(tmp_path / "o.sites.tsv.gz")[1:]] == [
        record.split("\t")[:5] for record in records(whole)
    ]
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_plink_with_calls_and_without_any_record(run, example, panel, tmp_path):
    """Phase survives, and a filter that no site passes gives no file of no records that PLINK refuses."""
    pgenlib = pytest.importorskip("pgenlib")
    more = ("--region", REGION, "--format", "GT", "--min-maf", 0.4)
    run.impute(example / "target.vcf.gz", panel, tmp_path / "o.pgen", *more).ok()
    run.impute(example / "target.vcf.gz", panel, tmp_path / "o.vcf", *more).ok()
    calls = [re.findall(r"\t([01])\|([01])(?![^\t\n])", record) for record in records(tmp_path / "o.vcf")]
    with pgenlib.PgenReader(bytes(tmp_path / "o.pgen")) as reader:
        n_samples = reader.get_raw_sample_ct()
        found = np.empty((len(calls), 2 * n_samples), np.int32)
        phased = np.empty((len(calls), n_samples), np.uint8)
        reader.read_alleles_and_phasepresent_range(0, len(calls), found, phased)
    np.testing.assert_array_equal(found, np.array(calls, int).reshape(found.shape))
    assert phased[found[:, ::2] != found[:, 1::2]].all()


def test_no_site_passes(run, example, panel, tmp_path):
    """PLINK has no file without sites."""
    none = ("--region", "20:200000-201000", "--min-maf", 0.5)
    for name in ("o.vcf", "o.bgen"):
        done = run.impute(example / "target.vcf.gz", panel, tmp_path / name, *none).ok()
        assert "written:  0 sites" in done.err
    assert not records(tmp_path / "o.vcf")
    assert len(table(tmp_path / "o.sites.tsv.gz")) == 5
    pytest.importorskip("pgenlib")
    run.impute(example / "target.vcf.gz", panel, tmp_path / "o.pgen", *none).refused(
        "o.pgen: no site passes the filters, and PLINK cannot store a file without sites. Give a lower "
        "--min-r2 or --min-maf"
    )
    assert not list(tmp_path.glob("*p[gvs]*"))
    assert not list(tmp_path.glob(".*"))


def test_sequenced_samples(run, edited_target, panel, tmp_path):
    """All their sites are imputed, so R2 decides about each."""
    target = edited_target(
        lambda text: "".join(
            line if line.startswith("##") else "\t".join(line.split("\t")[:12]).rstrip() + "\n"
            for line in text.splitlines(keepends=True)
        )
    )
    given = ("impute", "--gl", target, "--panel", panel, "--region", "20:1-100000")
    run(*given, "--out", tmp_path / "whole.vcf").ok()
    more = ("--min-r2", 0.9, "--min-maf", 0.05, "--sites", tmp_path / "s.tsv.gz")
    done = run(*given, "--out", tmp_path / "o.vcf", *more).ok()
    every = records(tmp_path / "whole.vcf")
    expected = [record for record in every if passes(record, 0.9, 0.05)]
    assert records(tmp_path / "o.vcf") == expected
    assert 0 < len(expected) < len(every) == len(table(tmp_path / "s.tsv.gz")) - 1
    assert f"written:  {len(expected)} sites\n" in done.err
    run(*given, "--out", tmp_path / "o.bgen").ok()
    assert table(tmp_path / "o.sites.tsv.gz") == table(tmp_path / "s.tsv.gz")


def test_unmatched_sites_are_typed(run, edited_target, panel, tmp_path):
    """They are kept whatever their R2, but not below the smallest MAF."""
    target = edited_target(lambda text: text)
    text = target.read_text().splitlines(keepends=True)
    first = next(i for i, line in enumerate(text) if line[0] != "#")
    words = text[first].split("\t")
    words[1], words[9:] = "200001", ["0|0"] * (len(words) - 9)
    row = next(i for i in range(first, len(text)) if int(text[i].split("\t")[1]) > 200_001)
    text.insert(row, "\t".join(words) + "\n")
    target.write_text("".join(text))
    more = ("--region", REGION, "--keep-unmatched")
    run.impute(target, panel, tmp_path / "r.vcf", *more, "--min-r2", 0.9).ok()
    run.impute(target, panel, tmp_path / "m.vcf", *more, "--min-maf", 0.01).ok()
    assert "\t200001\t" in (tmp_path / "r.vcf").read_text()
    assert "\t200001\t" not in (tmp_path / "m.vcf").read_text()


def test_a_table_for_each_chromosome(run, example, panel, tmp_path):
    other = renamed(example / "panel.vcf.gz", tmp_path / "panel.vcf", "21")
    spinimpute.build_panel(other, tmp_path / "21.spin").close()
    target = renamed(example / "target.vcf.gz", tmp_path / "21.vcf", "21")
    given = ["impute", "--panel", panel, "--panel", tmp_path / "21.spin", "--min-maf", 0.1]
    given += ["--vcf", target, "--vcf", example / "target.vcf.gz"]
    done = run(*given, "--out", tmp_path / "o.vcf", "--sites", tmp_path / "o.tsv.gz").ok()
    assert f"written:  {len(records(tmp_path / 'o.vcf'))} sites" in done.err
    run(*given, "--out", tmp_path / "{chrom}.o.vcf", "--sites", tmp_path / "{chrom}.tsv.gz").ok()
    rows = [table(tmp_path / f"{chrom}.tsv.gz")[1:] for chrom in ("20", "21")]
    assert {row[0] for row in rows[0]} == {"20"}
    assert table(tmp_path / "o.tsv.gz")[1:] == rows[0] + rows[1]
    for out, sites in (("{chrom}.p.vcf", "p.tsv.gz"), ("p.vcf", "{chrom}.p.tsv.gz")):
        run(*given, "--out", tmp_path / out, "--sites", tmp_path / sites).refused(
            "each output has its own table of sites. Put {chrom} in both names, or in neither"
        )
    assert not list(tmp_path.glob("*p.*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--min-r2", "1.5"], "--min-r2"),
        (["--min-maf", "0.6"], "--min-maf"),
        (["--sites", "-"], "this output cannot go to standard output"),
        (["--sites", "o.txt"], "o.txt: the table of sites is compressed. Give a name that ends with .tsv.gz"),
        (["--sites", "no/s.tsv.gz"], "there is no folder no"),
        (["--sites", "old.tsv.gz"], "old.tsv.gz already exists; use --force"),
    ],
)
def test_refused(run, example, panel, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.tsv.gz").write_text("old")
    run.impute(example / "target.vcf.gz", panel, "o.vcf", *options).refused(message)
    assert [path.name for path in tmp_path.iterdir()] == ["old.tsv.gz"]
    assert (tmp_path / "old.tsv.gz").read_text() == "old"


@pytest.mark.parametrize("setting", [{"min_r2": -0.1}, {"min_maf": 0.7}, {"min_r2": float("nan")}])
def test_limits_in_python(example, panel, tmp_path, setting):
    with pytest.raises(spinimpute.InputError, match="must be between 0 and"):
        spinimpute.impute(
            example / "target.vcf.gz", tmp_path / "o.vcf", panel, output=spinimpute.OutputSettings(**setting)
        )


def test_a_table_to_standard_output_beside_the_file_is_not_needed(run, example, panel, whole, tmp_path):
    """A VCF on standard output may have a table."""
    sites = tmp_path / "s.tsv.gz"
    done = run.impute(example / "target.vcf.gz", panel, "-", "--region", REGION, "--sites", sites, "-q").ok()
    assert len(table(sites)) - 1 == len(records(whole))
    assert done.out.count("\n20\t") == len(records(whole))


@pytest.mark.parametrize("small", ["o.vcf", "s.tsv.gz"])
def test_nothing_remains_of_a_failed_run(run, example, panel, tmp_path, small_disk, small):
    """The message names the file for which there is no space."""
    folder = small_disk(16).folder
    paths = {name: (folder if name == small else tmp_path) / name for name in ("o.vcf", "s.tsv.gz")}
    run.impute(example / "target.vcf.gz", panel, paths["o.vcf"], "--sites", paths["s.tsv.gz"]).refused(
        f"cannot write {paths[small]}: No space left"
    )
    assert [path.name for path in (*tmp_path.iterdir(), *folder.iterdir()) if path != folder] == []


def test_bits_of_bgen(run, example, panel, tmp_path):
    bgen = pytest.importorskip("bgen")
    given = (example / "target.vcf.gz", panel)
    run.impute(*given, tmp_path / "o.vcf", "--bgen-bits", 16).refused(
        "--bgen-bits has no effect on outputs other than BGEN. Leave it out"
    )
    for bits in (8, 16):
        out = tmp_path / f"{bits}.bgen"
        run.impute(*given, out, "--region", REGION, "--bgen-bits", bits).ok()
        with bgen.BgenReader(out) as reader:
            steps = np.concatenate([v.probabilities for v in reader]).ravel() * (2**bits - 1)
        np.testing.assert_allclose(steps, np.rint(steps), atol=0.01)
        assert bits == 8 or np.abs(steps / 257 - np.rint(steps / 257)).max() > 0.1


def test_a_report_names_the_sites_that_are_left_out(run, example, panel, tmp_path):
    pytest.importorskip("matplotlib")
    given = ("--region", REGION, "--report", tmp_path / "r.html", "--min-maf", MAF)
    done = run.impute(example / "target.vcf.gz", panel, tmp_path / "o.vcf", *given).ok()
    left_out = re.search(r"(\d+) sites were left out", done.err)[1]
    card = f"<dt>sites left out by the filters</dt><dd>{int(left_out):,}</dd>"
    assert card in (tmp_path / "r.html").read_text()
