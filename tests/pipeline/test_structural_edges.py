"""Unusual records of structural variants: sequences beside symbolic alleles, duplicates, impossible ends."""

import shutil
import subprocess
import warnings
from collections.abc import Callable
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.structural import StructuralVariant, describe_variant
from spinimpute.runtime.errors import InputError

SAMPLES = 8


def calls(rng: np.random.Generator, n_alleles: int = 2) -> list[str]:
    alleles = rng.permutation(np.arange(2 * SAMPLES) % n_alleles)
    return [f"{a}|{b}" for a, b in alleles.reshape(-1, 2)]


@pytest.fixture
def build(write_vcf, tmp_path, rng) -> Callable[..., spinimpute.Panel]:
    """build(*records, name): a panel with ten SNPs and some records."""
    snps = [(1000 + 100 * i, "A", "C", calls(rng)) for i in range(10)]

    def built(*records, name: str = "p") -> spinimpute.Panel:
        rows = sorted([*snps, *records], key=lambda row: row[0])
        source = write_vcf(rows, [f"{name}{i}" for i in range(SAMPLES)], f"{name}.vcf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no genetic map
            return spinimpute.build_panel(source, tmp_path / f"{name}.spin", keep_phase=True, force=True)

    return built


@pytest.fixture
def target(write_vcf) -> Path:
    return write_vcf([(1000 + 100 * i, "A", "C", ["0|1", "1|1"]) for i in range(10)], name="target.vcf")


def ends(path: Path) -> dict[tuple[int, str], int | None]:
    return {(v.POS, ",".join(v.ALT)): v.INFO.get("END") for v in cyvcf2.VCF(str(path))}


def test_a_sequence_split_from_a_variant_has_no_end(build, rng, target, tmp_path):
    settings = spinimpute.OutputSettings(split_multiallelic=True)
    with build((1550, "A", "G,<DEL>", calls(rng, 3), "END=1800")) as panel:
        spinimpute.impute(target, tmp_path / "o.bcf", panel, output=settings)
        spinimpute.impute(target, tmp_path / "joined.bcf", panel)
    found = ends(tmp_path / "o.bcf")
    assert (found[1550, "<DEL>"], found[1550, "G"]) == (1800, None)
    assert ends(tmp_path / "joined.bcf")[1550, "<DEL>,G"] == 1800


@pytest.mark.parametrize("suffix", ["vcf", "bcf"])
def test_unmatched_sites_of_mixed_records(build, target, write_vcf, tmp_path, suffix):
    mixed = [(1000 + 100 * i, "A", "C", ["0|1", "1|1"]) for i in range(10)]
    mixed.insert(6, (1550, "A", "G,<DEL>", ["0|1", "2|0"], "END=1800"))
    settings = spinimpute.OutputSettings(keep_unmatched=True)
    with build() as panel:
        vcf = write_vcf(mixed, name="mixed.vcf")
        spinimpute.impute(vcf, tmp_path / f"o.{suffix}", panel, output=settings)
    assert ends(tmp_path / f"o.{suffix}")[1550, "G"] is None


def test_a_sequence_whose_variant_is_contradictory(build, rng, target, tmp_path):
    records = (1550, "A", "G,<DEL>", calls(rng, 3), "END=1800"), (1550, "A", "<DEL>", calls(rng), "END=1800")
    with build(*records) as panel:
        assert panel.sites.alt[6] == "G"
        spinimpute.impute(target, tmp_path / "o.bcf", panel)
    assert ends(tmp_path / "o.bcf")[1550, "G"] is None


def test_copies_of_a_sequence_stay_in_its_record(build, rng):
    """In both orders of the file."""
    mixed = calls(rng, 3)
    alone = [call.replace("2", "0") for call in mixed]
    records = [(1550, "A", "G", alone), (1550, "A", "G,<DEL>", mixed, "END=1800")]
    for order in (records, records[::-1]):
        with build(*order) as panel:
            assert panel.sites.alt[6:8] == ["<DEL>", "G"]
            assert panel.records.continues[6:8].tolist() == [False, True]


def test_merged_sequences_stay_in_their_record(build, rng, tmp_path):
    first, second = calls(rng, 3), calls(rng, 2)
    build((1550, "A", "G,<DEL>", first, "END=1800"), name="a").close()
    build((1550, "A", "G", second), name="b").close()
    for number, names in enumerate(("ab", "ba")):
        out = tmp_path / f"{number}.spin"
        spinimpute.merge_panels([tmp_path / f"{name}.spin" for name in names], out)
        with spinimpute.Panel.open(out) as merged:
            assert merged.sites.alt[6:8] == ["<DEL>", "G"]
            assert merged.records.continues[6:8].tolist() == [False, True]
            assert merged.alleles(6, 8).sum(axis=0).max() == 1


def test_insertions_of_two_lengths(build, rng):
    records = [(1550, "A", "<INS>", calls(rng), f"SVLEN={length}") for length in (300, 6000)]
    with build(*records) as panel:
        assert [key[2] for key in panel.sites.keys()[6:8]] == [
            "<INS>;END=1550;SVLEN=300",
            "<INS>;END=1550;SVLEN=6000",
        ]
        assert panel.provenance["skipped"] == {}


def test_variants_of_unknown_end_are_reported(rng, write_vcf, tmp_path):
    """Their SVLEN is not a number, or they have several for one ALT. Insertions end with REF."""
    infos = ("SVLEN=abc", "SVLEN=-300,-300", "SVLEN=-300", "END=1800", ".")
    rows = [(1500 + 10 * i, "A", "<DEL>", calls(rng), info) for i, info in enumerate(infos)]
    rows.append((1600, "A", "<INS>", calls(rng), "."))
    source = write_vcf(rows, [f"s{i}" for i in range(SAMPLES)], "p.vcf")
    with pytest.warns(UserWarning, match="without a valid END or SVLEN: 3, the first <DEL> at 20:1500"):
        panel = spinimpute.build_panel(source, tmp_path / "p.spin")
    with panel:
        ends = [panel.sites.structural[row].end for row in range(6)]
        assert ends == [1500, 1510, 1820, 1800, 1540, 1600]


def test_an_end_beyond_the_last_position() -> None:
    info = {"SVLEN": "-999999999"}.get
    assert describe_variant(2_000_000_000, "AT", ["<DEL>"], info) == [
        StructuralVariant(2_000_000_001, "", "-999999999")
    ]


@pytest.mark.parametrize("end", ["7", "1099511627776", "99999999999999999999", "1e3"])
def test_chunks_with_an_impossible_end(build, rng, target, tmp_path, end):
    chunks = []
    with build((1550, "A", "<DEL>", calls(rng), "END=1800")) as panel:
        for number, region in enumerate(("20:1-1500", "20:1501-")):
            chunks.append(tmp_path / f"{number}.vcf")
            settings = spinimpute.RegionSettings(region)
            spinimpute.impute(target, chunks[-1], panel, region=settings)
    chunks[1].write_text(chunks[1].read_text().replace("END=1800", f"END={end}"))
    with pytest.raises(InputError, match=r"its last position is|its columns ID to INFO"):
        spinimpute.ligate(chunks, tmp_path / "o.vcf")
    assert not (tmp_path / "o.vcf").exists()


@pytest.mark.parametrize("suffix", ["vcf.gz", "bcf"])
def test_an_index_finds_a_deletion_after_an_allele_of_a_longer_one(build, rng, target, tmp_path, suffix):
    """The ALT * comes first in the record."""
    if (bcftools := shutil.which("bcftools")) is None:
        pytest.skip("bcftools is not installed")
    out = tmp_path / f"o.{suffix}"
    with build((1550, "A", "<DEL>,*", calls(rng, 3), "END=90000")) as panel:
        spinimpute.impute(target, out, panel)
    found = subprocess.run([bcftools, "view", "-H", "-r", "20:80000", out], capture_output=True, check=True)
    assert found.stdout.split(b"\t")[1:5:3] == [b"1550", b"*,<DEL>"]


def test_merged_records_stay_apart_if_one_panel_has_them_apart(build, rng, tmp_path):
    """A haplotype of panel a has alleles of two records; no haplotype of panel b does."""
    snps, insertions = ["1|2", "0|0", "2|1", *["0|1"] * 5], ["0|0", "1|2", "0|0", *["2|0"] * 5]
    for name, more in (("a", ["1|0", *insertions[1:]]), ("b", insertions)):
        build((1550, "A", "C,G", snps), (1550, "A", "AT,ATT", more), name=name).close()
    for number, names in enumerate(("ab", "ba")):
        out = tmp_path / f"{number}.spin"
        spinimpute.merge_panels([tmp_path / f"{name}.spin" for name in names], out)
        with spinimpute.Panel.open(out) as merged:
            assert merged.sites.alt[6:10] == ["C", "G", "AT", "ATT"]
            assert merged.records.continues[6:10].tolist() == [False, True, False, False]


def test_a_snp_and_an_insertion_on_one_haplotype(write_vcf, rng, tmp_path):
    """They are of two records with several ALTs, and both keep their alleles, imputed or typed."""
    founder = rng.integers(0, 8, (2, 40))
    snps, insertions = np.array([1, 1, 2, 0, 0, 0, 0, 0]), np.array([1, 0, 0, 2, 0, 0, 0, 0])
    alleles = {position: rng.integers(0, 2, 8) for position in range(1000, 5000, 100)}

    def rows(n_samples: int, others: bool) -> list:
        found = []
        for position, of_founder in alleles.items():
            at = [(position, "A", "G", of_founder)]
            if position == 3000:
                at = [(position, "A", "C,G", snps), (position, "A", "AT,ATT", insertions)] if others else []
            for *fixed, own in at:
                found.append((*fixed, [f"{a}|{b}" for a, b in own[founder].T[:n_samples]]))
        return found

    source = write_vcf(rows(40, True), [f"p{i}" for i in range(40)], "panel.vcf")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # no genetic map
        panel = spinimpute.build_panel(source, tmp_path / "p.spin", keep_phase=True)
    with panel:
        for typed in (False, True):
            vcf = write_vcf(rows(20, typed), [f"t{i}" for i in range(20)], "t.vcf")
            spinimpute.impute(vcf, tmp_path / "o.vcf", panel, force=True)
            carried = {
                alt: np.array([[a == k for a in call[:2]] for call in variant.genotypes])
                for variant in cyvcf2.VCF(str(tmp_path / "o.vcf"))
                if variant.POS == 3000
                for k, alt in enumerate(variant.ALT, start=1)
            }
            for alt, of_founder, number in (("C", snps, 1), ("G", snps, 2), ("AT", insertions, 1)):
                expected = (of_founder[founder] == number).T[:20]
                assert (carried[alt] == expected).mean() > (0.999 if typed else 0.9)
