"""`spinimpute phase`, and unphased targets given to `impute`."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from spinimpute.vcf.reader import read_haplotypes

REPOSITORY = Path(__file__).resolve().parents[2]
EXAMPLE = REPOSITORY / "data" / "example"


def rows() -> list[list[str]]:
    """The example's phased target, line by line."""
    import gzip

    return [
        line.split("\t")
        for line in gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
    ]


def unphase(call: str) -> str:
    return "/".join(sorted(call.split("|")))


@pytest.fixture
def unphased(tmp_path: Path) -> Callable[..., Path]:
    def write(
        change: Callable[[int, int, str], str] = lambda record, sample, call: unphase(call),
        keep: Callable[[int], bool] = lambda record: True,
    ) -> Path:
        """The example's target with every call changed: change(record, sample, call)."""
        out = []
        record = 0
        for fields in rows():
            if not fields[0].startswith("#"):
                if keep(record):
                    calls = [change(record, i, call) for i, call in enumerate(fields[9:])]
                    out.append("\t".join([*fields[:9], *calls]))
                record += 1
            else:
                out.append("\t".join(fields))
        path = tmp_path / "unphased.vcf"
        path.write_text("\n".join(out) + "\n")
        return path

    return write


def genotypes(alleles: np.ndarray) -> np.ndarray:
    return alleles[:, ::2] + alleles[:, 1::2]


def test_the_examples_genotypes_stay_and_most_links_are_right(run, panel, unphased, tmp_path):
    run.phase(unphased(), panel, tmp_path / "o.vcf.gz").ok("unphased heterozygotes of 20 samples")
    phased, truth = read_haplotypes(tmp_path / "o.vcf.gz"), read_haplotypes(EXAMPLE / "target.vcf.gz")
    assert phased.samples == truth.samples
    assert phased.sites.keys() == truth.sites.keys()
    np.testing.assert_array_equal(genotypes(phased.alleles), genotypes(truth.alleles))
    wrong = links = 0
    for x in range(20):
        het = truth.alleles[:, 2 * x] != truth.alleles[:, 2 * x + 1]
        same = phased.alleles[het, 2 * x] == truth.alleles[het, 2 * x]
        wrong, links = wrong + int((same[1:] != same[:-1]).sum()), links + max(0, len(same) - 1)
    assert links > 500
    assert wrong < 0.1 * links
    index = tmp_path / "o.vcf.gz.tbi"
    assert index.exists()


def test_output_is_the_same_for_any_number_of_threads(run, panel, unphased, tmp_path):
    target = unphased()
    for threads in (1, 3):
        out = tmp_path / f"{threads}.vcf"
        run.phase(target, panel, out, "-t", threads).ok()
    assert (tmp_path / "1.vcf").read_bytes() == (tmp_path / "3.vcf").read_bytes()


def test_missing_calls_are_filled_and_foreign_sites_left_out(run, panel, unphased, tmp_path):
    target = unphased(lambda record, sample, call: "./." if (record + sample) % 10 == 0 else unphase(call))
    text = target.read_text().splitlines()
    at = next(i for i, line in enumerate(text) if not line.startswith("#"))
    foreign = text[at].split("\t")
    foreign[3:5] = ["G", "T"] if foreign[3] != "G" else ["C", "A"]
    target.write_text("\n".join([*text[: at + 1], "\t".join(foreign), *text[at + 1 :]]) + "\n")
    run.phase(target, panel, tmp_path / "o.bcf").ok("1 not matched: alleles differ from the panel")
    phased, truth = read_haplotypes(tmp_path / "o.bcf"), read_haplotypes(EXAMPLE / "target.vcf.gz")
    assert phased.sites.keys() == truth.sites.keys()
    assert (phased.alleles >= 0).all()
    assert (genotypes(phased.alleles) == genotypes(truth.alleles)).mean() > 0.98


def test_a_phased_file_comes_back_as_it_was(run, panel, tmp_path):
    run.phase(EXAMPLE / "target.vcf.gz", panel, tmp_path / "o.vcf.gz").ok()
    np.testing.assert_array_equal(
        read_haplotypes(tmp_path / "o.vcf.gz").alleles, read_haplotypes(EXAMPLE / "target.vcf.gz").alleles
    )


def imputed_dosages(path: Path) -> np.ndarray:
    import cyvcf2

    return np.stack([record.format("DS")[:, 0] for record in cyvcf2.VCF(str(path))])


def test_impute_takes_unphased_files(run, panel, unphased, tmp_path):
    target = unphased()
    run.impute(target, panel, tmp_path / "u.vcf.gz").ok("phased: ")
    run.phase(target, panel, tmp_path / "p.vcf.gz").ok()
    run.impute(tmp_path / "p.vcf.gz", panel, tmp_path / "pi.vcf.gz").ok()
    np.testing.assert_array_equal(
        imputed_dosages(tmp_path / "u.vcf.gz"), imputed_dosages(tmp_path / "pi.vcf.gz")
    )
    typed = read_haplotypes(EXAMPLE / "target.vcf.gz")
    imputed = read_haplotypes(tmp_path / "u.vcf.gz")
    places = {key: i for i, key in enumerate(imputed.sites.keys())}
    rows_of = [places[key] for key in typed.sites.keys()]  # noqa: SIM118
    np.testing.assert_array_equal(genotypes(imputed.alleles[rows_of]), genotypes(typed.alleles))


def test_one_unphased_sample(run, panel, unphased, tmp_path):
    target = unphased()
    lines = [
        line if line.startswith("##") else "\t".join(line.split("\t")[:10])
        for line in target.read_text().splitlines()
    ]
    target.write_text("\n".join(lines) + "\n")
    run.impute(target, panel, tmp_path / "o.vcf.gz").ok("of 1 samples")


def test_unphased_sites_that_the_panel_lacks_are_not_kept(run, panel, unphased, tmp_path):
    target = unphased()
    text = target.read_text().splitlines()
    at = next(i for i, line in enumerate(text) if not line.startswith("#"))
    extra: list[Sequence[str]] = []
    for calls in (["0/1"] * 20, ["0/0", "1/1"] * 10):
        fields = text[at].split("\t")[:9]
        fields[1] = str(int(fields[1]) - 1 - len(extra))
        extra.insert(0, [*fields, *calls])
    target.write_text("\n".join([*text[:at], *("\t".join(row) for row in extra), *text[at:]]) + "\n")
    run.impute(target, panel, tmp_path / "o.vcf.gz", "--keep-unmatched").ok(
        "1 unmatched typed sites are left out: they have unphased heterozygotes",
        "1 unmatched typed sites were kept",
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--vcf", "absent.vcf"], "there is no such file"),
        (["--out", "o.txt"], "It must end with .vcf.gz, .bcf, .vcf, .pgen, .bgen, or give"),
        (["--panel", str(EXAMPLE / "genetic.map")], "not a spinimpute panel"),
    ],
)
def test_refusals(run, panel, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    given = {"--vcf": EXAMPLE / "target.vcf.gz", "--panel": panel, "--out": "o.vcf"} | dict([options])  # type: ignore[list-item]
    run("phase", *(text for pair in given.items() for text in pair)).refused(message)
    assert not list(tmp_path.glob("o.*"))


def test_inducing_points_cannot_phase(run, panel, unphased, tmp_path):
    points = tmp_path / "points.spip"
    run(
        "panel", "build", "--vcf", EXAMPLE / "panel.vcf.gz", "--map", EXAMPLE / "genetic.map",
        "--out", points, "--inducing", 64, "--array", EXAMPLE / "target.vcf.gz",
    ).ok()  # fmt: skip
    run.phase(unphased(), points, tmp_path / "o.vcf").refused("phasing needs haplotypes")
    run.impute(unphased(), points, tmp_path / "o.vcf").refused("unphased heterozygote")
