"""Relations between runs: the answer does not depend on how the question is written down."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.genetic_map import GeneticMap
from spinimpute.pipeline.settings import OutputSettings, RegionSettings
from spinimpute.vcf.reader import read_haplotypes

pytestmark = pytest.mark.slow

N_SITES, N_SAMPLES = 1_300, 12
NEW_ALLELE, LINKED = 12, 3  # every 12th site has a second ALT allele
# of 26 records, which have two such sites: one is typed half, one whole
TYPED = (0, 3, 7, 10, 13, 16, 17, 20, 23)
ROUNDING = 1.01e-5  # one step of the last decimal
OUTPUT = OutputSettings(("GT", "DS", "HDS"), decimals=5)

Site = tuple[int, str, str]  # POS, REF, ALT


@dataclass(frozen=True)
class Variants:
    """Phased alleles of samples, int8 (records, samples, 2)."""

    samples: list[str]
    sites: list[Site]
    alleles_SX2: np.ndarray

    def take(self, rows: list[int] | range) -> Variants:
        return Variants(self.samples, [self.sites[i] for i in rows], self.alleles_SX2[rows])

    def sorted(self) -> Variants:
        return self.take(sorted(range(len(self.sites)), key=self.sites.__getitem__))

    def backwards_at_each_position(self) -> Variants:
        return self.take(sorted(range(len(self.sites)), key=lambda i: (self.sites[i][0], -i)))

    def of_samples(self, order: np.ndarray) -> Variants:
        return Variants([self.samples[x] for x in order], self.sites, self.alleles_SX2[:, order])

    def named(self, name: str) -> Variants:
        return replace(self, samples=[f"{name}{x}" for x in range(len(self.samples))])

    def unphased(self) -> Variants:
        return replace(self, alleles_SX2=np.sort(self.alleles_SX2, axis=2))

    def exchanged(self, chosen: set[Site]) -> Variants:
        """With REF and ALT of some sites exchanged."""
        turned = np.array([site in chosen for site in self.sites])
        sites = [
            (p, alt, ref) if is_turned else (p, ref, alt)
            for (p, ref, alt), is_turned in zip(self.sites, turned.tolist(), strict=True)
        ]
        return Variants(self.samples, sites, self.alleles_SX2 ^ turned[:, None, None])

    def write(self, path: Path, chrom: str = "20", between: str = "|") -> Path:
        columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *self.samples]
        lines = [
            "##fileformat=VCFv4.3",
            f"##contig=<ID={chrom},length=64444167>",
            '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">',
            "\t".join(columns),
        ]
        for (position, ref, alt), calls_X2 in zip(self.sites, self.alleles_SX2.tolist(), strict=True):
            calls = [f"{first}{between}{second}" for first, second in calls_X2]
            lines.append("\t".join([chrom, str(position), ".", ref, alt, ".", ".", ".", "GT", *calls]))
        path.write_text("\n".join(lines) + "\n")
        return path

    def build(self, path: Path, chrom: str = "20", keep_map: bool = False) -> Path:
        """A panel file."""
        vcf = self.write(path.with_suffix(".panel.vcf"), chrom)
        with spinimpute.build_panel(vcf, path, GeneticMap.constant(), keep_map=keep_map) as panel:
            return panel.path


@dataclass(frozen=True)
class Question:
    """A panel and its file, a target and its file, and the answer: the imputed VCF."""

    panel: Variants
    panel_file: Path
    target: Variants
    target_file: Path
    answer: Path


def ask(panel: Variants, target: Variants, folder: Path, keep_map: bool = False) -> Question:
    panel_file, target_file = (
        panel.build(folder / "p.spin", keep_map=keep_map),
        target.write(folder / "t.vcf"),
    )
    return Question(panel, panel_file, target, target_file, impute(target_file, panel_file, folder / "o.vcf"))


def impute(target: Path, panel: Path, out: Path, **settings: object) -> Path:
    given = {"output": OUTPUT, "resources": spinimpute.Resources(threads=1)} | settings
    spinimpute.impute(target, out, panel, **given)  # type: ignore[arg-type]
    return out


def records(path: Path) -> list[str]:
    """The records of a plain VCF as lines."""
    return [line for line in path.read_text().splitlines() if line[0] != "#"]


def haplotype_dosages(path: Path) -> dict[Site, np.ndarray]:
    """HDS of every site, float (samples, 2)."""
    return {(v.POS, v.REF, v.ALT[0]): v.format("HDS").astype(float) for v in cyvcf2.VCF(str(path))}


def with_second_alleles(variants: Variants) -> Variants:
    """A second ALT allele at some positions, in linkage with a site near by."""
    new = np.arange(LINKED, len(variants.sites) - LINKED, NEW_ALLELE)
    carried = variants.alleles_SX2[new + LINKED] & ~variants.alleles_SX2[new] & 1
    sites = list(variants.sites)
    for i in new.tolist():
        position, ref, alt = sites[i]
        sites.append((position, ref, next(letter for letter in "ACGT" if letter not in (ref, alt))))
    return Variants(variants.samples, sites, np.concatenate([variants.alleles_SX2, carried])).sorted()


@pytest.fixture(scope="module")
def question(example, tmp_path_factory) -> Question:
    """A panel with multi-allelic sites, and a target that has typed some of their records."""

    def read(name: str) -> Variants:
        read = read_haplotypes(example / name)
        sites = list(zip(read.sites.position.tolist(), read.sites.ref, read.sites.alt, strict=True))
        alleles_SX2 = read.alleles[:N_SITES].reshape(N_SITES, -1, 2)
        return with_second_alleles(Variants(read.samples, sites[:N_SITES], alleles_SX2))

    panel, truth = read("panel.vcf.gz"), read("truth.vcf.gz")
    assert panel.sites == truth.sites
    typed = [i for i in range(len(truth.sites)) if i % 26 in TYPED]
    target = truth.take(typed).of_samples(np.arange(N_SAMPLES))
    return ask(panel, target, tmp_path_factory.mktemp("question"))


def test_order_of_target_samples(question, rng, tmp_path):
    """Other samples may also be absent; INFO is of all samples."""
    expected = haplotype_dosages(question.answer)
    for order in (rng.permutation(N_SAMPLES), np.array([5])):
        target = question.target.of_samples(order).write(tmp_path / "t.vcf")
        found = haplotype_dosages(impute(target, question.panel_file, tmp_path / f"{len(order)}.vcf"))
        assert found.keys() == expected.keys()
        assert all((found[site] == expected[site][order]).all() for site in expected)


def test_names_of_target_samples(question, tmp_path):
    target = question.target.named("x").write(tmp_path / "t.vcf")
    assert records(impute(target, question.panel_file, tmp_path / "o.vcf")) == records(question.answer)


def test_order_of_panel_haplotypes(question, rng, tmp_path):
    panel = question.panel.of_samples(rng.permutation(len(question.panel.samples)))
    panel.alleles_SX2[:, ::3] = panel.alleles_SX2[:, ::3, ::-1].copy()
    assert records(ask(panel, question.target, tmp_path).answer) == records(question.answer)


def test_names_of_panel_samples(question, tmp_path):
    answer = ask(question.panel.named("x"), question.target, tmp_path).answer
    assert records(answer) == records(question.answer)


def test_order_of_records_at_one_position(question, tmp_path):
    """In the panel and in the target; the output has the order of REF and ALT."""
    panel = question.panel.backwards_at_each_position()
    target = question.target.backwards_at_each_position()
    assert panel.sites != question.panel.sites
    assert target.sites != question.target.sites
    assert records(ask(panel, target, tmp_path).answer) == records(question.answer)


def test_unphased_targets(question, rng, tmp_path):
    """Samples are phased together: none may be left out, but order and names make no difference."""
    order = rng.permutation(N_SAMPLES)
    panel = question.panel.backwards_at_each_position().build(tmp_path / "p.spin")
    target, found = question.target.unphased(), []
    for name, one, panel_file in (
        ("a", target, question.panel_file),
        ("b", target.of_samples(order).named("x"), panel),
    ):
        vcf = one.write(tmp_path / f"{name}.vcf", between="/")
        found.append(haplotype_dosages(impute(vcf, panel_file, tmp_path / f"{name}.o.vcf")))
    assert all((found[1][site] == found[0][site][order]).all() for site in found[0])


def test_regions_that_are_ligated(question, tmp_path):
    """The target is a file of `convert`, whose header has the recombination scale of all typed sites."""
    target = tmp_path / "t.vcf"
    spinimpute.convert(question.target_file, target, question.panel_file)
    middle = question.panel.sites[600][0]
    chunks = [
        impute(target, question.panel_file, tmp_path / f"{i}.vcf", region=RegionSettings(region, 0.05))
        for i, region in enumerate((f"20:1-{middle}", f"20:{middle + 1}-"))
    ]
    spinimpute.ligate(chunks, tmp_path / "all.vcf", panel=question.panel_file)
    assert records(tmp_path / "all.vcf") == records(question.answer)


@pytest.mark.parametrize("end", [".vcf.gz", ".bcf"])
def test_variant_files(question, tmp_path, convert_vcf, end):
    target = convert_vcf(question.target_file, tmp_path / f"t{end}")
    panel = convert_vcf(question.panel.write(tmp_path / "p.vcf"), tmp_path / f"p{end}")
    with spinimpute.build_panel(panel, tmp_path / "p.spin", GeneticMap.constant()):
        found = haplotype_dosages(impute(target, tmp_path / "p.spin", tmp_path / f"o{end}"))
    expected = haplotype_dosages(question.answer)
    assert list(found) == list(expected)
    assert all((found[site] == expected[site]).all() for site in expected)


def plink2(*arguments: object) -> None:
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed")
    subprocess.run([program, "--threads", "1", *map(str, arguments)], check=True, capture_output=True)


def test_plink_targets(question, tmp_path):
    """PLINK 2 keeps the phase; PLINK 1 has none."""
    unphased = question.target.unphased().write(tmp_path / "u.vcf", between="/")
    plink2("--vcf", question.target_file, "--make-pgen", "--out", tmp_path / "t")
    plink2("--vcf", unphased, "--make-bed", "--out", tmp_path / "t")
    found = impute(tmp_path / "t.pgen", question.panel_file, tmp_path / "pgen.vcf")
    assert records(found) == records(question.answer)
    expected = impute(unphased, question.panel_file, tmp_path / "unphased.vcf")
    assert records(impute(tmp_path / "t.bed", question.panel_file, tmp_path / "bed.vcf")) == records(expected)


def test_plink_and_bgen_outputs(question, tmp_path):
    pgenlib, bgen = pytest.importorskip("pgenlib"), pytest.importorskip("bgen")
    expected = np.array([dosage.sum(axis=1) for dosage in haplotype_dosages(question.answer).values()])
    for name in ("o.pgen", "o.bgen"):
        impute(
            question.target_file,
            question.panel_file,
            tmp_path / name,
            output=replace(OUTPUT, formats=("GT", "DS")),
        )
    found = np.empty(expected.shape, np.float32)
    with pgenlib.PgenReader(bytes(tmp_path / "o.pgen")) as reader:
        reader.read_dosages_range(0, len(found), found)
    np.testing.assert_allclose(found, expected, atol=1 / 2**15 + ROUNDING)  # half a step of .pgen
    with bgen.BgenReader(tmp_path / "o.bgen") as variants:
        found = np.array([variant.alt_dosage for variant in variants])
    np.testing.assert_allclose(found, expected, atol=1.5 / 255 + ROUNDING)  # half a step for each probability


def test_chr_prefixes(question, tmp_path):
    target = question.target.write(tmp_path / "t.vcf", "chr20")
    found = impute(target, question.panel_file, tmp_path / "20.vcf")
    assert records(found) == records(question.answer)
    panel = question.panel.build(tmp_path / "p.spin", "chr20")
    found = impute(target, panel, tmp_path / "chr20.vcf")
    assert [line.removeprefix("chr") for line in records(found)] == records(question.answer)


def trust(panel_file: Path) -> dict[Site, float]:
    with spinimpute.Panel.open(panel_file) as panel:
        return dict(zip(panel.sites.keys(), panel.prediction_trust.tolist(), strict=True))


def changes_if_exchanged(question: Question, chosen: set[Site], folder: Path) -> list[np.ndarray]:
    """By how much HDS changes, site by site, if REF and ALT of some sites are exchanged everywhere."""
    for name in ("before", "after"):
        (folder / name).mkdir(parents=True)
    before = ask(question.panel, question.target, folder / "before", keep_map=True)
    panel, target = question.panel.exchanged(chosen), question.target.exchanged(chosen)
    after = ask(panel, target, folder / "after", keep_map=True)
    trusts, dosages = (
        [read(path) for path in paths]
        for read, paths in (
            (trust, (before.panel_file, after.panel_file)),
            (haplotype_dosages, (before.answer, after.answer)),
        )
    )
    pairs = [(site, (site[0], site[2], site[1]) if site in chosen else site) for site in dosages[0]]
    trusted = [(site, key) for site, key in pairs if trusts[0][site] == trusts[1][key]]
    assert len(trusted) > 0.9 * len(pairs)
    return [np.abs(dosages[0][site] - np.abs(dosages[1][key] - (site in chosen))) for site, key in trusted]


def test_exchanged_alleles(question, tmp_path):
    """REF and ALT are exchanged in panel and target, except where two ALT alleles share a REF.

    Exchanging untyped sites changes nothing else, with a given genetic map. A map of the panel's own is
    estimated from haplotypes that a hash of their ALT alleles chooses. So is the recombination scale, at
    typed sites. And PBWT sorts REF before ALT: if typed sites are exchanged, other ones of equally long
    matches become candidates. Sites with another trust are left out: `panels.trust` orders haplotypes by a
    hash of ALT alleles.
    """
    positions = [site[0] for site in question.panel.sites]
    alone = {site for site in question.panel.sites if positions.count(site[0]) == 1}
    untyped = alone - set(question.target.sites)
    assert np.max(changes_if_exchanged(question, untyped, tmp_path / "untyped")) < ROUNDING
    assert np.mean(changes_if_exchanged(question, alone, tmp_path / "all")) < 1e-3


def test_monomorphic_panel_sites(question, tmp_path):
    """Sites that nobody carries, or everybody, change nothing but the last digit, by rounding errors.

    They lie between the others: a map of the panel's own is as long as the given one between its ends.
    """
    panel = question.panel
    taken = {position for position, _, _ in panel.sites}
    new = [(p + 1, "A", "C") for p, _, _ in panel.sites[::7] if p + 1 not in taken and p < max(taken)]
    alleles = np.zeros((len(new), *panel.alleles_SX2.shape[1:]), np.int8)
    alleles[::2] = 1
    more = Variants(panel.samples, panel.sites + new, np.concatenate([panel.alleles_SX2, alleles])).sorted()
    found = haplotype_dosages(ask(more, question.target, tmp_path).answer)
    assert all((found[site] == carried[0, 0]).all() for site, carried in zip(new, alleles, strict=True))
    for site, expected in haplotype_dosages(question.answer).items():
        np.testing.assert_allclose(found[site], expected, rtol=0, atol=ROUNDING, err_msg=str(site))
