"""Chromosome X in one go: the example as if it lay across the end of PAR1, half of its people men."""

import gzip
import itertools
from collections.abc import Callable
from pathlib import Path

import cyvcf2
import numpy as np
import pandas as pd
import pytest

import spinimpute
from spinimpute.evaluation.truth import read_panel
from spinimpute.genotypes.ploidy import read_sexes
from spinimpute.genotypes.sites import Region
from spinimpute.panels.spin_files import open_spin_file
from spinimpute.runtime.errors import InputError

pytestmark = pytest.mark.slow

PAR1_END = 2_699_520  # GRCh37
SHIFT = PAR1_END - 200_000
CONTIG = "##contig=<ID=X,length=155270560>"
Coding = Callable[[str], str]


def one_letter(call: str) -> str:
    return call[0]


def two_letters(call: str) -> str:
    return f"{call[0]}/{call[0]}"


def on_x(source: Path, out: Path, coding: Coding, *, contig: str = CONTIG, unphased: bool = False) -> Path:
    """Every second person is a man: outside PAR1 the first haplotype, coded somehow."""
    lines = []
    for line in gzip.decompress(source.read_bytes()).decode().splitlines():
        if line.startswith("##contig"):
            line = contig
        elif not line.startswith("#"):
            fields = line.split("\t")
            position = int(fields[1]) + SHIFT
            calls = [call.split(":")[0] for call in fields[9:]]
            if unphased:
                calls = ["/".join(sorted(call.replace("|", "/").split("/"))) for call in calls]
            if position > PAR1_END:
                original = [call.split(":")[0] for call in fields[9:]]
                calls[::2] = [coding(call) for call in original[::2]]
            line = "\t".join(["X", str(position), *fields[2:8], "GT", *calls])
        lines.append(line)
    out.write_text("\n".join(lines) + "\n")
    return out


@pytest.fixture(scope="module")
def genetic_map(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("map") / "x.map"
    rows = [line.split() for line in (example / "genetic.map").read_text().splitlines()]
    path.write_text("".join(f"X {row[1]} {row[2]} {int(row[3]) + SHIFT}\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def x_panel(example: Path, genetic_map: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("x")
    vcf = on_x(example / "panel.vcf.gz", folder / "panel.vcf", one_letter)
    spinimpute.build_panels(vcf, folder / "x.spin", genetic_map)
    return folder / "x.spin"


def records(path: Path) -> list[tuple[int, list[tuple[int, ...]], np.ndarray]]:
    """Position, genotypes and dosages."""
    return [
        (v.POS, [tuple(call[:-1]) for call in v.genotypes], v.format("DS")[:, 0])
        for v in cyvcf2.VCF(str(path))
    ]


def test_the_panel_has_parts(run, x_panel):
    with open_spin_file(x_panel) as (par1, rest):
        assert (par1.n_haplotypes, rest.n_haplotypes) == (300, 225)
        assert par1.position[-1] <= PAR1_END < rest.position[0]
        assert par1.n_sites + rest.n_sites == 4453
    said = run("panel", "info", x_panel).ok()
    assert "X, PAR1" in said.out
    assert "X, non-PAR" in said.out
    run("panel", "verify", x_panel).ok()
    run("train", "--panel", x_panel, "--config", "c.toml", "--out", x_panel.parent / "m").refused()


def test_frequencies_are_those_of_all_parts(x_panel):
    known = read_panel(x_panel)
    with open_spin_file(x_panel) as parts:
        assert len(known.frequency) == sum(int((~part.multiallelic).sum()) for part in parts) > 4_000
        last = parts[-1]
        key = ("X", int(last.position[-1]), last.sites.ref[-1], last.sites.alt[-1])
        assert known.frequency[key] == last.frequency[-1]


def test_a_damaged_file_of_parts_is_refused(run, x_panel, tmp_path):
    content = x_panel.read_bytes()
    for damaged in (content[:-1], content[:30], content + b"x", content[:20] + b"\1" + content[21:]):
        path = tmp_path / "damaged.spin"
        path.write_bytes(damaged)
        done = run("panel", "verify", path).refused()
        assert "damaged" in done.err or "truncated" in done.err


def test_one_file_with_the_right_ploidy(run, example, x_panel, tmp_path):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", one_letter, unphased=True)
    outs = {}
    for kind in ("vcf", "bcf"):
        outs[kind] = tmp_path / f"o.{kind}"
        run.impute(target, x_panel, outs[kind]).ok("X non-PAR: 10 of 20 samples have one copy")
    found = records(outs["vcf"])
    assert len(found) == 4453
    assert [row[0] for row in found] == sorted(row[0] for row in found)
    for position, genotypes, dosage in found:
        ploidies = [len(call) for call in genotypes]
        assert ploidies == ([2] * 20 if position <= PAR1_END else [1, 2] * 10)
        if position > PAR1_END:
            assert (dosage[::2] <= 1).all()
    for text, binary in zip(found, records(outs["bcf"]), strict=True):
        assert text[:2] == binary[:2]
        np.testing.assert_array_equal(text[2], binary[2])
    truth = on_x(example / "truth.vcf.gz", tmp_path / "truth.vcf", one_letter)
    true = np.array([[sum(call[:-1]) for call in v.genotypes] for v in cyvcf2.VCF(str(truth))], float)
    imputed = np.array([row[2] for row in found])
    for people in (slice(0, None, 2), slice(1, None, 2)):
        for sites in (np.array([row[0] <= PAR1_END for row in found]), slice(None)):
            assert np.corrcoef(true[sites, people].ravel(), imputed[sites, people].ravel())[0, 1] > 0.93


def test_every_coding_of_men_gives_the_same(run, example, x_panel, tmp_path):
    found = []
    turns = itertools.count()

    def both(call: str) -> str:  # ten men: from one site to the next, all have the other coding
        return (one_letter, two_letters)[next(turns) // 10 % 2](call)

    for coding in (one_letter, two_letters, both):
        target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", coding)
        out = tmp_path / f"{coding.__name__}.vcf"
        run.impute(target, x_panel, out).ok()
        found.append([line for line in out.read_text().splitlines() if not line.startswith("##")])
    assert found[0] == found[1] == found[2]


def test_men_equal_a_panel_of_that_part(run, example, x_panel, genetic_map, tmp_path):
    vcf = on_x(example / "panel.vcf.gz", tmp_path / "panel.vcf", one_letter)
    region = Region("X", PAR1_END + 1)
    spinimpute.build_panel(vcf, tmp_path / "rest.spin", genetic_map, region).close()
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", one_letter)
    rows = []
    for panel in (tmp_path / "rest.spin", x_panel):
        out = tmp_path / "o.vcf"
        run.impute(target, panel, out, "--region", region, "-f").ok()
        rows.append([line for line in out.read_text().splitlines() if not line.startswith("##")])
    assert rows[0] == rows[1]


def test_sexes_that_are_stated(run, example, x_panel, tmp_path):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", two_letters)
    names = cyvcf2.VCF(str(target)).samples
    sexes = tmp_path / "sexes"
    sexes.write_text("sample sex\n" + "".join(f"{n} {'FM'[i % 2 == 0]}\n" for i, n in enumerate(names)))
    assert read_sexes(sexes) == {name: i % 2 == 0 for i, name in enumerate(names)}
    command = ("check", "--vcf", target, "--panel", x_panel, "--sex", sexes)
    done = run(*command, "--samples-out", tmp_path / "s.tsv").ok()
    assert "haploid:  X non-PAR: 10 of 20 samples have one copy" in done.out
    assert "stated" not in done.out
    rows = [line.split("\t") for line in (tmp_path / "s.tsv").read_text().splitlines()[1:]]
    assert [row[3] for row in rows] == ["1", "2"] * 10
    assert all(float(row[4]) == 0 for row in rows[::2])
    assert all(float(row[4]) > 0.3 for row in rows[1::2])
    # two people exchanged
    lines = (
        sexes.read_text().replace(f"{names[0]} M", f"{names[0]} F").replace(f"{names[1]} F", f"{names[1]} M")
    )
    sexes.write_text(lines)
    done = run(*command)
    assert f"{names[0]} is given as female, but has 0% of a woman's" in done.out
    assert f"{names[1]} is given as male, but has" in done.out


@pytest.mark.parametrize("line", ["a b c d", "a", "x y\na both", "a M\na F"])
def test_unusable_lists_of_sexes(run, line, x_panel, example, tmp_path):
    sexes = tmp_path / "sexes"
    sexes.write_text(line + "\n")
    target = example / "target.vcf.gz"
    run("impute", "--vcf", target, "--panel", x_panel, "--sex", sexes, "--out", tmp_path / "o.vcf").refused(
        "list of sexes"
    )


def test_the_odd_heterozygote_of_a_man(run, example, x_panel, tmp_path):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", two_letters)
    lines = target.read_text().splitlines()
    fields = lines[-1].split("\t")
    fields[9] = "0/1"
    lines[-1] = "\t".join(fields)
    target.write_text("\n".join(lines) + "\n")
    out = tmp_path / "o.vcf"
    run.impute(target, x_panel, out).ok("1 heterozygous calls of haploid samples: set missing")
    assert all(len(call) == 1 for call in records(out)[-1][1][::2])


def test_a_part_without_typed_sites_is_left_out(run, example, x_panel, tmp_path):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", one_letter)
    lines = [
        line
        for line in target.read_text().splitlines()
        if line.startswith("#") or int(line.split("\t")[1]) > PAR1_END
    ]
    target.write_text("\n".join(lines) + "\n")
    out = tmp_path / "o.vcf"
    run.impute(target, x_panel, out).ok("no panel site is typed in PAR1")
    assert records(out)[0][0] > PAR1_END


def test_a_panel_without_its_length_says_what_is_missing(run, example, tmp_path):
    vcf = on_x(example / "panel.vcf.gz", tmp_path / "p.vcf", one_letter, contig="##contig=<ID=X>")
    run("panel", "build", "--vcf", vcf, "--out", tmp_path / "p.spin").refused("##contig=<ID=X,length=")


def test_phasing_x(run, example, x_panel, tmp_path):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", two_letters, unphased=True)
    out = tmp_path / "o.bcf"
    run.phase(target, x_panel, out).ok()
    n = 0
    for v in cyvcf2.VCF(str(out)):
        n += 1
        assert all(call[-1] for call in v.genotypes)
        assert [len(call) - 1 for call in v.genotypes] == ([2] * 20 if v.POS <= PAR1_END else [1, 2] * 10)
    assert n == 246


def test_forms_of_lists_of_sexes(tmp_path):
    path = tmp_path / "sexes"
    path.write_bytes("\ufeffa\tM\r\nb\tfemale\r\nc\tNA\r\n".encode())
    assert read_sexes(path) == {"a": True, "b": False}
    path.write_text("f1 1 0 0 1 -9\nf2 1 0 0 2 -9\n")
    assert read_sexes(path) == {"f1_1": True, "f2_1": False}
    path.write_text("f1 a 0 0 1 -9\nf2 b 0 0 2 -9\n")
    assert read_sexes(path) == {"a": True, "b": False}
    path.write_text("a femal\nb M\n")
    with pytest.raises(InputError, match="line 1: 'femal' is not a sex"):
        read_sexes(path)


@pytest.mark.parametrize("suffix", [".vcf.gz", ".bcf"])
def test_chunks_across_the_border_join(example, x_panel, tmp_path, suffix):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", one_letter)
    first, second = PAR1_END - 50_000, PAR1_END + 100_000
    regions = (f"X:1-{first}", f"X:{first - 10_000}-{second}", f"X:{second - 10_000}-155270560")
    chunks = [tmp_path / f"{number}{suffix}" for number in range(3)]
    for chunk, region in zip(chunks, regions, strict=True):
        spinimpute.impute(target, chunk, x_panel, region=spinimpute.RegionSettings(region=region))
    summary = spinimpute.ligate(chunks, tmp_path / f"joined{suffix}", panel=x_panel)
    assert [join.exchanged for join in summary.joins] == [0, 0]
    assert min(join.sites for join in summary.joins) > 20
    spinimpute.impute(target, tmp_path / f"whole{suffix}", x_panel)
    assert (tmp_path / f"joined{suffix}").read_bytes() == (tmp_path / f"whole{suffix}").read_bytes()


@pytest.mark.parametrize("share", [0.5, 1, 1.6])
def test_a_full_disk(run, small_disk, example, genetic_map, x_panel, tmp_path, share):
    """While parts are written or refined, in a folder that the user does not know."""
    vcf = on_x(example / "panel.vcf.gz", tmp_path / "panel.vcf", one_letter)
    disk = small_disk(int(share * x_panel.stat().st_size / 1024) + 16).folder
    out = disk / "x.spin"
    run("panel", "build", "--vcf", vcf, "--map", genetic_map, "--out", out).refused(
        f"cannot write {out}: No space left on device"
    )
    assert not list(disk.iterdir())


@pytest.mark.parametrize("number", ["23", "chr23"])
def test_x_by_its_number(run, example, x_panel, tmp_path, number):
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", one_letter)
    text = target.read_text()
    numbered = tmp_path / "n.vcf"
    numbered.write_text(
        text.replace("\nX\t", f"\n{number}\t").replace("contig=<ID=X", f"contig=<ID={number}")
    )
    for path in (target, numbered):
        run.convert(path, x_panel, path.with_suffix(".out.vcf")).ok()
    rows = [
        [line for line in path.with_suffix(".out.vcf").read_text().splitlines() if line[0] != "#"]
        for path in (target, numbered)
    ]
    assert rows[0] == rows[1]
    assert len(rows[0]) > 200


def test_two_names_of_x(run, example, x_panel, tmp_path):
    """As PLINK writes them: the pseudo-autosomal region behind the rest."""
    target = on_x(example / "target.vcf.gz", tmp_path / "t.vcf", one_letter)
    lines = target.read_text().replace("\nX\t", "\n23\t").splitlines()
    first = next(i for i, line in enumerate(lines) if line[0] != "#")
    behind = [line.replace("23\t", "25\t", 1) for line in lines[first : first + 3]]
    text = "\n".join([*lines[:first], *lines[first + 3 :], *behind]) + "\n"
    target.write_text(text.replace("contig=<ID=X", "contig=<ID=23"))
    run.impute(target, x_panel, tmp_path / "o.vcf").refused(
        "chromosome X has two names, 23 and 25 (record 244). Give it one"
    )


@pytest.fixture(scope="module")
def compared(example: Path, x_panel: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    """Truth, imputed, panel and typed of the whole chromosome: the arguments of `evaluate`."""
    folder = tmp_path_factory.mktemp("compared")
    target = on_x(example / "target.vcf.gz", folder / "target.vcf", one_letter)
    truth = on_x(example / "truth.vcf.gz", folder / "truth.vcf", one_letter)
    output = spinimpute.OutputSettings(formats=("GT", "DS", "GP"))
    spinimpute.impute(target, folder / "imputed.vcf", x_panel, output=output)
    return truth, folder / "imputed.vcf", x_panel, target


def test_evaluating_the_whole_chromosome(compared):
    truth, imputed, panel, typed = compared
    result = spinimpute.evaluate(*compared)
    frequency = read_panel(panel).frequency
    left_out = {v.POS for v in cyvcf2.VCF(str(typed))}
    pairs, of_sites = [], []
    for v, (position, _, dosage) in zip(cyvcf2.VCF(str(truth)), records(imputed), strict=True):
        p = frequency.get(("X", v.POS, v.REF, v.ALT[0]), 0)
        if position in left_out or not 0 < p < 1:
            continue
        ploidy = np.array([len(call) - 1 for call in v.genotypes])
        count = np.array([sum(call[:-1]) for call in v.genotypes])
        site = np.array([count, dosage] if p <= 0.5 else [ploidy - count, ploidy - dosage])
        pairs.append(site)
        if site[0].std() > 0:
            of_sites.append(np.corrcoef(site)[0, 1] ** 2 if site[1].std() > 1e-6 else 0.0)
    row = next(row for row in result.by_frequency if row["imputer"] == "imputed")
    assert row["sites"] == result.scored_sites == len(pairs) > 3_800
    assert row["pooled_r2"] == pytest.approx(np.corrcoef(np.hstack(pairs))[0, 1] ** 2, abs=1e-5)
    assert row["mean_r2"] == pytest.approx(np.mean(of_sites), abs=1e-5)
    assert result.missing_sites == result.missing_genotypes == 0
    assert result.calibration is not None
    assert result.calibration[0]["calibration_error"] < 0.01
    by_vcf = spinimpute.evaluate(truth, imputed, panel.with_name("panel.vcf"), typed)
    assert pd.DataFrame(by_vcf.by_frequency).equals(pd.DataFrame(result.by_frequency))


def test_men_who_are_homozygous_in_the_truth(run, example, compared, tmp_path):
    truth, imputed, panel, typed = compared
    doubled = on_x(example / "truth.vcf.gz", tmp_path / "doubled.vcf", two_letters)
    with pytest.raises(InputError, match=r"has 1 allele at X:2699\d+ and 2 in the truth.*spinimpute.convert"):
        spinimpute.evaluate(doubled, imputed, panel, typed)
    converted = tmp_path / "converted.vcf.gz"
    run.convert(doubled, panel, converted).ok()
    result = spinimpute.evaluate(converted, imputed, panel, typed)
    others = spinimpute.evaluate(*compared)
    assert pd.DataFrame(result.by_frequency).equals(pd.DataFrame(others.by_frequency))

    mixed = tmp_path / "mixed.vcf"  # of one man, in one of three records
    lines = truth.read_text().splitlines()
    for number, line in enumerate(lines):
        fields = line.split("\t")
        if line[0] != "#" and number % 3 == 0:
            fields[9] = two_letters(fields[9])
            lines[number] = "\t".join(fields)
    mixed.write_text("\n".join(lines) + "\n")
    with pytest.raises(
        InputError, match=r"target_AFR_01 has 1 allele at X:\d+, 2 before and 1 before that.*convert"
    ):
        spinimpute.evaluate(mixed, imputed, panel, typed)


def test_evaluating_under_other_names_of_x(compared, tmp_path):
    """As PLINK writes X: by its number, or in parts of which the first is named PAR1."""
    truth, *others = compared
    found = []
    for par, rest in ("X", "X"), ("chr23", "chr23"), ("PAR1", "X"):
        lines = []
        for line in truth.read_text().splitlines():
            if line[0] != "#":
                position = int(line.split("\t")[1])
                if position % 6:  # the others are enough
                    continue
                line = line.replace("X", par if position <= PAR1_END else rest, 1)
            lines.append(line)
        text = "\n".join(lines) + "\n"
        named = tmp_path / "named.vcf"
        named.write_text(text.replace(CONTIG, "\n".join(f"##contig=<ID={name}>" for name in {par, rest})))
        found.append(spinimpute.evaluate(named, *others))
    assert found[0].scored_sites > 500
    for other in found[1:]:
        assert pd.DataFrame(other.by_frequency).equals(pd.DataFrame(found[0].by_frequency))
