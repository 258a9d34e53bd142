import gzip
import itertools
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path

import cyvcf2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

pytestmark = pytest.mark.slow

needs_bcftools = pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")

CONTIGS = ["##contig=<ID=20,length=64444167>"]
ALL_FORMATS = ("GT", "DS", "HDS", "GP")
PLOIDIES = {
    "diploid": [2, 2, 2],
    "haploid": [1, 1, 1, 1],
    "mixed": [1, 2, 2, 1, 2],
    "mixed, haploid last": [2, 1],
    "one diploid": [2],
    "one haploid": [1],
}


def make_sites(n: int) -> Sites:
    """Some with long alleles and IDs, several at the same position."""
    position = np.arange(n, dtype=np.int64) // 2 * 700 + 60_000
    ref = ["ACGTT" * (1 + i) if i % 5 == 0 else "A" for i in range(n)]
    alt = ["G" * (13 + i % 4) if i % 3 == 0 else "C" for i in range(n)]
    name = ["." if i % 4 else f"rs{i}" + "x" * (i * 11 % 400) for i in range(n)]
    return Sites("20", position, ref, alt, name)


def make_dosage(n_sites: int, n_haplotypes: int, *, missing: bool = True) -> np.ndarray:
    rng = np.random.default_rng(n_sites + n_haplotypes)
    dosage = rng.random((n_sites, n_haplotypes), dtype=np.float32)
    dosage[rng.random(dosage.shape) < 0.3] = 0
    dosage[rng.random(dosage.shape) < 0.2] = 1
    if missing:
        dosage[rng.random(dosage.shape) < 0.1] = np.nan
        dosage[n_sites // 2] = np.nan
    return dosage


def write(
    path: Path, ploidy, dosage, *, sites=None, info=None, haplotypes=None, typed=None, **options
) -> Path:
    n = len(dosage)
    options.setdefault("contig_lines", CONTIGS)
    samples = options.pop("samples", [f"s{i}" for i in range(len(ploidy))])
    with GenotypeWriter(path, OutputLayout(samples, np.array(ploidy, np.uint8), **options)) as writer:
        writer.write_block(
            RecordBlock(
                "20",
                make_sites(n) if sites is None else sites,
                dosage,
                info or {},
                haplotypes,
                np.zeros(n, dtype=bool) if typed is None else typed,
            )
        )
    return path


# --- a slow writer of sample columns, straight from the definitions --------------------------------------


def number(value: Fraction | None) -> str:
    return "." if value is None else f"{float(value):g}"


def thousandths(value: np.float32) -> Fraction | None:
    if np.isnan(value):
        return None
    scaled = value * np.float32(1000)
    if scaled < 0.75 or scaled > 999.25:  # as good as certain
        return Fraction(round(float(value)))
    return Fraction(int(np.rint(scaled)), 1000)


def slow_sample(dosages: list[np.float32], formats) -> str:
    calls = ["." if np.isnan(d) else "1" if d >= 0.5 else "0" for d in dosages]
    rounded = [thousandths(dosage) for dosage in dosages]
    values = {"GT": "|".join(calls), "DS": ".", "HDS": ",".join(map(number, rounded)), "GP": "."}
    if None not in rounded:
        values["DS"] = number(sum(rounded))
        probabilities = [1 - rounded[0], rounded[0]]
        if len(rounded) == 2:
            both = round(rounded[0] * rounded[1], 3)
            probabilities = [1 - sum(rounded) + both, sum(rounded) - 2 * both, both]
        values["GP"] = ",".join(map(number, probabilities))
    return ":".join(values[key] for key in formats)


def slow_records(sites: Sites, ploidy, dosage: np.ndarray, formats) -> list[str]:
    first = np.cumsum([0, *ploidy])
    records = []
    for i in range(len(sites)):
        fixed = [sites.chrom, str(sites.position[i]), sites.id[i], sites.ref[i], sites.alt[i]]
        fixed += [".", "PASS", "IMPUTED", ":".join(formats)]
        dosages = [list(dosage[i, first[s] : first[s + 1]]) for s in range(len(ploidy))]
        records.append("\t".join(fixed + [slow_sample(its, formats) for its in dosages]))
    return records


@pytest.mark.parametrize(
    "formats", [("GT", "DS"), ALL_FORMATS, ("GT",), ("GT", "GP", "DS"), ("DS",), ("HDS", "GP")]
)
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("ploidy", PLOIDIES.values(), ids=PLOIDIES)
def test_text_equals_that_of_a_slow_writer(tmp_path, ploidy, missing, formats):
    dosage = make_dosage(40, sum(ploidy), missing=missing)
    plain = write(tmp_path / "x.vcf", ploidy, dosage, formats=formats).read_text()
    records = [line for line in plain.splitlines() if not line.startswith("#")]
    assert records == slow_records(make_sites(40), ploidy, dosage, formats)
    zipped = write(tmp_path / "x.vcf.gz", ploidy, dosage, formats=formats)
    assert gzip.decompress(zipped.read_bytes()).decode() == plain


def bcftools_view(path: Path) -> str:
    view = ["bcftools", "view", "--no-version", str(path)]
    done = subprocess.run(view, check=True, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


@needs_bcftools
@pytest.mark.parametrize("formats", [("GT", "DS"), ALL_FORMATS, ("HDS",)])
@pytest.mark.parametrize("ploidy", PLOIDIES.values(), ids=PLOIDIES)
def test_bcftools_sees_the_same_in_bcf_and_vcf(tmp_path, ploidy, formats):
    n = 60
    dosage = make_dosage(n, sum(ploidy))
    rng = np.random.default_rng(0)
    r2 = rng.random(n)
    r2[::7] = np.nan
    options = {
        "formats": formats,
        "info": {
            "AF": rng.random(n) ** 4,
            "MAF": rng.random(n) ** 4,
            "R2": r2,
            "ER2": r2 / 3,
            "AN": np.arange(n) * 1000.0,
            "XX": None,
        },
        "typed": np.arange(n) % 3 == 0,
        "extra_info_lines": [
            '##INFO=<ID=ER2,Number=1,Type=Float,Description="Empirical r2">',
            '##INFO=<ID=AN,Number=1,Type=Integer,Description="Number of alleles">',
            '##INFO=<ID=XX,Number=1,Type=Float,Description="Not used">',
        ],
    }
    paths = [write(tmp_path / name, ploidy, dosage, **options) for name in ("x.bcf", "x.vcf.gz", "x.vcf")]
    views = [bcftools_view(path) for path in paths]
    assert views[0] == views[1] == views[2]
    assert len([line for line in views[0].splitlines() if not line.startswith("#")]) == n


@needs_bcftools
def test_records_have_the_bytes_that_htslib_writes(tmp_path):
    ploidy = [2, 1, 2]
    dosage = make_dosage(50, 5, missing=False)
    dosage[::3, :3] = np.nan  # never all: htslib narrows a record to what its widest sample needs
    ours = write(tmp_path / "x.bcf", ploidy, dosage, formats=ALL_FORMATS, info={"AF": dosage[:, 0]})
    text = write(tmp_path / "x.vcf", ploidy, dosage, formats=ALL_FORMATS, info={"AF": dosage[:, 0]})
    convert = ["bcftools", "view", "--no-version", "-Ou", str(text)]
    theirs = subprocess.run(convert, check=True, capture_output=True).stdout

    def records(data: bytes) -> bytes:
        return data[9 + int.from_bytes(data[5:9], "little") :]

    assert records(gzip.decompress(ours.read_bytes())) == records(theirs)


@pytest.mark.parametrize("suffix", ["vcf", "vcf.gz", "bcf"])
@pytest.mark.parametrize("ploidy", PLOIDIES.values(), ids=PLOIDIES)
def test_cyvcf2_reads_back_what_was_written(tmp_path, ploidy, suffix):
    n = 300
    dosage = make_dosage(n, sum(ploidy))
    haplotypes = np.random.default_rng(1).integers(-1, 2, dosage.shape).astype(np.int8)
    path = write(tmp_path / f"x.{suffix}", ploidy, dosage, haplotypes=haplotypes, formats=ALL_FORMATS)
    sites = make_sites(n)
    first = np.cumsum([0, *ploidy])[:-1]
    diploid = np.array(ploidy) == 2
    reader = cyvcf2.VCF(str(path))
    assert reader.samples == [f"s{i}" for i in range(len(ploidy))]
    count = 0
    for i, record in enumerate(reader):
        count += 1
        site = (record.CHROM, record.POS, record.REF, record.ALT[0], record.ID or ".")
        assert site == ("20", sites.position[i], sites.ref[i], sites.alt[i], sites.id[i])
        assert record.FILTER is None  # cyvcf2's PASS
        calls = record.genotype.array()
        assert (calls[:, 0] == haplotypes[i, first]).all()
        assert (calls[diploid, 1] == haplotypes[i, first[diploid] + 1]).all()
        if diploid.any():
            assert (calls[~diploid, 1] == -2).all()
            assert calls[diploid, -1].all()  # phased
        expected = dosage[i, first].astype(np.float64)
        expected[diploid] += dosage[i, first[diploid] + 1]
        np.testing.assert_allclose(record.format("DS")[:, 0], expected, atol=1.26e-3)
        np.testing.assert_allclose(record.format("HDS")[:, 0], dosage[i, first], atol=7.51e-4)
    reader.close()
    assert count == n


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    cuts=st.lists(st.integers(0, 900), max_size=5),
    threads=st.integers(1, 4),
    suffix=st.sampled_from(["vcf.gz", "bcf"]),
)
def test_bytes_depend_neither_on_threads_nor_on_blocks(tmp_path, cuts, threads, suffix):
    n, ploidy = 900, np.array([2] * 150 + [1] * 100, np.uint8)
    dosage, sites = make_dosage(n, 400), make_sites(n)
    samples = [f"s{i}" for i in range(250)]
    files = []
    for name, bounds, n_threads in (("whole", [0, n], 1), ("cut", [0, *sorted(cuts), n], threads)):
        path = tmp_path / f"{name}.{suffix}"
        layout = OutputLayout(samples, ploidy, CONTIGS, formats=ALL_FORMATS)
        with GenotypeWriter(path, layout, threads=n_threads) as writer:
            for start, stop in itertools.pairwise(bounds):
                part = slice(start, stop)
                info = {"AF": dosage[part, 0]}
                writer.write_block(
                    RecordBlock(
                        "20", sites.take(part), dosage[part], info, None, np.zeros(stop - start, bool)
                    )
                )
        index = next(tmp_path.glob(f"{name}.{suffix}.*"))
        files.append((path.read_bytes(), index.read_bytes()))
    assert files[0] == files[1]


def test_header_and_info(tmp_path):
    path = write(
        tmp_path / "x.vcf",
        [2],
        np.array([[0, 1], [0, 0], [1, 1]], np.float32),
        info={
            "AF": np.array([0.87654321, 1.23456e-5, 0.5]),
            "MAF": np.array([0.12345679, 1.23456e-5, 0.5]),
            "AVG_CS": np.array([0.98449, 0.99996, np.nan]),
            "R2": np.array([0.98765, np.nan, 0]),
        },
        typed=np.array([True, False, False]),
        header_lines=["##source=spinimpute", '##command="impute a, b"'],
        contig_lines=["##contig=<ID=X,length=5,IDX=3>", "##contig=<ID=20>"],
    )
    lines = path.read_text().splitlines()
    assert lines[:4] == [
        "##fileformat=VCFv4.2",
        '##FILTER=<ID=PASS,Description="All filters passed">',
        "##contig=<ID=X,length=5>",
        "##contig=<ID=20>",
    ]
    defined = [line.split("=<ID=")[1].split(",")[0] for line in lines[4:12]]
    assert defined == ["MAF", "AF", "AVG_CS", "R2", "TYPED", "IMPUTED", "GT", "DS"]
    assert all(",Type=Float,Description=" in line for line in lines[4:8])
    assert lines[11].endswith('in steps of 0.001">')
    assert lines[-6:-3] == [
        "##source=spinimpute",
        '##command="impute a, b"',
        "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\ts0",
    ]
    info = [line.split("\t")[7] for line in lines[-3:]]
    assert info == [
        "MAF=0.1235;AF=0.8765;AVG_CS=0.984;R2=0.988;TYPED",
        "MAF=1.235e-05;AF=1.235e-05;AVG_CS=1;IMPUTED",
        "MAF=0.5;AF=0.5;R2=0;IMPUTED",
    ]


UNUSABLE = "A name must not be blank or contain tabs or line breaks"


@pytest.mark.parametrize(
    ("names", "message"),
    [(["a", "a"], "two samples are named 'a'")]
    + [(["a", name], UNUSABLE) for name in ("", " ", "\x0b", "a\tb", "a\nb", "a\0")],
)
def test_unusable_sample_names(tmp_path, names, message):
    with pytest.raises(InputError, match=message):
        write(tmp_path / "x.vcf", [2, 2], make_dosage(3, 4), samples=names)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["vcf.gz", "bcf"])
def test_unusual_names_and_a_large_header(tmp_path, suffix):
    samples = ["a b", "été", "#x", "1:2|3", "名", "x" * 300]
    lines = [f"##note{i}=" + "y" * 100 for i in range(2000)]
    path = write(tmp_path / f"x.{suffix}", [2] * 6, make_dosage(20, 12), samples=samples, header_lines=lines)
    reader = cyvcf2.VCF(str(path))
    assert reader.samples == samples
    assert f"##note1999={'y' * 100}" in reader.raw_header
    assert len(list(reader)) == 20
    reader.close()


@pytest.mark.parametrize("suffix", ["vcf.gz", "bcf"])
def test_more_names_than_one_byte_can_number(tmp_path, suffix):
    extra = [f'##INFO=<ID=I{i},Number=1,Type=Integer,Description="x">' for i in range(150)]
    values = np.array([-7.0, 127, 128, -120, -121, 40_000, 2e9, np.nan])
    path = write(
        tmp_path / f"x.{suffix}", [2], make_dosage(8, 2), info={"I149": values}, extra_info_lines=extra
    )
    reader = cyvcf2.VCF(str(path))
    assert [record.INFO.get("I149") for record in reader] == [*values[:-1].astype(int).tolist(), None]
    reader.close()


@pytest.mark.parametrize("suffix", ["vcf", "vcf.gz", "bcf"])
def test_a_file_without_records_is_valid(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    with GenotypeWriter(path, OutputLayout(["a"], np.array([2], np.uint8), CONTIGS)):
        pass
    reader = cyvcf2.VCF(str(path))
    assert reader.samples == ["a"]
    assert list(reader) == []
    reader.close()
    if suffix != "vcf" and shutil.which("bcftools"):
        count = subprocess.run(["bcftools", "index", "-n", path], check=True, capture_output=True, text=True)
        assert count.stdout.strip() == "0"


def test_contigs_of_a_bcf_are_numbered_in_order_of_the_header(tmp_path):
    path = tmp_path / "x.bcf"
    lines = [f"##contig=<ID={name}>" for name in ("chr2", "20", "chr1")]
    with GenotypeWriter(path, OutputLayout(["a"], np.array([1], np.uint8), lines)) as writer:
        for chrom in ("chr1", "chr2"):
            writer.write_block(
                RecordBlock(chrom, make_sites(3), np.zeros((3, 1)), {}, None, np.zeros(3, dtype=bool))
            )
    reader = cyvcf2.VCF(str(path))
    assert reader.seqnames == ["chr2", "20", "chr1"]
    assert [record.CHROM for record in reader] == ["chr1"] * 3 + ["chr2"] * 3
    assert len(list(reader("chr2"))) == 3
    reader.close()


# --- what goes wrong -------------------------------------------------------------------------------------


def start(path, output_type=None, **options) -> GenotypeWriter:
    layout = OutputLayout(["a", "b"], np.array([2, 1], np.uint8), **{"contig_lines": CONTIGS} | options)
    return GenotypeWriter(path, layout, output_type)


def test_a_failed_run_leaves_the_folder_as_it_was(tmp_path):
    path = tmp_path / "x.vcf.gz"
    path.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), start(path) as writer:  # noqa: PT012
        writer.write_block(
            RecordBlock("20", make_sites(3), np.zeros((3, 3)), {}, None, np.zeros(3, dtype=bool))
        )
        raise RuntimeError("stop")
    assert [file.name for file in tmp_path.iterdir()] == ["x.vcf.gz"]
    assert path.read_bytes() == b"old"


def test_indices_of_an_earlier_file_are_replaced(tmp_path):
    for suffix in (".tbi", ".csi"):
        (tmp_path / f"x.vcf.gz{suffix}").write_bytes(b"old")
    path = write(tmp_path / "x.vcf.gz", [2], make_dosage(3, 2))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.vcf.gz", "x.vcf.gz.tbi"]
    assert gzip.decompress(path.with_name("x.vcf.gz.tbi").read_bytes())[:4] == b"TBI\1"


@pytest.mark.parametrize("suffix", ["vcf", "vcf.gz", "bcf"])
def test_nothing_appears_before_the_end(tmp_path, suffix):
    path = tmp_path / f"x.{suffix}"
    writer = start(path)
    writer.write_block(RecordBlock("20", make_sites(3), np.zeros((3, 3)), {}, None, np.zeros(3, dtype=bool)))
    assert not path.exists()
    writer.close()
    writer.close()
    assert path.exists()


def test_paths_that_cannot_be_written(tmp_path):
    (tmp_path / "folder.bcf").mkdir()
    with pytest.raises(InputError, match="it is a folder"):
        start(tmp_path / "folder.bcf")
    with pytest.raises(InputError, match="there is no folder"):
        start(tmp_path / "none" / "x.bcf")
    with pytest.raises(InputError, match=r"cannot write .*too long"):
        start(tmp_path / ("x" * 254 + ".bcf"))
    with pytest.raises(InputError, match="not a regular file"):
        start("/dev/null", output_type="b")
    assert [file.name for file in tmp_path.iterdir()] == ["folder.bcf"]


def test_the_format_goes_by_the_suffix_or_is_given(tmp_path):
    with pytest.raises(InputError, match=r"must end with \.vcf\.gz, \.bcf, \.vcf"):
        start(tmp_path / "x.txt")
    with pytest.raises(InputError, match="unknown output type 'q'"):
        start(tmp_path / "x.bcf", output_type="q")
    start(tmp_path / "x.out", output_type="b").close()
    assert gzip.decompress((tmp_path / "x.out").read_bytes())[:5] == b"BCF\2\2"
    assert (tmp_path / "x.out.csi").exists()


def test_contradictory_arguments(tmp_path):
    path = tmp_path / "x.bcf"
    for options, message in (
        ({"formats": ("DS", "GT")}, "GT must be the first"),
        ({"formats": ("GT", "GL")}, "distinct names out of GT, DS, HDS, GP"),
        ({"formats": ()}, "distinct names"),
        ({"decimals": 0}, "decimals must be 1 to 5, got 0"),
        ({"decimals": 6}, "decimals must be 1 to 5, got 6"),
        ({"header_lines": ["source=x"]}, "not a line of a VCF header"),
        (
            {"extra_info_lines": ['##INFO=<ID=R2,Number=1,Type=Float,Description="x">']},
            "INFO/R2 is defined twice",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            start(path, **options)
    assert list(tmp_path.iterdir()) == []


def test_blocks_that_do_not_fit(tmp_path):
    sites, dosage, typed = make_sites(4), np.zeros((4, 3), np.float32), np.zeros(4, dtype=bool)
    writer = start(tmp_path / "x.bcf", contig_lines=[*CONTIGS, "##contig=<ID=21>"])
    for arguments, message in (
        (("22", sites, dosage, {}, None, typed), "no contig line was given for 22"),
        (("20", sites, dosage, {"R3": np.zeros(4)}, None, typed), "no INFO field R3"),
        (("20", sites.take(slice(None, None, -1)), dosage, {}, None, typed), "positions on 20 go backwards"),
    ):
        with pytest.raises(ValueError, match=message):
            writer.write_block(RecordBlock(*arguments))
    writer.write_block(RecordBlock("20", sites, dosage, {}, None, typed))
    with pytest.raises(ValueError, match="go backwards"):
        writer.write_block(RecordBlock("20", sites, dosage, {}, None, typed))
    writer.write_block(RecordBlock("21", sites, dosage, {}, None, typed))
    with pytest.raises(ValueError, match="not consecutive"):
        writer.write_block(RecordBlock("20", sites, dosage, {}, None, typed))
    writer.abandon()
    assert list(tmp_path.iterdir()) == []
