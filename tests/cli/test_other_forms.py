"""Targets of PLINK and FinalReports: the same people give the same dosages; what is wrong is told."""

import gzip
import random
import shutil
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import cyvcf2
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.runtime.errors import InputError
from spinimpute.targets.formats import read_target

from .conftest import dosages

pytestmark = pytest.mark.slow

pgenlib = pytest.importorskip("pgenlib")


@dataclass(frozen=True)
class Site:
    """calls: int (n_samples, 2), 0 REF, 1 ALT, -1 missing."""

    chrom: str
    position: int
    name: str
    ref: str
    alt: str
    calls: np.ndarray

    def exchanged(self) -> "Site":
        calls = np.where(self.calls < 0, -1, 1 - self.calls)
        return replace(self, ref=self.alt, alt=self.ref, calls=calls)


def write_bed(prefix: Path, samples: list[str], sites: list[Site]) -> None:
    """PLINK 1: two bits a call, four samples a byte, ALT as the first allele of the .bim."""
    packed = bytearray(b"\x6c\x1b\x01")
    for site in sites:
        count = site.calls.sum(axis=1)
        code = np.select([(site.calls < 0).any(axis=1), count == 2, count == 1], [1, 0, 2], 3)
        code = np.append(code, np.zeros(-len(code) % 4, int)).reshape(-1, 4)
        packed += (code @ [1, 4, 16, 64]).astype(np.uint8).tobytes()
    prefix.with_suffix(".bed").write_bytes(packed)
    prefix.with_suffix(".bim").write_text(
        "".join(f"{s.chrom}\t{s.name}\t0\t{s.position}\t{s.alt}\t{s.ref}\n" for s in sites)
    )
    prefix.with_suffix(".fam").write_text("".join(f"0 {name} 0 0 0 -9\n" for name in samples))


def write_pgen(prefix: Path, samples: list[str], sites: list[Site], phased: bool = False) -> None:
    writer = pgenlib.PgenWriter(
        str(prefix.with_suffix(".pgen")).encode(),
        len(samples),
        len(sites),
        False,
        hardcall_phase_present=phased,
    )
    for site in sites:
        alleles = np.where(site.calls < 0, -9, site.calls).astype(np.int32).ravel()
        writer.append_alleles(np.ascontiguousarray(alleles), all_phased=phased)
    writer.close()
    rows = "".join(f"{s.chrom}\t{s.position}\t{s.name}\t{s.ref}\t{s.alt}\n" for s in sites)
    prefix.with_suffix(".pvar").write_text("#CHROM\tPOS\tID\tREF\tALT\n" + rows)
    prefix.with_suffix(".psam").write_text("#IID\tSEX\n" + "".join(f"{name}\tNA\n" for name in samples))


@pytest.fixture(scope="module")
def unphased(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example's target without phase."""
    lines = []
    for line in gzip.decompress((example / "target.vcf.gz").read_bytes()).decode().splitlines():
        if not line.startswith("#"):
            fields = line.split("\t")
            calls = ["/".join(sorted(call.split(":")[0].replace("|", "/").split("/"))) for call in fields[9:]]
            line = "\t".join([*fields[:8], "GT", *calls])
        lines.append(line)
    path = tmp_path_factory.mktemp("unphased") / "target.vcf"
    path.write_text("\n".join(lines) + "\n")
    return path


def sites_of(vcf: Path) -> tuple[list[str], list[Site]]:
    opened = cyvcf2.VCF(str(vcf))
    sites = [
        Site(v.CHROM, v.POS, f"rs{v.POS}", v.REF, v.ALT[0], v.genotype.array()[:, :2].astype(int))
        for v in opened
    ]
    return opened.samples, sites


@pytest.fixture(scope="module")
def people(unphased: Path) -> tuple[list[str], list[Site]]:
    return sites_of(unphased)


def final_report(path: Path, samples: list[str], sites: list[Site], separator: str = "\t") -> Path:
    head = ["[Header]", "GSGT Version\t2.0.4", f"Num SNPs\t{len(sites)}", "[Data]"]
    columns = ["SNP Name", "Sample ID", "Allele1 - Plus", "Allele2 - Plus", "GC Score", "Chr", "Position"]
    lines = [*head, separator.join(columns)]
    for x, sample in enumerate(samples):
        for site in sites:
            letters = [("-" if a < 0 else (site.ref, site.alt)[a]) for a in site.calls[x]]
            fields = [site.name, sample, *letters, "0.9", site.chrom, str(site.position)]
            lines.append(separator.join(fields))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_vcf(path: Path, samples: list[str], sites: list[Site]) -> Path:
    lines = [
        "##fileformat=VCFv4.2",
        "##contig=<ID=20>",
        '##FORMAT=<ID=GT,Number=1,Type=String,Description="">',
    ]
    lines.append("\t".join(["#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT".replace(" ", "\t"), *samples]))
    for site in sites:
        calls = ["/".join("." if a < 0 else str(a) for a in call) for call in site.calls.tolist()]
        fixed = [site.chrom, str(site.position), site.name, site.ref, site.alt, ".", ".", ".", "GT"]
        lines.append("\t".join([*fixed, *calls]))
    path.write_text("\n".join(lines) + "\n")
    return path


def test_records_of_the_same_site_are_merged(run, panel, people, tmp_path):
    """A known call wins over a missing one; a sample whose calls differ is missing there, and is counted."""
    samples, sites = people
    n = len(samples)
    missing, other = np.full((n, 2), -1), sites[150].calls.copy()
    other[0] = 0 if sites[150].calls[0].sum() else 1
    kept = sites[150].calls.copy()
    kept[0] = -1
    doubled = [
        *sites[:100],
        replace(sites[100], calls=missing),
        replace(sites[100], name="again"),
        *sites[101:150],
        sites[150],
        replace(sites[150], calls=other, name="again"),
        replace(sites[150], calls=np.where(np.arange(n)[:, None] == 1, other, -1), name="third"),
        *sites[151:],
    ]
    once = [*sites[:150], replace(sites[150], calls=kept), *sites[151:]]
    for name, few in (("doubled", doubled), ("once", once)):
        write_bed(tmp_path / name, samples, few)
        write_pgen(tmp_path / f"{name}_p", samples, few)
        write_vcf(tmp_path / f"{name}.vcf", samples, few)
        final_report(tmp_path / f"{name}.txt", samples, few)
    for form in ("{}.vcf", "{}.bed", "{}_p.pgen", "{}.txt"):
        found = []
        for name in ("doubled", "once"):
            out = tmp_path / f"o.{name}.vcf"
            target = tmp_path / form.format(name)
            done = run.impute(target, panel, out, "--force").ok()
            found.append(dosages(out))
            if name == "doubled":
                assert "1 contradictory calls of records of the same site: set missing" in done.err
        np.testing.assert_array_equal(*found)


def test_every_form_gives_the_same_dosages(run, panel, unphased, people, tmp_path):
    samples, sites = people
    write_bed(tmp_path / "b", samples, sites)
    write_pgen(tmp_path / "p", samples, sites)
    forms = {
        "vcf": ("--vcf", unphased),
        "bfile": ("--bfile", tmp_path / "b"),
        "bed": ("--vcf", tmp_path / "b.bed"),
        "pfile": ("--pfile", tmp_path / "p"),
        "report": ("--vcf", final_report(tmp_path / "report.txt", samples, sites)),
        "semicolon": ("--vcf", final_report(tmp_path / "report2.csv", samples, sites, ";")),
        "comma": ("--vcf", final_report(tmp_path / "report.csv", samples, sites, ",")),
    }
    found = {}
    for name, arguments in forms.items():
        out = tmp_path / f"{name}.vcf"
        run("impute", *arguments, "--panel", panel, "--out", out).ok()
        assert cyvcf2.VCF(str(out)).samples == samples
        found[name] = dosages(out)
        assert found[name].shape == (4453, 20)
        np.testing.assert_array_equal(found[name], found["vcf"], err_msg=name)


@pytest.mark.parametrize("suffix", [".vcf", ".bcf", ".vcf.gz"])
def test_converting(run, suffix, panel, people, tmp_path):
    samples, sites = people
    exchanged = [s.exchanged() if i % 3 == 0 else s for i, s in enumerate(sites)]
    write_bed(tmp_path / "b", samples, exchanged)
    out = tmp_path / f"o{suffix}"
    done = run("convert", "--bfile", tmp_path / "b", "--panel", panel, "--out", out).ok(
        f"{len(exchanged[::3])} sites: REF and ALT swapped: exchanged", f"{out}"
    )
    records = list(cyvcf2.VCF(str(out)))
    assert [(v.POS, v.REF, v.ALT[0]) for v in records] == [(s.position, s.ref, s.alt) for s in sites]
    for record, site in zip(records, sites, strict=True):
        calls = np.array([call[:2] for call in record.genotypes])
        np.testing.assert_array_equal(np.sort(calls, axis=1), np.sort(site.calls, axis=1))
        heterozygous = calls[:, 0] != calls[:, 1]
        assert not np.array([call[2] for call in record.genotypes])[heterozygous].any()
    assert "bytes" not in done.err


def test_phase_survives_a_pgen(example, panel, tmp_path):
    samples, sites = sites_of(example / "target.vcf.gz")
    write_pgen(tmp_path / "p", samples, sites, phased=True)
    with spinimpute.Panel.open(panel) as opened:
        (part,) = read_target(tmp_path / "p.pgen", [opened], allow_unphased=False)
    assert part is not None
    expected = np.array([site.calls.ravel() for site in sites])
    np.testing.assert_array_equal(part.haplotypes.alleles, expected)


def test_a_bim_with_one_allele(panel, people, tmp_path):
    """PLINK writes 0 for an allele that nobody has; the panel knows it, whichever of its two it is."""
    samples, sites = people
    monomorphic = []
    for i, site in enumerate(sites[:20]):
        calls = np.full_like(site.calls, i % 2)
        known = (site.ref, site.alt)[i % 2]
        monomorphic.append(Site(site.chrom, site.position, site.name, known, "0", np.zeros_like(calls)))
    write_bed(tmp_path / "b", samples, monomorphic)
    with spinimpute.Panel.open(panel) as opened:
        (part,) = read_target(tmp_path / "b.bed", [opened])
    assert part is not None
    found = part.haplotypes
    assert [(r, a) for r, a in zip(found.sites.ref, found.sites.alt, strict=True)] == [
        (s.ref, s.alt) for s in sites[:20]
    ]
    for i, row in enumerate(found.alleles):
        assert set(row.tolist()) == {i % 2}


def test_names_and_sexes_of_a_fam(panel, people, tmp_path):
    _, sites = people
    write_bed(tmp_path / "b", ["a"] * 20, sites)
    fam = tmp_path / "b.fam"
    with spinimpute.Panel.open(panel) as opened:
        with pytest.raises(InputError, match="two samples are named 0_a"):
            read_target(tmp_path / "b.bed", [opened])
        fam.write_text("".join(f"f{i} a 0 0 1 -9\n" for i in range(20)))
        (part,) = read_target(tmp_path / "b.bed", [opened])
        assert part is not None
        assert part.haplotypes.samples == [f"f{i}_a" for i in range(20)]


@pytest.mark.parametrize("missing", [".bim", ".fam"])
def test_a_missing_file_is_named(run, missing, panel, people, tmp_path):
    write_bed(tmp_path / "b", *people)
    (tmp_path / f"b{missing}").unlink()
    run("impute", "--bfile", tmp_path / "b", "--panel", panel, "--out", tmp_path / "o.vcf").refused(
        f"b{missing}"
    )
    assert not (tmp_path / "o.vcf").exists()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("b.fam", "#FID SEX\nx 1\n", "line 1: no column IID"),
        ("b.bim", "20 a 0 5\n", "line 1: 4 columns"),
        ("b.bim", "20 a 0 5.5 A C\n", "line 1: the position '5.5' is not a number"),
    ],
)
def test_damaged_files_of_plink(run, name, text, said, panel, people, tmp_path):
    write_bed(tmp_path / "b", *people)
    (tmp_path / name).write_text(text)
    out = tmp_path / "o.vcf"
    run("convert", "--bfile", tmp_path / "b", "--panel", panel, "--out", out).refused(said)
    run(
        "convert", "--bfile", tmp_path / "b", "--panel", panel, "--out", tmp_path / name, "-O", "v", "-f"
    ).refused("it is also read from")


def test_one_target_only(run, panel, unphased, tmp_path):
    for arguments in ((), ("--vcf", unphased, "--bfile", "b")):
        run("impute", *arguments, "--panel", panel, "--out", tmp_path / "o.vcf").refused(
            "give the target with one of --vcf FILE"
        )


def test_a_report_without_positions(run, panel, people, tmp_path):
    report = final_report(tmp_path / "r.txt", *people)
    report.write_text(report.read_text().replace("Position", "Theta"))
    run.impute(report, panel, tmp_path / "o.vcf").refused("no column Position")


@pytest.mark.parametrize("cut", [1, 4, 12])
def test_a_cut_report(panel, people, cut, tmp_path):
    report = final_report(tmp_path / "r.txt", people[0][:2], people[1][:30])
    text = report.read_text()
    with spinimpute.Panel.open(panel) as opened:
        report.write_text(text[:-cut])
        with pytest.raises(InputError, match="its last line has no newline"):
            read_target(report, [opened])
        report.write_text(text.rstrip("\n").rsplit("\t", 2)[0] + "\n")
        with pytest.raises(InputError, match=r"line 65: no name, sample, chromosome or position"):
            read_target(report, [opened])


def test_a_report_whose_head_has_other_line_ends(panel, people, tmp_path):
    report = final_report(tmp_path / "r.txt", people[0][:2], people[1][:30])
    report.write_bytes(report.read_bytes().replace(b"[Header]\n", b"[Header]\n\rx\n", 1))
    with (
        spinimpute.Panel.open(panel) as opened,
        pytest.raises(InputError, match=r"does not name the columns"),
    ):
        read_target(report, [opened])


def test_invented_alleles_are_not_written(run, panel, people, tmp_path):
    """Of a site that the panel lacks, letters of one kind do not tell REF and ALT."""
    samples, sites = people
    lone = Site("20", sites[5].position + 1, "lone", "A", "C", np.zeros_like(sites[5].calls))
    report = final_report(tmp_path / "r.txt", samples, [*sites[:6], lone, *sites[6:]])
    out = tmp_path / "o.vcf"
    run.impute(report, panel, out, "--keep-unmatched").ok(
        "1 unmatched typed sites are left out: the file does not give their alleles"
    )
    assert all(v.ALT != ["N"] for v in cyvcf2.VCF(str(out)))


def test_a_sample_twice_in_a_report(panel, people, tmp_path):
    samples, sites = people
    report = final_report(tmp_path / "r.txt", [samples[0], samples[0]], sites[:30])
    with (
        spinimpute.Panel.open(panel) as opened,
        pytest.raises(InputError, match=f"in sample {samples[0]} is repeated"),
    ):
        read_target(report, [opened])


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**31),
    which=st.sampled_from([".bed", ".bim", ".fam", ".pgen", ".psam", ".pvar", ".txt"]),
)
def test_mutated_files_are_read_or_refused(seed, which, panel, people, tmp_path):
    samples, sites = people[0], people[1][:40]
    folder = tmp_path / str(seed)
    folder.mkdir(exist_ok=True)
    write_bed(folder / "b", samples, sites)
    write_pgen(folder / "p", samples, sites)
    final_report(folder / "r.txt", samples[:3], sites)
    path = next(folder.glob(f"*{which}"))
    draw = random.Random(seed)
    content = bytearray(path.read_bytes())
    for _ in range(draw.randint(1, 4)):
        action, place = draw.randint(0, 2), draw.randrange(len(content))
        if action == 0:
            content[place] = draw.randrange(256)
        elif action == 1:
            del content[place : place + draw.randint(1, 50)]
        else:
            content[place:place] = bytes(
                draw.choice(b"0123456789ACGT\t\n -,") for _ in range(draw.randint(1, 9))
            )
        if not content:
            break
    path.write_bytes(bytes(content))
    start = {".bed": "b.bed", ".bim": "b.bed", ".fam": "b.bed", ".txt": "r.txt"}.get(which, "p.pgen")
    with spinimpute.Panel.open(panel) as opened, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            (part,) = read_target(folder / start, [opened])
        except InputError:
            pass
        else:
            assert part is not None
            assert part.haplotypes.alleles.min() >= -1
            assert part.haplotypes.alleles.max() <= 1
            assert (np.diff(part.haplotypes.sites.position) >= 0).all()
    shutil.rmtree(folder)
