"""`impute` on unusual but legal files, and when something fails in the middle."""

from pathlib import Path
from typing import Any

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.pipeline.settings import OutputSettings
from spinimpute.quality.summary import ImputationSummary
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.writer import GenotypeWriter

Row = tuple[int, str, str, list[str]]  # POS, REF, ALT, one GT per sample


def dosages(path: Path) -> np.ndarray:
    """(n_sites, n_samples)"""
    return np.stack([v.format("DS")[:, 0] for v in cyvcf2.VCF(str(path))])


def positions(path: Path) -> list[int]:
    return [v.POS for v in cyvcf2.VCF(str(path))]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("region", "20:1-300000", r"region must be RegionSettings\(...\), got '20:1-300000'"),
        ("predictor", "spin", r"predictor must be PredictorSettings\(...\), got 'spin'"),
        ("target", None, "target must be TargetSettings"),
        ("output", "z", "output must be OutputSettings"),
        ("resources", 4, "resources must be Resources"),
    ],
)
def test_settings_are_of_their_class(tmp_path, example_target, name, value, said):
    with pytest.raises(InputError, match=said):
        spinimpute.impute(example_target, tmp_path / "o.vcf", "p.spin", **{name: value})
    if name in ("target", "output"):
        said = said.replace("Output", "File")
        with pytest.raises(InputError, match=said):
            spinimpute.phase(example_target, tmp_path / "o.vcf", "p.spin", **{name: value})


def test_accuracy_floor(example, example_panel, tmp_path):
    """From file to file: far above what allele frequencies alone say."""
    out = tmp_path / "o.bcf"
    spinimpute.impute(example / "target.vcf.gz", out, example_panel)
    result = spinimpute.evaluate(
        example / "truth.vcf.gz", out, panel=example_panel.path, typed=example / "target.vcf.gz"
    )
    everything = {row["imputer"]: row["pooled_r2"] for row in result.by_frequency if row["bin"] == "all"}
    assert everything["imputed"] > 0.85
    assert everything["imputed"] > everything["allele-frequency"] + 0.3


def test_a_region_keeps_to_itself(few_rows, example_panel, random_network, write_vcf, tmp_path):
    """Neighbouring regions, put together, are the whole: also their unmatched typed sites."""
    taken = set(example_panel.position.tolist())
    foreign = [next(q for q in range(p, p + 500) if q not in taken) for p in (1000, 350_000, 700_000)]
    target = write_vcf(sorted([*few_rows, *((p, "G", "T", ["0|1"] * 3) for p in foreign)]))
    written = []
    for region in ("20:1-300000", "20:300001-600000", "20:600001-2000000"):
        spinimpute.impute(
            target,
            tmp_path / f"{region[3:]}.bcf",
            example_panel,
            predictor=random_network,
            region=spinimpute.RegionSettings(region=region),
            output=OutputSettings(keep_unmatched=True),
        )
        written.append(positions(tmp_path / f"{region[3:]}.bcf"))
    assert [[p for p in foreign if p in part] for part in written] == [[p] for p in foreign]
    assert [p for part in written for p in part] == sorted([*example_panel.position.tolist(), *foreign])


def test_unmatched_sites_on_the_borders_of_windows_come_once(
    few_rows, example_panel, random_predictor, write_vcf, tmp_path
):
    """At the first and last site of each window the target has another ALT than the panel."""

    def impute(name: str, more: list[Row]) -> tuple[ImputationSummary, Path]:
        target = write_vcf(sorted([*few_rows, *more]), name=f"{name}.vcf")
        out = tmp_path / f"{name}.bcf"
        settings = OutputSettings(keep_unmatched=True)
        summary = spinimpute.impute(
            target,
            out,
            example_panel,
            predictor=spinimpute.PredictorSettings(model=random_predictor, options={"window_cM": 0.15}),
            output=settings,
        )
        return summary, out

    windows = impute("plain", [])[0].windows
    assert len(windows) > 3
    borders = sorted({position for w in windows for position in (w.start, w.end)})
    foreign: list[Row] = [(p, "AA", "AATT", ["0|1"] * 3) for p in borders]
    summary, out = impute("foreign", foreign)
    assert summary.kept_unmatched == len(borders)
    assert summary.written_sites == example_panel.n_sites + len(borders)
    assert positions(out) == sorted([*example_panel.position.tolist(), *borders])
    assert [v.POS for v in cyvcf2.VCF(str(out)) if v.ALT == ["AATT"]] == borders


def test_the_file_of_an_open_panel_is_not_overwritten(
    example_target, example_panel, random_network, tmp_path
):
    path = tmp_path / "p.bcf"
    path.write_bytes(example_panel.path.read_bytes())
    before = path.read_bytes()
    with spinimpute.Panel.open(path) as panel, pytest.raises(InputError, match="also read from"):
        spinimpute.impute(example_target, path, panel, predictor=random_network, force=True)
    assert path.read_bytes() == before


def test_one_haploid_sample_with_one_typed_site(few_rows, example_panel, write_vcf, tmp_path):
    pos, ref, alt, _ = few_rows[100]
    target = write_vcf([(pos, ref, alt, ["1"])])
    summary = spinimpute.impute(target, tmp_path / "o.vcf", example_panel)
    assert (summary.samples, summary.haplotypes, summary.typed_sites, summary.matched_sites) == (1, 1, 1, 1)
    p = dosages(tmp_path / "o.vcf")[:, 0]
    assert len(p) == example_panel.n_sites
    assert np.isfinite(p).all()
    assert ((p >= 0) & (p <= 1)).all()
    assert p[positions(tmp_path / "o.vcf").index(pos)] == 1
    genotypes = [v.genotype.array() for v in cyvcf2.VCF(str(tmp_path / "o.vcf"))]
    assert all(g[0, 0] == (d >= 0.5) for g, d in zip(genotypes, p, strict=True) if abs(d - 0.5) > 1e-4)


def test_a_sample_without_any_call_says_nothing_and_disturbs_nobody(
    few_rows, example_panel, write_vcf, tmp_path
):
    empty = [(p, r, a, [".|.", calls[1], calls[2]]) for p, r, a, calls in few_rows]
    summary = spinimpute.impute(write_vcf(empty), tmp_path / "o.bcf", example_panel)
    assert summary.missing_calls == len(few_rows)
    spinimpute.impute(write_vcf(few_rows), tmp_path / "all.bcf", example_panel)
    ours, theirs = dosages(tmp_path / "o.bcf"), dosages(tmp_path / "all.bcf")
    np.testing.assert_allclose(ours[:, 1:], theirs[:, 1:], atol=1.01e-4)
    # nothing is known of x beside the panel
    assert np.corrcoef(ours[:, 0], 2 * example_panel.frequency)[0, 1] > 0.9
    for record in cyvcf2.VCF(str(tmp_path / "o.bcf")):
        assert (record.genotype.array()[:, :2] >= 0).all()


def test_other_chromosomes_and_the_names_of_this_one(
    few_rows, example_panel, random_network, write_vcf, tmp_path
):
    target = write_vcf(few_rows, chrom="chr20")
    head, columns, records = target.read_text().partition("\tc\n")
    elsewhere = [f"chr19\t{1 + 10 * i}\t.\tA\tG\t.\t.\t.\tGT\t0|0\t0|0\t0|0\n" for i in range(7)]
    head = head.replace("##contig=<ID=21>", "##contig=<ID=chr19>")
    target.write_text("".join([head, columns, *elsewhere, records]))
    summary = spinimpute.impute(target, tmp_path / "o.bcf", example_panel, predictor=random_network)
    assert summary.skipped["on another chromosome"] == 7
    assert summary.typed_sites == summary.matched_sites == len(few_rows)
    assert {v.CHROM for v in cyvcf2.VCF(str(tmp_path / "o.bcf"))} == {"20"}
    text = "\n".join(summary.lines())
    assert f"{len(few_rows)} of {len(few_rows)} typed sites are panel sites" in text
    assert "7 records skipped: on another chromosome" in text
    assert f"written:  {example_panel.n_sites} sites" in text


def test_windows_of_the_summary_count_every_site(example_target, example_panel, random_predictor, tmp_path):
    fractions: list[float] = []
    summary = spinimpute.impute(
        example_target,
        tmp_path / "o.bcf",
        example_panel,
        predictor=spinimpute.PredictorSettings(model=random_predictor, options={"window_cM": 0.1}),
        progress=fractions.append,
    )
    assert len(summary.windows) > 5
    assert sum(w.sites for w in summary.windows) == example_panel.n_sites
    assert sum(w.typed for w in summary.windows) == summary.matched_sites
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    assert len(fractions) == len(summary.windows)
    assert summary.seconds.keys() >= {"read target", "impute"}


@pytest.mark.parametrize("suffix", [".vcf", ".vcf.gz", ".bcf"])
@pytest.mark.parametrize("where", ["predict", "write"])
def test_failures_leave_no_new_file(
    suffix, where, example_target, example_panel, random_predictor, tmp_path, monkeypatch
):
    owner: Any = random_predictor if where == "predict" else GenotypeWriter
    name = "predict" if where == "predict" else "write_block"
    original = getattr(owner, name)
    calls = 0

    def fail(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise RuntimeError("in the middle")
        return original(*arguments)

    monkeypatch.setattr(owner, name, fail)
    old, new = tmp_path / f"old{suffix}", tmp_path / f"new{suffix}"
    old.write_bytes(b"an older result")
    predictor = spinimpute.PredictorSettings(model=random_predictor, options={"window_cM": 0.1})
    for out in (old, new):
        calls = 0
        with pytest.raises(RuntimeError, match="in the middle"):
            spinimpute.impute(example_target, out, example_panel, predictor=predictor, force=True)
    assert list(tmp_path.iterdir()) == [old]
    assert old.read_bytes() == b"an older result"


def test_what_cannot_be_done_is_said_before_work_starts(
    example_target, example_panel, random_predictor, tmp_path
):
    def with_options(**options: float) -> spinimpute.PredictorSettings:
        return spinimpute.PredictorSettings(model=random_predictor, options=options)

    old = tmp_path / "old.bcf"
    old.write_bytes(b"precious")
    arguments: list[tuple[Path, dict[str, Any], str]] = [
        (old, {}, "already exists"),
        (tmp_path / "o.txt", {}, "o.txt"),
        (tmp_path / "absent" / "o.bcf", {}, "no folder"),
        (tmp_path / "o.bcf", {"resources": spinimpute.Resources(0)}, "threads must be at least 1"),
        (tmp_path / "o.bcf", {"predictor": with_options(window_cM=-1.0)}, "positive"),
        (tmp_path / "o.bcf", {"region": spinimpute.RegionSettings("20:x")}, "20:x"),
    ]
    for out, more, message in arguments:
        with pytest.raises(InputError, match=message):
            spinimpute.impute(example_target, out, example_panel, **{"predictor": with_options()} | more)
    assert [path.name for path in tmp_path.iterdir()] == ["old.bcf"]
    assert old.read_bytes() == b"precious"


def test_a_person_of_the_panel_as_a_haploid(example, example_panel, write_vcf, tmp_path):
    """The panel's own haplotypes, every fourth site hidden: nearly all of it comes back, haploid or not."""
    names = example_panel.samples[:2]
    records = list(range(0, example_panel.n_sites))
    hidden = [i for i in records if i % 4 == 2]
    alleles = example_panel.alleles(0, example_panel.n_sites)
    sites = example_panel.sites
    kept: list[Row] = [
        (int(sites.position[i]), sites.ref[i], sites.alt[i], [f"{a}|{b}", str(c)])
        for i in records
        if i % 4 != 2
        for a, b, c in [alleles[i, :3]]
    ]
    target = write_vcf(kept, names)
    spinimpute.impute(
        target, tmp_path / "o.bcf", example_panel, region=spinimpute.RegionSettings(region="20:400000-500000")
    )
    table = {v.POS: v.genotype.array()[:, :2] for v in cyvcf2.VCF(str(tmp_path / "o.bcf"))}
    right = total = 0
    for i in records:
        genotype = table.get(int(sites.position[i]))
        if genotype is None:
            continue
        assert genotype[1, 1] == -2
        calls = [genotype[0, 0], genotype[0, 1], genotype[1, 0]]
        if i in hidden:
            right += sum(int(call == truth) for call, truth in zip(calls, alleles[i, :3], strict=True))
            total += 3
        else:
            assert calls == alleles[i, :3].tolist()
    assert total > 150
    assert right / total > 0.99
