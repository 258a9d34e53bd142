"""Panels with symbolic ALT alleles, from the VCF of the panel to all outputs."""

import gzip
import shutil
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.structural import StructuralVariant
from spinimpute.panels.writer import rewrite_panel
from tests.pipeline.multiallelic.multiallelic_rows import content, panel_rows, target_rows

SUFFIXES = pytest.mark.parametrize("suffix", ["vcf", "vcf.gz", "bcf"])
FORMATS = ("GT", "DS", "HDS", "GP")
# new ALT and INFO of some sites of `panel_rows`, by position
VARIANTS = {
    1100: ("<DEL>", "SVTYPE=DEL;END=30000;SVLEN=-28900"),
    1400: ("<INS:ME:ALU>", "SVTYPE=ALU;SVLEN=281"),
    1700: ("<CN0>,<CN2>,<CN3>", "SVTYPE=CNV;END=2050;SVLEN=-350,350,700"),  # a record with three ALTs
    2200: ("<DEL>,G", "END=2300"),  # and one with two
    2700: ("C,*,T", "."),
    5000: ("<DUP>", "SVLEN=900"),
}


def bcftools(*arguments: object) -> str:
    program = shutil.which("bcftools")
    if program is None:
        pytest.skip("bcftools is not installed")
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=True)
    assert not done.stderr
    return done.stdout


@pytest.fixture
def build(write_vcf, tmp_path) -> Callable[..., spinimpute.Panel]:
    def built(rows, name: str = "p", **options) -> spinimpute.Panel:
        source = write_vcf(rows, [f"s{i}" for i in range(len(rows[0][3]))], f"{name}.vcf")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no genetic map
            return spinimpute.build_panel(source, tmp_path / f"{name}.spin", keep_phase=True, **options)

    return built


def with_variants(rows):
    """Replace the alleles of some records by structural variants. The haplotypes do not change."""
    return [
        (row[0], row[1], *VARIANTS[row[0]][:1], row[3], VARIANTS[row[0]][1])
        if row[0] in VARIANTS and row[2] != "CC"
        else row
        for row in rows
    ]


@pytest.fixture
def panel(build, rng) -> Iterator[spinimpute.Panel]:
    with build(with_variants(panel_rows(rng))) as built:
        yield built


def impute(target, panel, out, region=None, **options) -> Path:
    output = spinimpute.OutputSettings(FORMATS, **options)
    spinimpute.impute(target, out, panel, region=spinimpute.RegionSettings(region), output=output, force=True)
    return out


def snp_target(panel, rng, write_vcf, n_samples: int = 3) -> Path:
    rows = [row for row in target_rows(panel, rng, n_samples) if row[2].isalpha() and row[0] not in VARIANTS]
    return write_vcf(rows, name="target.vcf")


def test_panel_keeps_the_fields(panel, tmp_path):
    found = {
        (int(panel.sites.position[row]), panel.sites.alt[row]): variant
        for row, variant in panel.sites.structural.items()
    }
    assert found == {
        (1100, "<DEL>"): StructuralVariant(30000, "DEL", "-28900"),
        (1400, "<INS:ME:ALU>"): StructuralVariant(1400, "ALU", "281"),
        (1700, "<CN0>"): StructuralVariant(2050, "CNV", "-350"),
        (1700, "<CN2>"): StructuralVariant(2050, "CNV", "350"),
        (1700, "<CN3>"): StructuralVariant(2050, "CNV", "700"),
        (2200, "<DEL>"): StructuralVariant(2300),
        (2200, "G"): StructuralVariant(2300),
        (5000, "<DUP>"): StructuralVariant(5900, "", "900"),
    }
    assert panel.provenance["skipped"] == {}
    panel.verify()


@SUFFIXES
def test_values_are_those_of_other_alleles(build, rng, write_vcf, tmp_path, suffix):
    """The names of alleles do not change what is predicted."""
    rows = panel_rows(rng)
    with build(rows, "snps") as snps, build(with_variants(rows)) as panel:
        target = snp_target(panel, rng, write_vcf)
        outs = [impute(target, one, tmp_path / f"{i}.{suffix}") for i, one in enumerate((snps, panel))]
    values: list[dict] = []
    for out in outs:
        values.append({})
        for record in cyvcf2.VCF(str(out)):
            # the panel sorts the ALT alleles of a record
            dosage = sorted(map(tuple, record.format("DS").T.tolist()))
            values[-1].setdefault(record.POS, []).append(dosage)
    assert len(values[0]) == 90
    assert values[0] == values[1]


@SUFFIXES
def test_records_of_the_output(panel, rng, write_vcf, tmp_path, suffix):
    out = impute(snp_target(panel, rng, write_vcf), panel, tmp_path / f"o.{suffix}")
    found = {}
    for record in cyvcf2.VCF(str(out)):
        fields = [record.INFO.get(key) for key in ("END", "SVTYPE", "SVLEN")]
        if any(one is not None for one in fields) or "*" in record.ALT:
            found[record.POS] = (record.ALT, *fields)
    assert found == {
        1100: (["<DEL>"], 30000, "DEL", -28900),
        1400: (["<INS:ME:ALU>"], 1400, "ALU", 281),
        1700: (["<CN0>", "<CN2>", "<CN3>"], 2050, "CNV", (-350, 350, 700)),
        2200: (["<DEL>", "G"], 2300, None, None),
        2700: (["*", "C", "T"], None, None, None),
        5000: (["<DUP>"], 5900, None, 900),
    }
    header = bcftools("view", "-h", out)
    for name in ("CN0", "CN2", "CN3", "DEL", "DUP", "INS:ME:ALU"):
        assert f"##ALT=<ID={name}," in header
    assert "##ALT=<ID=*" not in header


@pytest.mark.parametrize("suffix", ["vcf.gz", "bcf"])
def test_regions_find_records_by_their_end(panel, rng, write_vcf, tmp_path, suffix):
    """Our index and that of bcftools lead to the same records."""
    out = impute(snp_target(panel, rng, write_vcf), panel, tmp_path / f"o.{suffix}")
    regions = ("20:2030-2040", "20:20000-20010", "20:29999-40000", "20:30001-40000", "20:5850-5860")
    expected = [["1100", "1700"], ["1100"], ["1100"], [], ["1100", "5000"]]

    def positions() -> list[list[str]]:
        found = [bcftools("view", "-H", "-r", region, out).splitlines() for region in regions]
        return [[line.split("\t")[1] for line in lines] for lines in found]

    assert positions() == expected
    bcftools("index", "-f", *(["-t"] if suffix == "vcf.gz" else []), out)
    assert positions() == expected


@SUFFIXES
@pytest.mark.parametrize("split", [False, True])
def test_ligated_chunks_equal_a_single_run(panel, rng, write_vcf, tmp_path, suffix, split):
    target = snp_target(panel, rng, write_vcf)
    single = impute(target, panel, tmp_path / f"s.{suffix}", split_multiallelic=split)
    chunks = [
        impute(target, panel, tmp_path / f"{i}.{suffix}", region, split_multiallelic=split)
        for i, region in enumerate(("20:1-4000", "20:1500-6200", "20:6201-"))
    ]
    joined = tmp_path / f"l.{suffix}"
    spinimpute.ligate(chunks, joined, panel=panel)
    assert content(joined) == content(single)
    if suffix != "vcf":
        index = {"bcf": "csi", "vcf.gz": "tbi"}[suffix]
        assert content(Path(f"{joined}.{index}")) == content(Path(f"{single}.{index}"))


@SUFFIXES
@pytest.mark.parametrize("split", [False, True])
def test_merged_samples_equal_a_single_run(panel, rng, write_vcf, tmp_path, suffix, split):
    target, paths = snp_target(panel, rng, write_vcf), []
    for samples in (["a"], ["b", "c"]):
        paths.append(tmp_path / f"{samples[0]}.{suffix}")
        chosen = spinimpute.TargetSettings(samples=samples)
        settings = spinimpute.OutputSettings(FORMATS, mergeable=True, split_multiallelic=split)
        spinimpute.impute(target, paths[-1], panel, target=chosen, output=settings)
    spinimpute.merge_samples(paths, tmp_path / f"m.{suffix}")
    single = impute(target, panel, tmp_path / f"s.{suffix}", split_multiallelic=split)
    assert content(tmp_path / f"m.{suffix}") == content(single)


def test_end_distinguishes_variants(build):
    """Records of one position are different if END differs, and duplicates if it does not."""
    calls = [["0|1", "1|0"], ["1|1", "0|0"], ["0|0", "0|1"], ["2|1", "0|0"]]
    rows = [
        (100, "A", "C", calls[0]),
        (200, "A", "<DEL>", calls[0], "END=900"),
        (200, "A", "<DEL>", calls[1], "END=300"),
        (200, "A", "<DEL>", calls[0], "END=900;SVTYPE=DEL"),  # a duplicate
        (200, "A", "<DUP>", calls[0], "END=400"),
        (200, "A", "<DUP>", calls[1], "END=400"),  # contradicts the record before
        (200, "A", "<CN0>,<CN2>", calls[3], "END=300"),
        (200, "A", "<CN0>,<CN3>", calls[3], "END=900"),
        (200, "A", "C,G", calls[3]),
        (250, "A", "C]2:321]", calls[2]),
        (251, "A", "C[2:321[,G", calls[3]),
        (252, "A", "*", calls[2]),
        (253, "A", "<NON_REF>,C", calls[3]),
    ]
    with build(rows) as panel:
        assert panel.sites.keys() == [
            (100, "A", "C"),
            (200, "A", "C"),
            (200, "A", "G"),
            (200, "A", "<CN0>;END=300"),
            (200, "A", "<CN2>;END=300"),
            (200, "A", "<CN0>;END=900"),
            (200, "A", "<CN3>;END=900"),
            (200, "A", "<DEL>;END=300"),
            (200, "A", "<DEL>;END=900"),
            (251, "A", "G"),
            (253, "A", "C"),
        ]
        assert (
            panel.records.continues.tolist() == [False, False, True, False, True, False, True] + [False] * 4
        )
        assert panel.alleles(7, 9).tolist() == [[1, 1, 0, 0], [0, 1, 1, 0]]
        assert panel.provenance["skipped"] == {
            "duplicate of an earlier record": 1,
            "contradicts another record of the same site": 2,
            "breakend ALT": 2,
            "ALT * (spanning deletion)": 1,
            "symbolic ALT": 1,
        }


def test_targets_match_by_end(panel, rng, write_vcf, tmp_path):
    """A structural variant of the target is typed if the panel has one with the same alleles and END."""
    rows = [row for row in target_rows(panel, rng) if row[2].isalpha() and row[0] not in VARIANTS]
    calls = ["0|1", "1|0", "1|1"]
    more = [
        (1100, "A", "<DEL>", calls, "END=30000"),
        (1400, "A", "<INS:ME:ALU>", calls, "SVTYPE=ALU;SVLEN=281"),
        (5000, "A", "<DUP>", calls, "END=5901"),  # another END
        (1700, "A", "<CN2>,<CN0>", ["0|1", "2|0", "1|2"], "END=2050"),
        (2700, "A", "*,T", ["0|1", "2|0", "1|2"]),
        (3500, "A", "<DEL>", calls, "END=3600"),
    ]
    target = write_vcf(sorted([*rows, *more], key=lambda row: row[0]), name="target.vcf")
    out = tmp_path / "o.vcf"
    summary = spinimpute.impute(target, out, panel)
    typed = {}
    for record in cyvcf2.VCF(str(out)):
        if record.POS in (1100, 1400, 1700, 2700, 3500, 5000):
            alts = [".", record.REF, *record.ALT]
            genotypes = [[alts[allele + 1] for allele in call[:2]] for call in record.genotypes]
            typed[record.POS] = record.INFO.get("TYPED") is not None and genotypes
    for position, alt in ((1100, "<DEL>"), (1400, "<INS:ME:ALU>")):
        assert typed[position] == [[alt if c == "1" else "A" for c in call.split("|")] for call in calls]
    assert not typed[5000]
    assert not typed[3500]
    assert [[a.replace("<CN3>", "A") for a in call] for call in typed[1700]] == [
        ["A", "<CN2>"], ["<CN0>", "A"], ["<CN2>", "<CN0>"]
    ]  # fmt: skip
    assert [[a.replace("C", "A") for a in call] for call in typed[2700]] == [
        ["A", "*"],
        ["T", "A"],
        ["*", "T"],
    ]
    assert summary.skipped == {"symbolic ALT": 2}


@pytest.mark.parametrize("suffix", ["pgen", "bgen"])
def test_other_formats_have_the_alleles(panel, rng, write_vcf, tmp_path, suffix):
    target = snp_target(panel, rng, write_vcf)
    spinimpute.impute(target, tmp_path / f"o.{suffix}", panel)
    if suffix == "pgen":
        lines = (tmp_path / "o.pvar").read_text().splitlines()
        rows = [line.split("\t") for line in lines if line[0] != "#"]
        assert [row[4] for row in rows] == panel.sites.alt
        info = {row[1]: row[7] for row in rows}
        assert info["1100"].startswith("END=30000;SVTYPE=DEL;SVLEN=-28900;")
    else:
        with gzip.open(tmp_path / "o.sites.tsv.gz", "rt") as file:
            assert [line.split("\t")[4] for line in file][1:] == panel.sites.alt


def test_plink_reads_the_vcf(build, rng, write_vcf, tmp_path):
    """plink2 reads dosages of biallelic records only."""
    plink2 = shutil.which("plink2")
    if plink2 is None:
        pytest.skip("plink2 is not installed")
    with build(with_variants(panel_rows(rng))) as panel:
        target = snp_target(panel, rng, write_vcf)
        out = impute(target, panel, tmp_path / "o.vcf.gz", split_multiallelic=True)
        command = [plink2, "--vcf", out, "dosage=DS", "--make-pgen", "--out", tmp_path / "q"]
        subprocess.run(list(map(str, command)), check=True, capture_output=True)
        lines = (tmp_path / "q.pvar").read_text().splitlines()
        assert [line.split("\t")[4] for line in lines if line[0] != "#"] == panel.sites.alt


def test_evaluate_tells_variants_by_end(build, rng, write_vcf, tmp_path):
    rows = with_variants(panel_rows(rng))
    truth = write_vcf([(*row[:3], row[3][:5], *row[4:]) for row in rows], name="truth.vcf")
    other_end = [
        (*row[:4], row[4].replace("END=30000", "END=30001")) if len(row) > 4 else row
        for row in ((*row[:3], row[3][:5], *row[4:]) for row in rows)
    ]
    with build([(*row[:3], row[3][5:], *row[4:]) for row in rows]) as panel:
        typed = write_vcf(
            [(*row[:3], row[3][:5]) for row in rows if row[0] % 400 == 0 and row[0] not in VARIANTS],
            name="t.vcf",
        )
        out = impute(typed, panel, tmp_path / "o.bcf")
        result = spinimpute.evaluate(truth, out, panel.path, typed)
        assert "not in the panel" not in result.left_out
        changed = spinimpute.evaluate(write_vcf(other_end, name="u.vcf"), out, panel.path, typed)
        assert changed.left_out["not in the panel"] == 1
        assert changed.scored_sites == result.scored_sites - 1


def test_merged_panels_and_inducing_points(build, rng, write_vcf, tmp_path):
    """Two panels have one <DEL> in common, and one that differs in END."""
    rows = with_variants(panel_rows(rng))
    half = [(*row[:3], row[3][:20], *row[4:]) for row in rows]
    other = [
        (*row[:3], row[3][20:], *(info.replace("END=2050", "END=2051") for info in row[4:])) for row in rows
    ]
    samples = [f"t{i}" for i in range(20)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        build(half, "first").close()
        source = write_vcf(other, samples, "second.vcf")
        spinimpute.build_panel(source, tmp_path / "second.spin", keep_phase=True).close()
        spinimpute.merge_panels([tmp_path / "first.spin", tmp_path / "second.spin"], tmp_path / "m.spin")
    with spinimpute.Panel.open(tmp_path / "m.spin") as merged:
        keys = [key[2] for key in merged.sites.keys() if key[0] in (1100, 1700)]  # noqa: SIM118
        assert keys == ["<DEL>;END=30000", *(f"<CN{n}>;END={end}" for end in (2050, 2051) for n in (0, 2, 3))]
        assert merged.n_sites == 3 + sum(row[2].count(",") + 1 for row in rows)
        out = impute(snp_target(merged, rng, write_vcf), merged, tmp_path / "o.vcf")
        ends = [record.INFO.get("END") for record in cyvcf2.VCF(str(out)) if record.POS == 1700]
        assert ends == [2050, 2051]


def test_inducing_points(panel, rng, write_vcf, tmp_path):
    target = snp_target(panel, rng, write_vcf)
    with spinimpute.build_inducing_panel(panel, tmp_path / "p.spip", target, 8) as points:
        assert points.sites.structural == panel.sites.structural
        out = impute(target, points, tmp_path / "o.bcf")
    ends = {record.POS: record.INFO.get("END") for record in cyvcf2.VCF(str(out)) if record.INFO.get("END")}
    assert ends == {1100: 30000, 1400: 1400, 1700: 2050, 2200: 2300, 5000: 5900}


def test_rewritten_panels_keep_the_fields(panel, rng, write_vcf, tmp_path):
    rewrite_panel(panel, tmp_path / "rewritten.spin", {})
    types = tmp_path / "types.tsv"
    types.write_text(
        "sample\tlocus\tposition\tallele1\tallele2\n"
        + "".join(f"s{i}\tHLA-A\t4050\t01:0{1 + i % 2}\t01:0{1 + i % 3 // 2}\n" for i in range(40))
    )
    spinimpute.add_labels(panel.path, types, tmp_path / "labels.spin")
    for name in ("rewritten", "labels"):
        with spinimpute.Panel.open(tmp_path / f"{name}.spin") as other:
            found = {other.sites.keys()[row]: one for row, one in other.sites.structural.items()}
            assert found == {panel.sites.keys()[row]: one for row, one in panel.sites.structural.items()}


def test_sequenced_samples(panel, rng, tmp_path):
    """Likelihoods at SNPs only; merged samples equal a single run."""
    chosen = [row for row in range(panel.n_sites) if panel.sites.alt[row].isalpha()]
    likelihoods_NX3 = rng.integers(0, 60, (len(chosen), 3, 3))
    likelihoods_NX3[np.arange(len(chosen)), :, rng.integers(0, 3, len(chosen))] = 0

    def run(samples: str, **output: bool) -> Path:
        lines = ["##fileformat=VCFv4.2", "##contig=<ID=20>"]
        lines += ['##FORMAT=<ID=PL,Number=G,Type=Integer,Description="PL">']
        fixed = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
        lines.append("\t".join([*fixed, *samples]))
        for row, likelihoods_X3 in zip(chosen, likelihoods_NX3.tolist(), strict=True):
            site = [str(panel.sites.position[row]), ".", "A", panel.sites.alt[row]]
            columns = [",".join(map(str, likelihoods_X3[int(name)])) for name in samples]
            lines.append("\t".join(["20", *site, ".", ".", ".", "PL", *columns]))
        (tmp_path / "pl.vcf").write_text("\n".join(lines) + "\n")
        sequencing = spinimpute.SequencingSettings(likelihoods=tmp_path / "pl.vcf")
        settings = spinimpute.OutputSettings(FORMATS, **output)
        out = tmp_path / f"{samples}.bcf"
        spinimpute.impute_sequenced(out, panel, sequencing, output=settings)
        return out

    single = run("012")
    ends = {
        record.POS: record.INFO.get("END") for record in cyvcf2.VCF(str(single)) if record.INFO.get("END")
    }
    assert ends == {1100: 30000, 1400: 1400, 1700: 2050, 2200: 2300, 5000: 5900}
    expected = content(single)
    spinimpute.merge_samples([run(name, mergeable=True) for name in ("0", "12")], tmp_path / "m.bcf")
    assert content(tmp_path / "m.bcf") == expected


def test_one_file_of_two_chromosomes(panel, rng, write_vcf, tmp_path):
    """The header defines the fields, also if only the second chromosome has them."""
    rows = panel_rows(rng)
    target = snp_target(panel, rng, write_vcf).read_text()
    lines = [line for line in target.splitlines(keepends=True) if line[0] != "#"]
    first = [f"19{line[2:]}" for line in lines]
    header = target[: target.index("#CHROM")] + "##contig=<ID=19>\n"
    columns = next(line for line in target.splitlines(keepends=True) if line.startswith("#CHROM"))
    both = tmp_path / "both.vcf"
    both.write_text("".join([header, columns, *first, *lines]))
    source = write_vcf(rows, panel.samples, "19.vcf", chrom="19")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        spinimpute.build_panel(source, tmp_path / "19.spin").close()
        spinimpute.impute(both, tmp_path / "o.bcf", [tmp_path / "19.spin", panel.path])
    found = bcftools("query", "-f", "%CHROM %POS %INFO/END\n", tmp_path / "o.bcf").split("\n")
    assert "20 1100 30000" in found
    assert "19 1100 ." in found


def test_outputs_are_targets(panel, rng, write_vcf, tmp_path):
    """`convert` and `phase` split the records; each variant keeps its fields and calls."""
    out = impute(snp_target(panel, rng, write_vcf), panel, tmp_path / "o.bcf")
    expected = {
        (v.POS, alt, v.INFO.get("END") if alt[0] == "<" else None): [
            [int(a == k) for a in call[:2]] for call in v.genotypes
        ]
        for v in cyvcf2.VCF(str(out))
        for k, alt in enumerate(v.ALT, start=1)
    }
    assert len(expected) == panel.n_sites
    spinimpute.convert(out, tmp_path / "c.bcf", panel)
    spinimpute.phase(out, tmp_path / "p.bcf", panel)
    for name in ("c", "p"):
        found = {
            (v.POS, v.ALT[0], v.INFO.get("END")): [call[:2] for call in v.genotypes]
            for v in cyvcf2.VCF(str(tmp_path / f"{name}.bcf"))
        }
        assert found == expected
