"""A genome at once: three chromosomes and X, one panel each, give the records of runs with one panel each."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import cyvcf2
import numpy as np
import pytest

import spinimpute
from spinimpute.runtime.errors import InputError

CHROMOSOMES = ("2", "10", "X")
HEADER = (
    "##fileformat=VCFv4.2\n"
    "##contig=<ID=10>\n##contig=<ID=2>\n##contig=<ID=X,length=155270560>\n"  # 10 is before 2
    '##FORMAT=<ID=GT,Number=1,Type=String,Description="Genotype">\n'
)
N_PANEL, N_TARGET = 30, 4
X_START = 5_000_000  # behind PAR1


def column_head(prefix: str, n_samples: int) -> str:
    fixed = ["#CHROM", "POS", "ID", "REF", "ALT", "QUAL", "FILTER", "INFO", "FORMAT"]
    return "\t".join([*fixed, *(f"{prefix}{i}" for i in range(n_samples))]) + "\n"


def lines(chrom: str, position: np.ndarray, alleles_SN: np.ndarray) -> list[str]:
    made = []
    for at, row in zip(position, alleles_SN, strict=True):
        calls = [f"{a}|{b}" for a, b in row.reshape(-1, 2)]
        if chrom == "X":  # every second is a man
            calls[::2] = [call[0] for call in calls[::2]]
        made.append("\t".join([chrom, str(at), ".", "A", "C", ".", ".", ".", "GT", *calls]) + "\n")
    return made


class Genome:
    """Files of a simulated genome."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.panels = folder, folder / "panels"
        self.panels.mkdir()
        self.typed: dict[str, list[str]] = {}
        for seed, chrom in enumerate(CHROMOSOMES):
            random = np.random.default_rng(seed)
            n_sites = 240
            founders = random.random((n_sites, 6)) < random.uniform(0.1, 0.6, (n_sites, 1))
            copied = random.integers(0, 6, (n_sites // 40, 2 * (N_PANEL + N_TARGET)))
            alleles = np.take_along_axis(founders, np.repeat(copied, 40, axis=0), axis=1).astype(int)
            position = (X_START if chrom == "X" else 100_000) + 1_000 * np.arange(1, n_sites + 1)
            text = folder / f"panel{chrom}.vcf"
            text.write_text(
                HEADER
                + column_head("p", N_PANEL)
                + "".join(lines(chrom, position, alleles[:, : 2 * N_PANEL]))
            )
            spinimpute.build_panels(text, self.panels / f"{chrom}.spin")
            some = slice(0, None, 6)
            self.typed[chrom] = lines(chrom, position[some], alleles[some, 2 * N_PANEL :])
        self.target = self.write("target.vcf", "10", "2", "X")

    def write(self, name: str, *chromosomes: str, samples: str = "t") -> Path:
        path = self.folder / name
        body = "".join(line for chrom in chromosomes for line in self.typed[chrom])
        path.write_text(HEADER + column_head(samples, N_TARGET) + body)
        return path

    def panel(self, chrom: str) -> Path:
        return self.panels / f"{chrom}.spin"


def records(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.fixture(scope="module")
def genome(tmp_path_factory) -> Genome:
    return Genome(tmp_path_factory.mktemp("genome"))


@pytest.fixture(scope="module")
def apart(genome) -> dict[str, list[str]]:
    """The records of runs with one panel each."""
    found = {}
    for chrom in CHROMOSOMES:
        out = genome.folder / f"apart{chrom}.vcf"
        spinimpute.impute(genome.target, out, genome.panel(chrom))
        found[chrom] = records(out)
        assert len(found[chrom]) == 240
    return found


def test_one_file_in_the_targets_order(genome, apart, tmp_path):
    out = tmp_path / "all.vcf.gz"
    given = [genome.panel(chrom) for chrom in CHROMOSOMES]
    summary = spinimpute.impute(genome.target, out, given)
    assert records(out) == apart["10"] + apart["2"] + apart["X"]
    assert (summary.samples, summary.panel_sites, summary.written_sites) == (4, 720, 720)
    assert (summary.typed_sites, summary.matched_sites) == (120, 120)
    assert summary.skipped == {}
    assert {window.chrom for window in summary.windows} == set(CHROMOSOMES)
    file = cyvcf2.VCF(str(out))
    assert file.seqnames == ["10", "2", "X"]
    assert file.raw_header.count("##spinimpute_panel") == 3
    assert len(list(file("2"))) == 240  # by the index
    file.close()


def test_a_folder_of_panels_and_bcf(genome, apart, tmp_path):
    bcf, text = tmp_path / "all.bcf", tmp_path / "all.vcf"
    for out in (bcf, text):
        spinimpute.impute(genome.target, out, genome.panels)
    assert records(text) == apart["10"] + apart["2"] + apart["X"]
    file = cyvcf2.VCF(str(bcf))
    assert [record.CHROM for record in file] == [line.split("\t")[0] for line in records(text)]
    file.close()


def test_a_file_for_each_chromosome(genome, apart, tmp_path):
    spinimpute.impute(genome.target, tmp_path / "c{chrom}.vcf", genome.panels)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c10.vcf", "c2.vcf", "cX.vcf"]
    for chrom in CHROMOSOMES:
        whole = (genome.folder / f"apart{chrom}.vcf").read_bytes()
        assert (tmp_path / f"c{chrom}.vcf").read_bytes() == whole


def test_a_target_for_each_chromosome(genome, apart, tmp_path):
    files = [genome.write(f"only{chrom}.vcf", chrom) for chrom in ("X", "2", "10")]
    out = tmp_path / "all.vcf"
    spinimpute.impute(files, out, genome.panels)
    assert records(out) == apart["10"] + apart["2"] + apart["X"]


def test_report_of_all_chromosomes(genome, tmp_path):
    page, table = tmp_path / "page.html", tmp_path / "samples_mqc.json"
    output = spinimpute.OutputSettings(report=page, multiqc=table)
    spinimpute.impute(genome.target, tmp_path / "o.vcf", genome.panels, output=output)
    text = page.read_text()
    for chrom in CHROMOSOMES:
        assert f"<td>{chrom}</td>" in text
        name = f"{chrom}.spin non-PAR: 45" if chrom == "X" else f"{chrom}.spin: 60"
        assert f"{name} haplotypes, 240 sites" in text
    assert "at 120 typed sites, of which" in text
    samples = json.loads(table.read_text())["data"]
    assert [row["typed"] for row in samples.values()] == [120] * 4


def test_region_chooses_its_panel(genome, apart, tmp_path):
    out = tmp_path / "part.vcf"
    region = spinimpute.RegionSettings("2:150000-200000")
    spinimpute.impute(genome.target, out, genome.panels, region=region)
    assert records(out) == [line for line in apart["2"] if 150_000 <= int(line.split("\t")[1]) <= 200_000]


def within(lines: list[str], start: int, end: int) -> list[str]:
    return [line for line in lines if start <= int(line.split("\t")[1]) <= end]


def test_regions_of_several_chromosomes(genome, apart, tmp_path):
    bed = tmp_path / "regions.bed"
    bed.write_text("chrX\t5010000\t5020000\n2\t149999\t200000\n2\t299999\t310000\n23\t5015000\t5030000\n")
    expected = {
        "2": within(apart["2"], 150_000, 200_000) + within(apart["2"], 300_000, 310_000),
        "X": within(apart["X"], 5_010_001, 5_030_000),
    }
    where = spinimpute.RegionSettings(regions_file=bed)
    spinimpute.impute(genome.target, tmp_path / "all.vcf", genome.panels, region=where)
    assert records(tmp_path / "all.vcf") == expected["2"] + expected["X"]
    assert "##spinimpute_regions=3\n" in (tmp_path / "all.vcf").read_text()
    spinimpute.impute(genome.target, tmp_path / "c{chrom}.vcf", genome.panels, region=where)
    assert sorted(path.name for path in tmp_path.glob("c*")) == ["c2.vcf", "cX.vcf"]
    for chrom, lines in expected.items():
        assert records(tmp_path / f"c{chrom}.vcf") == lines
    assert "##spinimpute_region=X:5010001-5030000 sites=20\n" in (tmp_path / "cX.vcf").read_text()
    # a chromosome without a panel site in its regions
    far = spinimpute.RegionSettings(["10:1-9", "2:150000-200000"])
    summary = spinimpute.impute(genome.target, tmp_path / "far.vcf", genome.panels, region=far)
    assert records(tmp_path / "far.vcf") == within(apart["2"], 150_000, 200_000)
    left_out = "chromosome 10 is left out: the panel has no site in 10:1-9"
    assert any(warning.startswith(left_out) for warning in summary.warnings)


def test_chromosomes_that_are_done_stay(genome, apart, tmp_path):
    """X, the last one, has a call without its phase."""
    target = tmp_path / "target.vcf"
    lines = genome.target.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if line.startswith("X\t") and "0|1" in line)
    lines[at] = lines[at].replace("0|1", "0/1")
    target.write_text("".join(lines))
    message = r"an unphased .*\. The files of chromosomes 10 and 2 are complete. To continue, give the panels"
    with pytest.raises(InputError, match=message):
        spinimpute.impute(target, tmp_path / "c{chrom}.vcf", genome.panels, phasing="never")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c10.vcf", "c2.vcf", "target.vcf"]
    assert records(tmp_path / "c2.vcf") == apart["2"]
    with pytest.raises(InputError) as failed:
        spinimpute.impute(target, tmp_path / "all.vcf", genome.panels, phasing="never")
    assert "whole" not in str(failed.value)
    assert not (tmp_path / "all.vcf").exists()
    spinimpute.impute(target, tmp_path / "c{chrom}.vcf", [genome.panel("X")])
    assert len(records(tmp_path / "cX.vcf")) == 240


@pytest.mark.parametrize("write", [spinimpute.phase, spinimpute.convert])
def test_phased_and_converted_genomes(genome, tmp_path, write):
    target = genome.folder / "unphased.vcf"
    target.write_text(genome.target.read_text().replace("0|1", "0/1").replace("1|0", "1/0"))
    for chrom in CHROMOSOMES:
        write(target, tmp_path / f"a{chrom}.vcf", genome.panel(chrom))
    apart = {chrom: records(tmp_path / f"a{chrom}.vcf") for chrom in CHROMOSOMES}
    summary = write(target, tmp_path / "all.vcf", genome.panels)
    assert records(tmp_path / "all.vcf") == apart["10"] + apart["2"] + apart["X"]
    assert (summary.written_sites, summary.matched_sites, summary.skipped) == (120, 120, {})
    write(target, tmp_path / "c{chrom}.vcf", genome.panels)
    for chrom in CHROMOSOMES:
        assert (tmp_path / f"c{chrom}.vcf").read_bytes() == (tmp_path / f"a{chrom}.vcf").read_bytes()
    files = [tmp_path / f"c{chrom}.vcf" for chrom in ("X", "10")]
    summary = write(files, tmp_path / "two.vcf", genome.panels)
    assert records(tmp_path / "two.vcf") == apart["10"] + apart["X"]
    assert any("chromosome 2 is left out: no target file" in warning for warning in summary.warnings)


def test_inducing_points_of_all_chromosomes(genome, tmp_path):
    for chrom in ("2", "10"):
        with spinimpute.Panel.open(genome.panel(chrom)) as panel:
            spinimpute.build_inducing_panel(panel, tmp_path / f"{chrom}.spip", genome.target, 8).close()
        spinimpute.impute(genome.target, tmp_path / f"{chrom}.vcf", tmp_path / f"{chrom}.spip")
    points = [tmp_path / "2.spip", tmp_path / "10.spip"]
    spinimpute.impute(genome.target, tmp_path / "all.vcf", points)
    assert records(tmp_path / "all.vcf") == records(tmp_path / "10.vcf") + records(tmp_path / "2.vcf")
    out = tmp_path / "no.vcf"
    with pytest.raises(
        InputError, match=r"panel of chromosome 10 holds haplotypes, and the .* 2 holds inducing points\."
    ):
        spinimpute.impute(genome.target, out, [genome.panel("10"), points[0]])
    other = spinimpute.PredictorSettings("haplotype")
    with pytest.raises(InputError, match="cannot read it"):
        spinimpute.impute(genome.target, out, points, predictor=other)
    assert not out.exists()


def test_a_panel_that_the_predictor_cannot_read_is_found_before_the_first_is_used(
    genome, tmp_path, monkeypatch
):
    from spinimpute.panels.inducing_panel import InducingPanel

    for chrom in ("2", "10"):
        with spinimpute.Panel.open(genome.panel(chrom)) as panel:
            spinimpute.build_inducing_panel(panel, tmp_path / f"{chrom}.spip", genome.target, 8).close()
    check = InducingPanel.check_model

    def of_another_model(panel: InducingPanel, kind: str, fingerprint: str) -> None:
        check(panel, kind, "another" if panel.chrom == "2" else fingerprint)

    monkeypatch.setattr(InducingPanel, "check_model", of_another_model)
    with pytest.raises(InputError, match=r"2\.spip: .* were made by the model .*not by .*another"):
        spinimpute.impute(
            genome.target, tmp_path / "c{chrom}.vcf", [tmp_path / "2.spip", tmp_path / "10.spip"]
        )
    assert not list(tmp_path.glob("*.vcf"))


def test_chromosomes_that_the_target_lacks_are_named(genome, apart, tmp_path):
    out = tmp_path / "two.vcf"
    summary = spinimpute.impute(genome.write("two-of-it.vcf", "10", "X"), out, genome.panels)
    assert records(out) == apart["10"] + apart["X"]
    assert any(warning.startswith("chromosome 2 is left out: ") for warning in summary.warnings)


def test_a_name_that_no_file_can_have_is_left_out(genome, apart, tmp_path):
    """There is no earlier file of it."""
    long, target = tmp_path / "long.vcf", genome.write("of-10.vcf", "10")
    text, name = target.read_text(), "contig" * 50
    long.write_text(text.replace("\n10\t", f"\n{name}\t").replace("ID=10>", f"ID={name}>"))
    summary = spinimpute.impute([target, long], tmp_path / "c{chrom}.vcf", genome.panels)
    assert records(tmp_path / "c10.vcf") == apart["10"]
    assert any(
        f"chromosome {name} is left out: no panel contains it" in warning for warning in summary.warnings
    )


def renamed(source: Path, out: Path, name: str) -> Path:
    """A file of chromosome 2, or with it, where that has another name."""
    text = source.read_text().replace("\n2\t", f"\n{name}\t")
    out.write_text(text.replace("ID=2>", f"ID={name}>"))
    return out


@pytest.mark.parametrize("name", ["..", ".", "a/b", "/tmp"])
def test_a_chromosome_name_never_leaves_the_output_folder(genome, tmp_path, name):
    """A panel that somebody else made names its chromosome at will."""
    inner, panel = tmp_path / "run" / "out", tmp_path / "p.spin"
    inner.mkdir(parents=True)
    spinimpute.build_panels(renamed(genome.folder / "panel2.vcf", tmp_path / "panel.vcf", name), panel)
    target = renamed(genome.target, tmp_path / "target.vcf", name)
    before = sorted(tmp_path.rglob("*"))
    for out in (inner / "{chrom}" / "o.vcf", inner / "{chrom}"):
        with pytest.raises(InputError, match=f"chromosome '{name}' cannot be part of a file name"):
            spinimpute.impute(target, out, [panel], output=spinimpute.OutputSettings(output_type="v"))
    assert sorted(tmp_path.rglob("*")) == before


def test_a_chromosome_that_is_left_out_names_no_file_elsewhere(genome, tmp_path):
    (tmp_path / "out" / "10").mkdir(parents=True)
    (tmp_path / "o.vcf").touch()
    other = renamed(genome.write("only-2.vcf", "2"), tmp_path / "other.vcf", "..")
    targets = [genome.write("only-10.vcf", "10"), other]
    summary = spinimpute.impute(targets, tmp_path / "out" / "{chrom}" / "o.vcf", genome.panels)
    assert not any("was there before" in warning for warning in summary.warnings)


def test_two_panels_of_x(genome, apart, tmp_path):
    """The halves of a panel of men and women make the whole; panels of other chromosomes lie beside."""
    halves = [tmp_path / "a.spin", tmp_path / "b.spin"]
    names = [f"p{i}" for i in range(N_PANEL)]
    for path, samples in zip(halves, (names[:13], names[13:]), strict=True):
        spinimpute.build_panels(genome.folder / "panelX.vcf", path, samples=samples)
    out = tmp_path / "all.vcf"
    spinimpute.impute(genome.target, out, [halves[0], genome.panel("2"), halves[1], genome.panel("10")])
    assert records(out) == apart["10"] + apart["2"] + apart["X"]
    assert {line.split("\t")[9].partition(":")[0] for line in apart["X"]} == {"0", "1"}  # a man


class TestPanelsThatCannotBeMerged:
    """They are found before the first chromosome, 10, is imputed, which may take hours."""

    @pytest.fixture(params=["arrays", "sequenced"])
    def imputes_nothing(self, request, genome, tmp_path) -> Iterator[Callable[[list[Path], str], None]]:
        out, sequencing = tmp_path / "c{chrom}.vcf", spinimpute.SequencingSettings(genome.target)
        run: Callable[[list[Path]], object] = {
            "arrays": lambda panels: spinimpute.impute(genome.target, out, panels),
            "sequenced": lambda panels: spinimpute.impute_sequenced(out, panels, sequencing),
        }[request.param]

        def refused(panels: list[Path], said: str) -> None:
            with pytest.raises(InputError, match=said):
                run(panels)

        yield refused
        assert not list(tmp_path.glob("c*.vcf"))

    def test_builds(self, genome, tmp_path, imputes_nothing):
        panels = [genome.panel("10")]
        for length in (243_199_373, 242_193_529):
            text = (genome.folder / "panel2.vcf").read_text()
            path = tmp_path / f"{length}.vcf"
            path.write_text(text.replace("<ID=2>", f"<ID=2,length={length}>"))
            panels.append(path.with_suffix(".spin"))
            spinimpute.build_panel(path, panels[-1]).close()
        imputes_nothing(panels, "are of the genome builds GRCh37 and GRCh38")

    @pytest.mark.parametrize(
        ("lines", "said"),
        [
            (
                lambda position, line: [line.replace(f"\t{position}\t", f"\t{position + 7}\t")],
                "share 0 sites of",
            ),
            (
                lambda position, line: [line] if position <= 200_000 else [],
                r"whole2\.spin has 131 sites, the first at 2:210000, more than 1 cM",
            ),
        ],
    )
    def test_positions(self, genome, tmp_path, imputes_nothing, lines, said):
        """The build that no header states, and a panel of a part of the chromosome: 1 cM is 10 kb here."""
        panels = [genome.panel("10")]
        genetic_map = tmp_path / "2.map"
        genetic_map.write_text("2 . 0 1\n2 . 100 1000000\n")
        text = (genome.folder / "panel2.vcf").read_text().splitlines(keepends=True)
        for name, some in (("whole", lambda _, line: [line]), ("part", lines)):
            path = tmp_path / f"{name}2.vcf"
            body = [one for x in text if x[0] != "#" for one in some(int(x.split("\t")[1]), x)]
            path.write_text("".join([x for x in text if x[0] == "#"] + body))
            panels.append(path.with_suffix(".spin"))
            spinimpute.build_panel(path, panels[-1], genetic_map, keep_map=True).close()
        imputes_nothing(panels, said)

    def test_a_panel_given_twice(self, genome, imputes_nothing):
        panels = [genome.panel("10"), genome.panel("2"), genome.panel("2")]
        imputes_nothing(panels, r"2\.spin and .*2\.spin are the same: give one of them")

    @pytest.mark.parametrize("first", [0, 1])
    def test_inducing_points_beside_haplotypes(self, genome, tmp_path, imputes_nothing, first):
        points = tmp_path / "2.spip"
        with spinimpute.Panel.open(genome.panel("2")) as panel:
            spinimpute.build_inducing_panel(panel, points, genome.target, 8).close()
        of_2 = [genome.panel("2"), points]
        imputes_nothing(
            [genome.panel("10"), of_2[first], of_2[1 - first]], r"2\.spip.* which has no haplotypes"
        )


def test_files_that_cannot_be_used_together(genome, tmp_path):
    out, to_compile = tmp_path / "o.vcf", [genome.panel("2"), genome.folder / "panel10.vcf"]
    twice = [genome.write("a.vcf", "2"), genome.write("b.vcf", "2")]
    others = [genome.write("c.vcf", "2"), genome.write("d.vcf", "10", samples="other")]
    where = spinimpute.RegionSettings(["2:1-9", "7:1-9"])
    for target, panels, more, message in (
        (twice, genome.panels, {}, r"a\.vcf and .*b\.vcf both contain chromosome 2"),
        (others, genome.panels, {}, r"c\.vcf and .*d\.vcf differ in their samples"),
        (genome.target, tmp_path, {}, r"the folder contains no \.spin or \.spip file"),
        (genome.target, to_compile, {}, r"panel10\.vcf is not a panel file.*panel build"),
        (genome.target, to_compile, {"genetic_map": "no.map"}, r"panel10\.vcf is not a panel file"),
        (genome.target, genome.panels, {"genetic_map": "no.map"}, r"leave genetic_map=\.\.\. out"),
        (genome.target, genome.panels, {"region": where}, "7:1-9: the panels are of chromosome 10, 2, X"),
    ):
        with pytest.raises(InputError, match=message):
            spinimpute.impute(target, out, panels, **more)


def test_some_samples_of_all_chromosomes(genome, apart, tmp_path):
    """All are phased, so nobody depends on who else is there."""
    out = tmp_path / "some.vcf"
    target = spinimpute.TargetSettings(samples=["t3", "t0"])
    spinimpute.impute(genome.target, out, genome.panels, target=target)
    whole = [line.split("\t") for line in apart["10"] + apart["2"] + apart["X"]]
    calls = [line.split("\t")[9:] for line in records(out)]
    assert calls == [[fields[12], fields[9]] for fields in whole]
