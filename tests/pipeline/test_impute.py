"""`impute` from real files to real files."""

from collections.abc import Sequence
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline.settings import OutputSettings
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.quality.site_quality import site_quality
from spinimpute.runtime.errors import InputError

HEADER = """##fileformat=VCFv4.2
##contig=<ID={chrom}>
##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">
"""


Row = tuple[int, str, str, list[str]]  # POS, REF, ALT, one GT per sample


def write_vcf(path: Path, samples: Sequence[str], rows: Sequence[Row], chrom: str = "20") -> Path:
    columns = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT", *samples]
    lines = [HEADER.format(chrom=chrom) + "\t".join(columns)]
    lines += [
        "\t".join([chrom, str(pos), f"rs{pos}", ref, alt, ".", "PASS", ".", "GT", *calls])
        for pos, ref, alt, calls in rows
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def read(path: Path) -> list[tuple[int, str, str, np.ndarray, np.ndarray, bool]]:
    """Position, ID, alleles, GT (samples, 2; -2 pads haploids), DS and TYPED of every record."""
    return [
        (
            v.POS,
            v.ID,
            f"{v.REF}>{v.ALT[0]}",
            v.genotype.array()[:, :2],
            v.format("DS")[:, 0],
            bool(v.INFO.get("TYPED")),
        )
        for v in cyvcf2.VCF(str(path))
    ]


@pytest.fixture
def example_target(example: Path) -> Path:
    return example / "target.vcf.gz"


@pytest.fixture
def example_rows(example_target: Path) -> tuple[list[str], list[Row]]:
    """The example's target as samples and rows, to be changed by a test."""
    vcf = cyvcf2.VCF(str(example_target))
    rows = []
    for record in vcf:
        calls = ["|".join(map(str, call[:2])) for call in record.genotypes]
        rows.append((record.POS, record.REF, record.ALT[0], calls))
    return vcf.samples, rows


def test_typed_genotypes_come_out_as_they_went_in(
    example_target: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    out = tmp_path / "o.bcf"
    summary = spinimpute.impute(example_target, out, example_panel)
    typed = {v.POS: v.genotype.array()[:, :2] for v in cyvcf2.VCF(str(example_target))}
    records = read(out)
    assert len(records) == example_panel.n_sites == summary.written_sites
    assert [r[0] for r in records] == example_panel.position.tolist()
    assert [r[1] for r in records] == example_panel.sites.id
    seen = 0
    for position, _, _, genotypes, dosage, is_typed in records:
        assert is_typed == (position in typed)
        if is_typed:
            seen += 1
            np.testing.assert_array_equal(genotypes, typed[position])
            np.testing.assert_array_equal(dosage, typed[position].sum(1))
        assert ((dosage >= 0) & (dosage <= 2)).all()
    assert seen == summary.matched_sites == len(typed)
    assert (tmp_path / "o.bcf.csi").exists()


def test_dosages_and_genotypes_agree(
    example_target: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    out = tmp_path / "o.vcf.gz"
    spinimpute.impute(
        example_target, out, example_panel, output=OutputSettings(formats=("GT", "DS", "HDS", "GP"))
    )
    for v in cyvcf2.VCF(str(out)):
        hds, gp = v.format("HDS"), v.format("GP")
        np.testing.assert_allclose(v.format("DS")[:, 0], hds.sum(1), atol=1e-6)
        np.testing.assert_allclose(gp.sum(1), 1, atol=1e-6)
        np.testing.assert_allclose(gp[:, 1] + 2 * gp[:, 2], hds.sum(1), atol=1e-6)
        # a dosage of 0.5 is written rounded: either call is right there
        clear = np.abs(hds - 0.5) > 1e-3
        np.testing.assert_array_equal((hds > 0.5)[clear], v.genotype.array()[:, :2][clear] == 1)
        frequency = hds.mean()
        assert v.INFO["AF"] == pytest.approx(frequency, abs=5e-4)
        assert v.INFO["MAF"] == pytest.approx(min(v.INFO["AF"], 1 - v.INFO["AF"]), abs=1e-4)
        assert v.INFO["AVG_CS"] == pytest.approx(np.maximum(hds, 1 - hds).mean(), abs=1.1e-3)
        r2 = site_quality(hds.reshape(1, -1))["R2"]
        assert r2 is not None
        if 0.05 < frequency < 0.95:  # dosages are rounded by up to 5e-4, a hundredth of the least frequency
            assert v.INFO["R2"] == pytest.approx(r2[0], abs=1e-2)
        if v.INFO.get("TYPED"):
            assert v.INFO["AVG_CS"] == 1
            assert v.INFO["R2"] == (0 if frequency in (0, 1) else 1)


def test_every_site_has_an_r2(
    example_rows: tuple[list[str], list[Row]], example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    """Of one sample most typed sites do not vary."""
    samples, rows = example_rows
    target = write_vcf(
        tmp_path / "t.vcf", samples[:1], [(pos, ref, alt, calls[:1]) for pos, ref, alt, calls in rows]
    )
    spinimpute.impute(target, tmp_path / "o.vcf", example_panel)
    constant = 0
    for v in cyvcf2.VCF(str(tmp_path / "o.vcf")):
        assert 0 <= v.INFO["R2"] <= 1
        if v.INFO.get("TYPED") and v.INFO["AF"] in (0, 1):
            constant += 1
            assert (v.INFO["R2"], v.INFO["MAF"], v.INFO["AVG_CS"]) == (0, 0, 1)
    assert constant > 10


@pytest.mark.parametrize("suffix", ["vcf.gz", "bcf"])
def test_decimals(example_target: Path, example_panel: spinimpute.Panel, tmp_path: Path, suffix: str) -> None:
    """Fewer decimals are the same dosages, rounded, in a smaller file."""
    found, size = {}, {}
    for decimals in (1, 3, 5):
        out = tmp_path / f"{decimals}.{suffix}"
        output = OutputSettings(("GT", "HDS"), decimals=decimals)
        spinimpute.impute(example_target, out, example_panel, output=output)
        found[decimals] = np.array([v.format("HDS") for v in cyvcf2.VCF(str(out))])
        size[decimals] = out.stat().st_size
        units = found[decimals].astype(float) * 10**decimals
        np.testing.assert_allclose(units, np.rint(units), atol=10**decimals * 1e-7)
    # what is within three quarters of a unit of 0 or 1 becomes 0 or 1
    np.testing.assert_allclose(found[3], found[5], atol=7.6e-4)
    np.testing.assert_allclose(found[1], found[5], atol=0.0751)
    assert size[1] < size[3] < size[5]


def test_same_bytes_for_any_number_of_threads(
    example_target: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    contents = set()
    for run, threads in enumerate((1, 2, 3, 1)):
        out = tmp_path / f"{run}.vcf.gz"
        spinimpute.impute(example_target, out, example_panel, resources=spinimpute.Resources(threads=threads))
        contents.add(out.read_bytes())
    assert len(contents) == 1


def test_windows_change_nothing(
    example_target: Path,
    example_panel: spinimpute.Panel,
    random_predictor: SPINPredictor,
    tmp_path: Path,
) -> None:
    dosages = []
    for length in (0.05, 0.3, 5.0):
        out = tmp_path / f"{length}.bcf"
        spinimpute.impute(
            example_target,
            out,
            example_panel,
            predictor=spinimpute.PredictorSettings(model=random_predictor, options={"window_cM": length}),
            output=OutputSettings(decimals=4),
        )
        dosages.append(np.stack([r[4] for r in read(out)]))
    for other in dosages[1:]:
        np.testing.assert_allclose(other, dosages[0], atol=2.01e-4)


def test_missing_calls_are_filled_and_others_kept(
    example_rows: tuple[list[str], list[Row]],
    example_panel: spinimpute.Panel,
    tmp_path: Path,
) -> None:
    samples, rows = example_rows
    calls = rows[100][3]
    true = calls.copy()
    calls[0], calls[1] = ".|.", f".|{true[1][2]}"
    target = write_vcf(tmp_path / "t.vcf", samples, rows)
    summary = spinimpute.impute(target, tmp_path / "o.bcf", example_panel)
    assert summary.missing_calls == 2  # calls, not alleles
    record = next(r for r in read(tmp_path / "o.bcf") if r[0] == rows[100][0])
    assert (record[3] >= 0).all()
    assert record[3][1, 1] == int(true[1][2])
    np.testing.assert_array_equal(record[3][2:], [[int(a) for a in call.split("|")] for call in true[2:]])
    assert record[5]


def test_haploid_samples_and_one_sample(
    example_rows: tuple[list[str], list[Row]],
    example_panel: spinimpute.Panel,
    tmp_path: Path,
) -> None:
    samples, rows = example_rows
    mixed = [(pos, ref, alt, [calls[0], calls[1][0], calls[2]]) for pos, ref, alt, calls in rows]
    target = write_vcf(tmp_path / "mixed.vcf", samples[:3], mixed, chrom="chr20")
    spinimpute.impute(target, tmp_path / "mixed.bcf", example_panel)
    alone = write_vcf(
        tmp_path / "one.vcf", samples[1:2], [(pos, ref, alt, [calls[1]]) for pos, ref, alt, calls in rows]
    )
    spinimpute.impute(alone, tmp_path / "one.bcf", example_panel, output=OutputSettings(formats=("GT", "DS")))
    for one, three in zip(read(tmp_path / "one.bcf"), read(tmp_path / "mixed.bcf"), strict=True):
        assert three[3][1, 1] == -2  # no second allele
        assert three[3][1, 0] == one[3][0, 0] or abs(three[4][1] - 0.5) < 1e-3
        assert 0 <= three[4][1] <= 1


def test_unmatched_typed_sites(
    example_rows: tuple[list[str], list[Row]],
    example_panel: spinimpute.Panel,
    tmp_path: Path,
) -> None:
    samples, rows = example_rows
    taken = set(example_panel.position.tolist())
    between = next(p for p in range(rows[50][0] + 1, 10**9) if p not in taken)
    beyond = int(example_panel.position[-1]) + 1000
    foreign = [(p, "G", "T", ["0|1"] * (len(samples) - 1) + [".|."]) for p in (between, beyond)]
    target = write_vcf(tmp_path / "t.vcf", samples, sorted([*rows, *foreign]))
    counted = spinimpute.impute(target, tmp_path / "a.bcf", example_panel)
    assert sum(counted.unmatched.values()) == 2
    assert counted.written_sites == example_panel.n_sites
    kept = spinimpute.impute(
        target,
        tmp_path / "b.bcf",
        example_panel,
        predictor=spinimpute.PredictorSettings(options={"window_cM": 0.2}),
        output=OutputSettings(keep_unmatched=True),
    )
    assert kept.kept_unmatched == 2
    records = read(tmp_path / "b.bcf")
    assert len(records) == example_panel.n_sites + 2
    positions = [r[0] for r in records]
    assert positions == sorted(positions)
    for position in (between, beyond):
        record = records[positions.index(position)]
        assert record[5]
        np.testing.assert_array_equal(record[3][:-1], [[0, 1]] * (len(samples) - 1))
        np.testing.assert_array_equal(record[3][-1], [-1, -1])


def test_unmatched_sites_outside_the_region_are_not_kept(
    example_rows: tuple[list[str], list[Row]], example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    samples, rows = example_rows
    calls = ["0|1"] * len(samples)
    foreign: list[Row] = [(p, "G", "T", calls) for p in (300_001, 350_001, 400_001)]
    taken = set(example_panel.position.tolist())
    foreign = [row for row in foreign if row[0] not in taken]
    target = write_vcf(tmp_path / "t.vcf", samples, sorted([*rows, *foreign]))
    out = tmp_path / "o.bcf"
    summary = spinimpute.impute(
        target,
        out,
        example_panel,
        region=spinimpute.RegionSettings(region="20:340000-360000"),
        output=OutputSettings(keep_unmatched=True),
    )
    positions = [r[0] for r in read(out)]
    assert 350_001 in positions
    assert all(340_000 <= position <= 360_000 for position in positions)
    assert summary.kept_unmatched == 1
    assert summary.written_sites == len(positions)


def test_region(example_target: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    spinimpute.impute(example_target, tmp_path / "all.bcf", example_panel)
    spinimpute.impute(
        example_target,
        tmp_path / "part.bcf",
        example_panel,
        region=spinimpute.RegionSettings(region="chr20:300000-400000"),
    )
    part = read(tmp_path / "part.bcf")
    whole = [r for r in read(tmp_path / "all.bcf") if 300_000 <= r[0] <= 400_000]
    assert [r[0] for r in part] == [r[0] for r in whole]
    # typed sites outside the region still inform what is inside
    np.testing.assert_allclose([r[4] for r in part], [r[4] for r in whole], atol=1.01e-4)
    for region, message in (
        ("21", "the panel is of chromosome"),
        ("20:5000000-6000000", "has no site in"),
    ):
        with pytest.raises(InputError, match=message):
            spinimpute.impute(
                example_target,
                tmp_path / "x.bcf",
                example_panel,
                region=spinimpute.RegionSettings(region=region),
            )


def test_a_vcf_as_panel_is_compiled(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    target = example / "target.vcf.gz"
    spinimpute.impute(
        target, tmp_path / "a.bcf", example / "panel.vcf.gz", genetic_map=example / "genetic.map"
    )
    spinimpute.impute(target, tmp_path / "b.bcf", example_panel)
    assert (tmp_path / "a.bcf").read_bytes() == (tmp_path / "b.bcf").read_bytes()
    with pytest.raises(
        InputError, match=r"leave genetic_map=\.\.\. out, or give it to spinimpute\.build_panel"
    ):
        spinimpute.impute(target, tmp_path / "c.bcf", example_panel.path, genetic_map=example / "genetic.map")


def test_multiallelic_panel_records_keep_their_identity(tmp_path: Path, rng: np.random.Generator) -> None:
    samples = [f"s{i}" for i in range(40)]
    rows = []
    for i in range(60):
        alt = "C,G" if i % 10 == 5 else "C"
        codes = rng.integers(0, 3 if "," in alt else 2, (40, 2))
        rows.append((1000 + 100 * i, "A", alt, [f"{a}|{b}" for a, b in codes]))
    with spinimpute.build_panel(write_vcf(tmp_path / "p.vcf", samples, rows), tmp_path / "p.spin") as panel:
        assert panel.n_sites == 66
        typed = [
            (pos, ref, alt, calls[:3]) for pos, ref, alt, calls in rows if pos % 300 == 100 and "," not in alt
        ]
        target = write_vcf(tmp_path / "t.vcf", ["x", "y", "z"], typed)
        spinimpute.impute(target, tmp_path / "o.vcf.gz", panel)
    records = read(tmp_path / "o.vcf.gz")
    at = [(r[0], r[1], r[2]) for r in records if r[0] == 1500]
    assert at == [(1500, "rs1500", "A>C"), (1500, "rs1500", "A>G")]


@pytest.mark.parametrize("model", [None, "random"])
def test_a_typed_allele_excludes_the_other_alleles_of_its_site(
    tmp_path: Path, rng: np.random.Generator, random_predictor: SPINPredictor, model: str | None
) -> None:
    """A haplotype with C has no G. The other haplotype may have it: the REF of a split record includes G.

    An insertion behind the letter excludes nothing.
    """
    others = [(1500, "A", "G"), (1500, "A", "AT"), (1500, "AC", "GC"), (2000, "A", "ATT"), (2000, "A", "G")]
    calls = rng.integers(0, 2, (65, 40, 2))
    panel = [(1000 + 100 * i, "A", "AT" if i == 10 else "C") for i in range(60)] + others
    order = sorted(range(65), key=panel.__getitem__)
    rows = [(*panel[i], [f"{a}|{b}" for a, b in calls[i]]) for i in order]
    typed = [
        (1000 + 100 * i, "A", "AT" if i == 10 else "C", ["1|1", "0|1", "0|0", ".|1"]) for i in range(0, 60, 5)
    ]
    target = write_vcf(tmp_path / "t.vcf", ["both", "one", "none", "half"], typed)
    source = write_vcf(tmp_path / "p.vcf", [f"s{i}" for i in range(40)], rows)
    predictor = spinimpute.PredictorSettings(model=random_predictor if model else None)
    output = OutputSettings(("GT", "HDS"), decimals=5)
    with spinimpute.build_panel(source, tmp_path / "p.spin") as built:
        spinimpute.impute(target, tmp_path / "o.vcf", built, predictor=predictor, output=output)
    found = {(v.POS, v.REF, v.ALT[0]): v.format("HDS") for v in cyvcf2.VCF(str(tmp_path / "o.vcf"))}
    carriers = np.array([[1, 1], [0, 1], [0, 0], [0, 1]])
    for site in others:
        excluded = site in [(1500, "A", "G"), (2000, "A", "ATT")]
        expected = excluded & (carriers == 1)
        np.testing.assert_array_equal(found[site] == 0, expected, err_msg=str(site))


def test_people_of_the_panel_are_recognised(
    example: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    """The target is five people of the panel without three sites: those are imputed as the panel has them."""
    vcf = cyvcf2.VCF(str(example / "panel.vcf.gz"), samples=example_panel.samples[:5])
    rows = [(v.POS, v.REF, v.ALT[0], ["|".join(map(str, c[:2])) for c in v.genotypes]) for v in vcf]
    common = [i for i in range(len(rows)) if 0.2 < example_panel.frequency[i] < 0.8]
    hidden = [common[len(common) // 4], common[len(common) // 2], common[-len(common) // 4]]
    target = write_vcf(
        tmp_path / "t.vcf", example_panel.samples[:5], [r for i, r in enumerate(rows) if i not in hidden]
    )
    summary = spinimpute.impute(target, tmp_path / "o.bcf", example_panel)
    assert "5 target samples have the names of panel samples" in summary.warnings[0]
    records = read(tmp_path / "o.bcf")
    for i, record in enumerate(records):
        expected = [[int(a) for a in call.split("|")] for call in rows[i][3]]
        np.testing.assert_array_equal(record[3], expected)


def test_an_error_in_the_middle_leaves_nothing(
    example_target: Path,
    example_panel: spinimpute.Panel,
    random_predictor: SPINPredictor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    def fail(*arguments: object) -> np.ndarray:
        calls.append(arguments)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return original(*arguments)  # type: ignore[arg-type]

    original = random_predictor.predict
    monkeypatch.setattr(random_predictor, "predict", fail)
    old = tmp_path / "o.bcf"
    old.write_bytes(b"an older result")
    with pytest.raises(KeyboardInterrupt):
        spinimpute.impute(
            example_target,
            old,
            example_panel,
            predictor=spinimpute.PredictorSettings(model=random_predictor, options={"window_cM": 0.1}),
            force=True,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["o.bcf"]
    assert old.read_bytes() == b"an older result"


def test_no_overlap_is_explained(
    example_rows: tuple[list[str], list[Row]],
    example_panel: spinimpute.Panel,
    tmp_path: Path,
) -> None:
    samples, rows = example_rows
    other = write_vcf(tmp_path / "chrom.vcf", samples, rows, chrom="chr7")
    shifted = write_vcf(tmp_path / "build.vcf", samples, [(p + 10_000_000, *rest) for p, *rest in rows])  # type: ignore[list-item]
    foreign = write_vcf(
        tmp_path / "foreign.vcf", samples, [(p, ref, alt + "A", c) for p, ref, alt, c in rows]
    )
    for target, parts in (
        (other, ("chr7", "20")),
        (shifted, ("20:259-999886", "20:1000")),
        (foreign, ("alleles differ from the panel",)),
    ):
        with pytest.raises(InputError) as caught:
            spinimpute.impute(target, tmp_path / "o.bcf", example_panel)
        for part in parts:
            assert part in str(caught.value), str(caught.value)
        assert not (tmp_path / "o.bcf").exists()


def test_header_names_model_and_panel(
    example_target: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    out = tmp_path / "o.vcf"
    spinimpute.impute(example_target, out, example_panel, output=OutputSettings(header_lines=["##mine=1"]))
    header = [line for line in out.read_text().splitlines() if line.startswith("##")]
    predictor = spinimpute.load_predictor()
    assert f"##spinimpute_model={predictor.kind} {predictor.fingerprint} cpu" in header
    assert "classes=22-12 nearest=12" in predictor.fingerprint
    assert f"##spinimpute_panel={example_panel.checksum}" in header
    assert example_panel.contig_line in header
    assert "##mine=1" in header
    assert any(line.startswith("##source=spinimpute ") for line in header)
