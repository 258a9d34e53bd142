"""`--out x.pgen`: what PLINK 2 and pgenlib read is what the VCF of the same run holds."""

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.outputs.opening import choose_format
from spinimpute.outputs.plink_writer import PlinkWriter
from spinimpute.pipeline.settings import RegionSettings, TargetSettings
from spinimpute.pipeline.typed_file import convert
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter

pgenlib = pytest.importorskip("pgenlib")

REGION = "20:200000-400000"
PAR1_END = 2_699_520  # GRCh37


def plink2(folder: Path, *arguments: object) -> None:
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed")
    command = [program, "--threads", "1", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def lines_of(path: Path) -> list[list[str]]:
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    return [line.split("\t") for line in text.splitlines() if not line.startswith("##")]


def dosages(path: Path) -> np.ndarray:
    """float32 (records, samples), -9 where missing."""
    with pgenlib.PgenReader(bytes(path)) as reader:
        found = np.empty((reader.get_variant_ct(), reader.get_raw_sample_ct()), np.float32)
        reader.read_dosages_range(0, len(found), found)
    return found


def vcf_dosages(path: Path) -> np.ndarray:
    rows = lines_of(path)[1:]
    place = rows[0][8].split(":").index("DS")
    return np.array([[float(call.split(":")[place]) for call in row[9:]] for row in rows])


@pytest.fixture(scope="module")
def imputed(example: Path, example_panel: spinimpute.Panel, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with i.vcf.gz and i.pgen of the same run."""
    folder = tmp_path_factory.mktemp("imputed")
    for name in ("i.vcf.gz", "i.pgen"):
        spinimpute.impute(
            example / "target.vcf.gz", folder / name, example_panel, region=RegionSettings(REGION)
        )
    return folder


def test_dosages_are_those_of_the_vcf(imputed: Path) -> None:
    expected = vcf_dosages(imputed / "i.vcf.gz")
    assert np.abs(dosages(imputed / "i.pgen") - expected).max() <= 1 / 2**15  # half a step of .pgen
    assert ((expected > 0.1) & (expected < 0.9)).any()
    vcf, pvar = lines_of(imputed / "i.vcf.gz"), lines_of(imputed / "i.pvar")
    assert pvar == [row[:8] for row in vcf]
    assert "R2=" in pvar[1][7]
    header = (imputed / "i.pvar").read_text()
    assert "##INFO=<ID=R2," in header
    assert "##source=spinimpute" in header
    assert (imputed / "i.psam").read_text().split() == [
        "#IID", "SEX", *(word for name in vcf[0][9:] for word in (name, "NA"))
    ]  # fmt: skip
    assert sorted(path.name for path in imputed.iterdir() if path.name.startswith(".")) == []


def test_association_is_that_of_the_vcf(imputed: Path, tmp_path: Path) -> None:
    """The commands of docs/association.md."""
    expected = vcf_dosages(imputed / "i.vcf.gz")
    samples = lines_of(imputed / "i.vcf.gz")[0][9:]
    causal = expected[expected.var(axis=1).argmax()]
    noise = np.random.default_rng(1).normal(size=len(samples))
    rows = [f"{name}\t{value:.6f}" for name, value in zip(samples, causal + noise, strict=True)]
    (tmp_path / "traits.txt").write_text("\n".join(["#IID\tTRAIT", *rows]) + "\n")
    model = ["--glm", "allow-no-covars", "--pheno", "traits.txt"]
    model += ["--extract-if-info", "R2 >= 0.3"]
    plink2(tmp_path, "--pfile", imputed / "i", *model, "--out", "pgen")
    plink2(tmp_path, "--vcf", imputed / "i.vcf.gz", "dosage=DS", *model, "--out", "vcf")
    of_pgen, of_vcf = (lines_of(tmp_path / f"{name}.TRAIT.glm.linear") for name in ("pgen", "vcf"))
    assert of_pgen == of_vcf
    p_values = [float(row[of_pgen[0].index("P")]) for row in of_pgen[1:] if row[-2] != "NA"]
    assert len(p_values) > 20
    assert min(p_values) < 0.01


def test_calls_alone_keep_their_phase(
    example: Path, example_panel: spinimpute.Panel, imputed: Path, tmp_path: Path
) -> None:
    for name in ("t.vcf.gz", "t.pgen"):
        convert(example / "target.vcf.gz", tmp_path / name, example_panel)
    convert(tmp_path / "t.pgen", tmp_path / "again.vcf.gz", example_panel)
    rows = lines_of(tmp_path / "t.vcf.gz")
    assert lines_of(tmp_path / "again.vcf.gz") == rows
    assert any("0|1" in row for row in rows)
    spinimpute.impute(tmp_path / "t.pgen", tmp_path / "i.pgen", example_panel, region=RegionSettings(REGION))
    assert (tmp_path / "i.pgen").read_bytes() == (imputed / "i.pgen").read_bytes()


def test_what_is_missing_or_without_phase(tmp_path: Path) -> None:
    """Also in blocks, with a sample of one copy: it counts as two."""
    sites = Sites("1", np.array([5, 9]), ["A", "C"], ["G", "T"], ["rs5", "."])
    alleles = np.array([[0, 1, 1, -1, 0], [1, 0, 0, -1, -1]], np.int8)  # two, one, two copies
    unphased = np.array([[False, False, False], [True, False, False]])
    dosage = np.where(alleles < 0, np.nan, alleles).astype(np.float32)
    for name, formats in (("calls", ("GT",)), ("dosages", ("GT", "DS"))):
        path = tmp_path / f"{name}.pgen"
        layout = OutputLayout(["a", "b", "c"], np.array([2, 1, 2]), ["##contig=<ID=1>"], (), formats)
        with PlinkWriter(path, layout, 2) as writer:
            for row in ([0], [1]):
                these, typed = sites.take(np.array(row)), np.ones(1, bool)
                writer.write_block(
                    RecordBlock("1", these, dosage[row], {}, alleles[row], typed, unphased[row])
                )
        assert dosages(path).tolist() == [[1, 2, -9], [1, 0, -9]]
    with pgenlib.PgenReader(bytes(tmp_path / "calls.pgen")) as reader:
        codes, phased = np.empty(6, np.int32), np.empty(3, np.uint8)
        reader.read_alleles_and_phasepresent(0, codes, phased)
        assert codes.tolist() == [0, 1, 1, 1, -9, -9]
        assert phased[0]
        reader.read_alleles_and_phasepresent(1, codes, phased)
        assert not phased[0]


@pytest.mark.parametrize("part", ["PAR1", "X"])
def test_chromosome_x(tmp_path: Path, part: str) -> None:
    """Men's dosages are those that plink2 makes of the VCF; the ends of X have PLINK's names."""
    position = PAR1_END if part == "PAR1" else PAR1_END + 1
    sites = Sites("X", np.array([position]), ["A"], ["G"], ["rs1"])
    ploidy = np.array([2, 2] if part == "PAR1" else [1, 2])
    dosage = np.array([[0.25, 0.125, 1.0, 0.5][: ploidy.sum()]], np.float32)
    contig = ["##contig=<ID=X,length=155270560>"]
    layout = OutputLayout(["man", "woman"], ploidy, contig)
    with PlinkWriter(tmp_path / "x.pgen", layout, 1) as writer:
        writer.write_block(RecordBlock("X", sites, dosage, {}, None, np.zeros(1, bool)))
    with GenotypeWriter(tmp_path / "x.vcf", layout) as other:
        other.write_block(RecordBlock("X", sites, dosage, {}, None, np.zeros(1, bool)))
    assert lines_of(tmp_path / "x.pvar")[1][:2] == [part, str(position)]
    sexes = ["1", "2"] if part == "X" else ["NA", "NA"]
    assert [row[1] for row in lines_of(tmp_path / "x.psam")[1:]] == sexes
    expected = [0.375, 1.5] if part == "PAR1" else [0.5, 1.125]
    assert dosages(tmp_path / "x.pgen").tolist() == [expected]
    (tmp_path / "sexes.txt").write_text("#IID\tSEX\nman\t1\nwoman\t2\n")
    arguments = ["--psam", "sexes.txt", "--make-pgen", "--out", "made"]
    plink2(tmp_path, "--vcf", "x.vcf", "dosage=DS", *arguments)
    assert dosages(tmp_path / "made.pgen").tolist() == [expected]
    plink2(tmp_path, "--pfile", "x", "--freq", "--out", "x")
    head, row = lines_of(tmp_path / "x.afreq")
    assert (row[0], row[head.index("OBS_CT")]) == (part, "4" if part == "PAR1" else "3")
    assert float(row[head.index("ALT_FREQS")]) == pytest.approx(dosage.mean(), abs=1e-4)


@pytest.mark.parametrize("there", ["o.pgen", "o.pvar", "o.psam", "o.sample"])
def test_existing_files(example: Path, example_panel: spinimpute.Panel, tmp_path: Path, there: str) -> None:
    written = ["o.bgen", "o.bgen.bgi", "o.sample"] if there == "o.sample" else ["o.pgen", "o.psam", "o.pvar"]
    (tmp_path / there).write_text("mine")
    target, out = example / "target.vcf.gz", tmp_path / written[0]
    with pytest.raises(InputError, match=rf"{there} already exists; use force=True"):
        convert(target, out, example_panel)
    assert [path.name for path in tmp_path.iterdir()] == [there]
    convert(target, out, example_panel, force=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == written
    assert (tmp_path / there).read_bytes() != b"mine"


def test_nothing_is_left_after_an_error(tmp_path: Path) -> None:
    layout = OutputLayout(["a"], np.array([2]), ["##contig=<ID=1>"], (), ("GT",))
    with pytest.raises(ZeroDivisionError), PlinkWriter(tmp_path / "o.pgen", layout, 2):
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(InputError, match=r"cannot write .*o\.pgen: pgenlib failed \(.*unequal"):
        PlinkWriter(tmp_path / "o.pgen", layout, 2).close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["a b", "0", "#a"])
def test_names_that_plink_cannot_read(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="which PLINK cannot read"):
        PlinkWriter(tmp_path / "o.pgen", OutputLayout([name], np.array([2]), ["##contig=<ID=1>"]), 1)
    assert list(tmp_path.iterdir()) == []


def test_sexes_that_are_given(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    first = lines_of(example / "target.vcf.gz")[0][9]
    target = TargetSettings(sexes={first: True})
    convert(example / "target.vcf.gz", tmp_path / "o.pgen", example_panel, target=target)
    assert lines_of(tmp_path / "o.psam")[1] == [first, "1"]


def test_a_type_that_contradicts_the_name() -> None:
    with pytest.raises(InputError, match=r"'b' contradicts the name o\.pgen, which means pgen"):
        choose_format(Path("o.pgen"), "b")


@pytest.mark.parametrize("name", ["o.pgen", "o.bgen", "o.vcf", "o.bcf"])
def test_a_full_disk(
    example: Path, example_panel: spinimpute.Panel, small_disk: Callable[[int], Any], name: str
) -> None:
    folder = small_disk(40).folder
    with pytest.raises(InputError, match=rf"cannot write .*{name}: "):
        spinimpute.impute(example / "target.vcf.gz", folder / name, example_panel)
    assert list(folder.iterdir()) == []


def test_fields_that_pgen_cannot_hold(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    for formats, message in (
        (("GT", "HDS"), "holds GT or DS, not HDS. Leave it out, or write .bgen, .bcf or .vcf.gz"),
        (("GT", "GP", "HDS"), "holds GT or DS, not GP and HDS. Leave them out"),
    ):
        with pytest.raises(InputError, match=message):
            spinimpute.impute(
                example / "target.vcf.gz",
                tmp_path / "o.pgen",
                example_panel,
                output=spinimpute.OutputSettings(formats),
            )
    assert list(tmp_path.iterdir()) == []
