"""`--region` given several times, and `--regions-file`: each region as it is alone, and as in the whole."""

from pathlib import Path

import pytest

import spinimpute
from spinimpute import RegionSettings
from spinimpute.genotypes.sites import Region

from .conftest import records

REGIONS = ("20:100000-150000", "20:300001-300400", "20:400000-450000")
BED = "20\t300000\t300400\n20\t399999\t420000\n20\t410000\t450000\n20\t99999\t150000\n"


def within(lines: list[str], *regions: str) -> list[str]:
    spans = [tuple(map(int, region.partition(":")[2].split("-"))) for region in regions]
    position = [int(line.split("\t")[1]) for line in lines]
    return [
        line
        for at, line in zip(position, lines, strict=True)
        if any(start <= at <= end for start, end in spans)
    ]


def flags(regions: tuple[str, ...]) -> list[str]:
    return [word for region in regions for word in ("--region", region)]


@pytest.fixture
def bed(tmp_path: Path) -> Path:
    path = tmp_path / "regions.bed"
    path.write_text(BED)
    return path


@pytest.fixture(scope="module")
def mixed(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's target with some genotypes unphased, and a site that the panel lacks in a region."""
    import gzip

    lines = gzip.decompress((example / "target.vcf.gz").read_bytes()).decode().splitlines(keepends=True)
    made = []
    for line in lines:
        at = 0 if line.startswith("#") else int(line.split("\t")[1])
        made.append(line.replace("|", "/") if 90_000 < at < 200_000 else line)
        if 300_000 < at < 300_400 or 400_000 < at < 420_000:
            made.append("\t".join([*line.split("\t")[:3], "A", "ACCCCC", *line.split("\t")[5:]]))
    path = tmp_path_factory.mktemp("mixed") / "mixed.vcf"
    path.write_text("".join(made))
    return path


def test_each_region_is_as_in_the_whole(run, mixed, panel, bed, tmp_path):
    given = ("impute", "--vcf", mixed, "--panel", panel, "--keep-unmatched")
    run(*given, "--out", tmp_path / "whole.vcf").ok()
    run(*given, "--out", tmp_path / "a.vcf", *flags(REGIONS[::-1])).ok()
    done = run(*given, "--out", tmp_path / "b.vcf", "--regions-file", bed).ok()
    whole = within(records(tmp_path / "whole.vcf"), *REGIONS)
    assert len(whole) > 100
    assert records(tmp_path / "a.vcf") == records(tmp_path / "b.vcf") == whole
    assert any("ACCCCC" in line for line in whole)
    assert f"written:  {len(whole)} sites" in done.err
    header = (tmp_path / "b.vcf").read_text().partition("#CHROM")[0]
    assert "##spinimpute_regions=3\n" in header
    assert "##spinimpute_region=" not in header


def test_each_region_is_as_alone_with_a_buffer(run, mixed, panel, tmp_path):
    """Of unphased calls results depend on the buffer."""
    given = ("impute", "--vcf", mixed, "--panel", panel, "--buffer", "0.05", "--keep-unmatched")
    alone = []
    for number, region in enumerate(REGIONS):
        out = tmp_path / f"alone{number}.vcf"
        run(*given, "--out", out, "--region", region).ok()
        alone += records(out)
    run(*given, "--out", tmp_path / "all.vcf", *flags(REGIONS)).ok()
    assert records(tmp_path / "all.vcf") == alone


def test_a_part_of_a_phased_file_is_read(run, example, panel, bed, tmp_path):
    phased = tmp_path / "phased.bcf"
    run.phase(example / "target.vcf.gz", panel, phased).ok()
    given = ("impute", "--vcf", phased, "--panel", panel)
    run(*given, "--out", tmp_path / "whole.vcf").ok()
    run(*given, "--out", tmp_path / "some.vcf", "--regions-file", bed, "--buffer", "0.01").ok()
    assert records(tmp_path / "some.vcf") == within(records(tmp_path / "whole.vcf"), *REGIONS)


def test_spin_and_leave_one_out(run, example, panel, tmp_path):
    given = ("impute", "--vcf", example / "target.vcf.gz", "--panel", panel)
    spin = ("--predictor", "spin", "--inducing-points", "16")
    run(*given, *spin, "--out", tmp_path / "whole.vcf").ok()
    run(*given, *spin, "--out", tmp_path / "some.vcf", *flags(REGIONS)).ok()
    assert records(tmp_path / "some.vcf") == within(records(tmp_path / "whole.vcf"), *REGIONS)
    loo = ("--loo", tmp_path / "loo", "--report", tmp_path / "page.html")
    run(*given, *loo, "--out", tmp_path / "whole2.vcf").ok()
    run(*given, *loo, "--out", tmp_path / "some2.vcf", *flags(REGIONS), "--force").ok()
    assert records(tmp_path / "some2.vcf") == within(records(tmp_path / "whole2.vcf"), *REGIONS)
    run(*given, *loo, "--out", tmp_path / "o.vcf", *flags(REGIONS), "--buffer", "1", "--force").refused(
        "twice in --loo, --report, --report-figures or --multiqc. Omit the buffer"
    )


def test_one_region_of_a_file_is_a_chunk(run, example, panel, tmp_path):
    given = ("impute", "--vcf", example / "target.vcf.gz", "--panel", panel)
    chunks = []
    for start, end in ((0, 250_000), (250_000, 9_000_000)):
        bed = tmp_path / f"{start}.bed"
        bed.write_text(f"20\t{start}\t{end}\n")
        chunks.append(tmp_path / f"{start}.vcf")
        run(*given, "--regions-file", bed, "--out", chunks[-1]).ok()
    run(*given, "--out", tmp_path / "whole.vcf").ok()
    run("ligate", *chunks, "--out", tmp_path / "joined.vcf").ok()
    assert (tmp_path / "joined.vcf").read_bytes() == (tmp_path / "whole.vcf").read_bytes()
    run(*given, *flags(REGIONS), "--out", tmp_path / "some.vcf").ok()
    run("ligate", tmp_path / "some.vcf", chunks[1], "--out", tmp_path / "no.vcf").refused(
        "some.vcf: it holds several regions"
    )


def test_regions_without_a_site_are_named(run, example, panel, tmp_path):
    given = ("impute", "--vcf", example / "target.vcf.gz", "--panel", panel)
    done = run(
        *given, "--region", "20:900000000", "--region", REGIONS[0], "--out", tmp_path / "o.vcf", "-q"
    ).ok()
    assert done.err == "spinimpute: warning: the panel has no site in 20:900000000-900000000\n"
    none = ("--region", "20:900000000", "--region", "20:900000005")
    run(*given, *none, "--out", tmp_path / "p.vcf").refused(
        "the panel has no site in 20:900000000-900000000 and 1 more region; it reaches from"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--region", "20:5-9", "--region", "21:5-9"],
            "the panel is of chromosome 20. Give the panel of chromosome 21, or leave the region out",
        ),
        (["--region", "20:9-5"], "the region '20:9-5' is empty"),
        (["--region", "20", "--regions-file", "BED"], "Give --region or --regions-file, not both"),
        (["--regions-file", "BED", "--regions-file", "BED"], "--regions-file is given 2 times"),
        (["--regions-file", "no.bed"], "regions file no.bed: it cannot be read (No such file"),
        (["--regions-file", "TARGET"], "target.vcf.gz, line 7: start"),
        (["--buffer", "1"], "a buffer needs a region. Give --region"),
    ],
)
def test_errors(run, example, panel, bed, tmp_path, words, said):
    target = example / "target.vcf.gz"
    given = [str({"BED": bed, "TARGET": target}.get(word, word)) for word in words]
    done = run.impute(target, panel, tmp_path / "o.vcf", *given)
    assert (done.code, done.err.count("error")) == (2, 1) or "given 2 times" in done.err
    assert said in done.err.replace("\n", " ")
    assert not (tmp_path / "o.vcf").exists()


def test_the_regions_file_is_not_overwritten(run, example, panel, tmp_path):
    bed = tmp_path / "o.vcf"
    bed.write_text(BED)
    given = ("impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--regions-file", bed)
    run(*given, "--out", bed, "--force").refused("it is also read from")
    assert bed.read_text() == BED


def test_evaluate(run, example, panel, bed, tmp_path):
    imputed, target = tmp_path / "o.vcf", example / "target.vcf.gz"
    run.impute(target, panel, imputed).ok()
    given = ("evaluate", "--truth", example / "truth.vcf.gz", "--imputed", imputed, "--panel", panel)
    one_by_one = run(*given, "--typed", target, *flags(REGIONS))
    done = run(*given, "--typed", target, "--regions-file", bed)
    assert (done.code, done.out) == (0, one_by_one.out)
    assert done.out != run(*given, "--typed", target).out
    run(*given, "--typed", target, "--regions-file", bed, "--region", "20").refused(
        "Give --region or --regions-file"
    )


def test_python_takes_the_same(example, panel, bed, tmp_path):
    made = []
    parsed = (Region.parse(region) for region in REGIONS)
    given = (RegionSettings(list(REGIONS)), RegionSettings(regions_file=bed), RegionSettings(parsed))
    for number, settings in enumerate(given):
        out = tmp_path / f"{number}.vcf"
        spinimpute.impute(example / "target.vcf.gz", out, panel, region=settings)
        made.append(out.read_bytes())
    assert made[0] == made[1] == made[2]
