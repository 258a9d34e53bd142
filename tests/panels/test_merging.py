"""Merging of panel files: the samples of the example's panel are split into two panels."""

import gzip
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.panels.merging.merge import check_mergeable, merge_panels
from spinimpute.panels.merging.site_union import SiteUnion
from spinimpute.panels.panel import Panel
from spinimpute.panels.spin_files import join_panels, open_spin_file
from spinimpute.panels.trust.site_trust import SiteDoubts
from spinimpute.runtime.errors import InputError

from ..conftest import vcf_text

N_SITES = 2_000


@dataclass(frozen=True)
class Text:
    """A VCF: samples, and rows of POS, REF, ALT and calls."""

    samples: list[str]
    rows: list[tuple[int, str, str, list[str]]]
    chrom: str = "20"
    length: str = ""

    def of(self, people: Sequence[int], *, dropped: Sequence[int] = ()) -> "Text":
        """Some samples, and the sites that vary among them and are not dropped."""
        rows = []
        for i, (position, ref, alt, calls) in enumerate(self.rows):
            chosen = [calls[x] for x in people]
            if i not in dropped and len({allele for call in chosen for allele in call.split("|")}) > 1:
                rows.append((position, ref, alt, chosen))
        return replace(self, samples=[self.samples[x] for x in people], rows=rows)

    def build(self, path: Path, genetic_map: Path | None = None) -> Path:
        length = f",length={self.length}" if self.length else ""
        text = path.with_suffix(".vcf")
        records = vcf_text(self.rows, self.samples, self.chrom)
        text.write_text(records.replace(",length=63025520", length))
        with warnings.catch_warnings(action="ignore"):
            spinimpute.build_panels(text, path, genetic_map, force=True)
        return path


def build_both(texts: Sequence[Text], folder: Path) -> list[Path]:
    return [text.build(folder / f"{name}.spin") for text, name in zip(texts, "ab", strict=True)]


@pytest.fixture(scope="module")
def whole(example: Path) -> Text:
    lines = gzip.decompress((example / "panel.vcf.gz").read_bytes()).decode().splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("#CHROM"))
    rows = [line.split("\t") for line in lines[head + 1 : head + 1 + N_SITES]]
    return Text(lines[head].split("\t")[9:], [(int(row[1]), row[3], row[4], row[9:]) for row in rows])


@pytest.fixture(scope="module")
def halves(whole: Text) -> tuple[Text, Text]:
    people = list(range(len(whole.samples)))  # by turns: populations stand one behind the other
    return whole.of(people[::2]), whole.of(people[1::2])


@pytest.fixture(scope="module")
def files(halves: tuple[Text, Text], example: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("halves")
    return [
        half.build(folder / name, example / "genetic.map")
        for half, name in zip(halves, ("a.spin", "b.spin"), strict=True)
    ]


def alleles(panel: Panel) -> dict[tuple[int, str, str], np.ndarray]:
    found = panel.alleles(0, panel.n_sites)
    return dict(zip(panel.sites.keys(), found, strict=True))


def expected(text: Text, names: Sequence[str]) -> dict[tuple[int, str, str], np.ndarray]:
    """True alleles by site, with the samples in the given order."""
    order = [text.samples.index(name) for name in names]
    return {
        (position, ref, alt): np.array([int(a) for x in order for a in calls[x].split("|")], np.uint8)
        for position, ref, alt, calls in text.rows
    }


def test_absent_alleles_stay_absent(whole: Text, files: list[Path], tmp_path: Path) -> None:
    """Merging restores the whole panel: one half lacks sites whose allele nobody there carries."""
    out = tmp_path / "ab.spin"
    merge_panels(files, out)
    with Panel.open(out) as merged, Panel.open(files[0]) as first, Panel.open(files[1]) as second:
        merged.verify()
        assert merged.samples == first.samples + second.samples
        assert merged.n_haplotypes == 2 * len(whole.samples)
        keys = set(first.sites.keys()) | set(second.sites.keys())
        found, true = alleles(merged), expected(whole, merged.samples)
        assert set(found) == keys
        wrong = [key for key in keys if (found[key] != true[key]).any()]
        assert len(wrong) <= 0.002 * len(keys)
        only = [key for key in keys if key not in set(first.sites.keys()) & set(second.sites.keys())]
        assert len(only) > 300
        assert (np.diff(merged.position) >= 0).all()
        at = dict(zip(first.sites.keys(), first.cM, strict=True))
        of_first = [
            (at[key], cM) for key, cM in zip(merged.sites.keys(), merged.cM, strict=True) if key in at
        ]
        assert all(one == other for one, other in of_first)
        assert merged.made_of == f" (merged of {first.checksum} and {second.checksum})"
        assert merged.provenance["source"] == "a.vcf + b.vcf"


def test_lost_sites_are_filled_in(whole: Text, tmp_path: Path) -> None:
    """If each half loses a tenth of its sites, nearly all common alleles are imputed."""
    random = np.random.default_rng(5)
    lost = [np.flatnonzero(random.random(len(whole.rows)) < 0.1).tolist() for _ in range(2)]
    people = list(range(len(whole.samples)))
    texts = [whole.of(people[i::2], dropped=lost[i]) for i in range(2)]
    files = [text.build(tmp_path / f"{i}.spin") for i, text in enumerate(texts)]
    out = tmp_path / "both.spin"
    merge_panels(files, out, threads=1)
    with Panel.open(out) as merged:
        found, true = alleles(merged), expected(whole, merged.samples)
        assert all(panel_sites <= set(found) for panel_sites in ({row[:3] for row in t.rows} for t in texts))
    n_first = 2 * len(people[::2])
    carried = {(i, j): 0 for i in (0, 1) for j in (0, 1)}
    for i, sites in enumerate(lost):
        mine = slice(0, n_first) if i == 0 else slice(n_first, None)
        for row in (whole.rows[site] for site in sites):
            key = row[:3]
            if key in found and 0.05 < true[key].mean() < 0.5:
                for a, b in zip(true[key][mine].tolist(), found[key][mine].tolist(), strict=True):
                    carried[a, b] += 1
    assert carried[1, 1] > 1_000
    assert carried[1, 1] > 0.95 * (carried[1, 1] + carried[0, 1])  # of those filled in so many carry it
    assert carried[1, 1] > 0.95 * (carried[1, 1] + carried[1, 0])


def test_threads_and_windows_make_no_difference(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contents = set()
    for threads, size in ((1, None), (3, None), (2, 300)):
        if size is not None:
            monkeypatch.setattr("spinimpute.panels.merging.merge._MIN_SITES", size)
            monkeypatch.setattr("spinimpute.panels.merging.merge._MAX_SITES", size)
        merge_panels(files, tmp_path / "o.spin", threads=threads, force=True)
        contents.add((tmp_path / "o.spin").read_bytes())
    assert len(contents) == 1


def test_three_panels(whole: Text, tmp_path: Path) -> None:
    people = list(range(len(whole.samples)))
    files = [whole.of(people[i::3]).build(tmp_path / f"{i}.spin") for i in range(3)]
    out = tmp_path / "all.spin"
    fractions: list[float] = []
    merge_panels(files, out, progress=fractions.append)
    assert fractions == sorted(fractions)
    with Panel.open(out) as merged:
        found, true = alleles(merged), expected(whole, merged.samples)
        assert merged.n_samples == len(people)
        assert len(merged.merged) == 3
        wrong = sum((found[key] != true[key]).any() for key in found)
        assert wrong <= 0.004 * len(found)
    names = sorted(path.name for path in tmp_path.iterdir() if path.suffix != ".vcf")
    assert names == ["0.spin", "1.spin", "2.spin", "all.spin"]


class TestSites:
    def test_swapped_alleles_of_snps(self, whole: Text, halves: tuple[Text, Text], tmp_path: Path) -> None:
        first, second = halves
        of_first = {row[:3] for row in first.rows}
        shared = [i for i, row in enumerate(second.rows) if row[:3] in of_first and len(row[1] + row[2]) == 2]
        chosen = set(shared[3::40])
        rows = [
            (row[0], row[2], row[1], [swap(call) for call in row[3]]) if i in chosen else row
            for i, row in enumerate(second.rows)
        ]
        files = [
            first.build(tmp_path / "a.spin"),
            replace(second, rows=rows).build(tmp_path / "b.spin"),
            second.build(tmp_path / "c.spin"),
        ]
        said = rf"b\.spin has REF and ALT of {len(chosen)} SNPs exchanged, compared with a\.spin"
        with pytest.warns(UserWarning, match=said):
            merge_panels([files[0], files[1]], tmp_path / "ab.spin")
        merge_panels([files[0], files[2]], tmp_path / "ac.spin")
        with Panel.open(tmp_path / "ab.spin") as ab, Panel.open(tmp_path / "ac.spin") as ac:
            assert ab.sites.keys() == ac.sites.keys()
            assert np.array_equal(ab.alleles(0, ab.n_sites), ac.alleles(0, ac.n_sites))

    def test_several_alternative_alleles(self, tmp_path: Path) -> None:
        """Other alleles at one position are other sites; an insertion is not a swapped deletion."""
        random = np.random.default_rng(1)
        texts = []
        for name, extra in (("p", ("A", "AT")), ("q", ("AT", "A"))):
            calls = [[f"{a}|{b}" for a, b in random.integers(0, 2, (8, 2))] for _ in range(42)]
            rows = [(100 * (i + 1), "A", "C", calls[i]) for i in range(40)]
            rows += [(4_100, *extra, calls[40]), (4_100, "A", "G" if name == "p" else "T", calls[41])]
            texts.append(Text([f"{name}{i}" for i in range(8)], rows, "20" if name == "p" else "chr20"))
        merge_panels(build_both(texts, tmp_path), tmp_path / "o.spin")
        with Panel.open(tmp_path / "o.spin") as merged:
            assert (merged.chrom, merged.n_samples) == ("20", 16)
            expected_alleles = [("A", "AT"), ("A", "G"), ("A", "T"), ("AT", "A")]
            assert merged.sites.keys()[-4:] == [(4_100, *pair) for pair in expected_alleles]


def swap(call: str) -> str:
    return call.translate({48: "1", 49: "0"})


def flipped(text: Text, which: Callable[[str, str], bool]) -> Text:
    """The panel with the selected SNPs on the other strand."""
    other = str.maketrans("ACGT", "TGCA")
    rows = [
        (at, ref.translate(other), alt.translate(other), calls)
        if len(ref + alt) == 2 and which(ref, alt)
        else (at, ref, alt, calls)
        for at, ref, alt, calls in text.rows
    ]
    return replace(text, rows=rows)


def is_ambiguous(ref: str, alt: str) -> bool:
    return {ref, alt} in ({"A", "T"}, {"C", "G"})


class TestStrand:
    """On the other strand, A/T and C/G sites seem to be swapped, and other sites seem to be new."""

    @pytest.mark.parametrize(
        ("which", "said"),
        [
            (lambda ref, alt: True, r"A/T or C/G, so one of them seems to be on the other strand"),
            (
                lambda ref, alt: not is_ambiguous(ref, alt),
                r"\d\d+ of \d+ sites with different alleles have complementary alleles",
            ),
            (is_ambiguous, r"all \d\d+ SNPs that have REF and ALT exchanged are A/T or C/G"),
        ],
    )
    def test_the_other_strand_is_refused(
        self,
        halves: tuple[Text, Text],
        files: list[Path],
        tmp_path: Path,
        which: Callable[[str, str], bool],
        said: str,
    ) -> None:
        other = flipped(halves[1], which).build(tmp_path / "b.spin")
        for given in ([files[0], other], [other, files[0]], [*files, other]):
            with pytest.raises(InputError, match=said):
                merge_panels(given, tmp_path / "o.spin")
        with pytest.raises(InputError, match="other strand"):  # before hours of other chromosomes
            check_mergeable([files[0], other])
        assert not (tmp_path / "o.spin").exists()

    def test_some_sites_of_either_kind_are_no_other_strand(
        self, halves: tuple[Text, Text], files: list[Path], tmp_path: Path
    ) -> None:
        numbers = iter(range(10**6))
        other = flipped(halves[1], lambda ref, alt: next(numbers) % 40 == 0)
        rows = [
            (at, alt, ref, [swap(call) for call in calls])
            if len(ref + alt) == 2 and at % 20 == 1
            else (at, ref, alt, calls)
            for at, ref, alt, calls in other.rows
        ]
        with pytest.warns(UserWarning, match="SNPs exchanged"):
            merge_panels(
                [files[0], replace(other, rows=rows).build(tmp_path / "b.spin")], tmp_path / "o.spin"
            )


class TestHowMuchIsShared:
    def warnings_of(self, given: Sequence[Path], out: Path) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            merge_panels(given, out)
        return [str(one.message) for one in caught if "in the range of both" in str(one.message)]

    def test_a_warning_if_common_sites_mostly_differ(
        self, halves: tuple[Text, Text], files: list[Path], tmp_path: Path
    ) -> None:
        """Such panels may be shifted against each other."""
        rows = [row if i % 4 == 0 else (row[0] + 1, *row[1:]) for i, row in enumerate(halves[1].rows)]
        shifted = replace(halves[1], rows=sorted(rows)).build(tmp_path / "b.spin")
        (said,) = self.warnings_of([files[0], shifted], tmp_path / "o.spin")
        assert said.startswith("a.spin and b.spin share ")
        assert "common sites in the range of both" in said

    def test_usual_panels_get_no_warning(
        self, halves: tuple[Text, Text], files: list[Path], tmp_path: Path
    ) -> None:
        """Panels of other samples, with few sites, or of a part of the region get no warning."""
        few = replace(halves[1], rows=halves[1].rows[::10]).build(tmp_path / "few.spin")
        part = replace(halves[1], rows=halves[1].rows[400:1_000]).build(tmp_path / "part.spin")
        for other in (files[1], few, part):
            assert not self.warnings_of([files[0], other], tmp_path / f"o.{other.name}")


class TestSamplesOfBoth:
    def test_same_haplotypes_are_kept_once(
        self, whole: Text, halves: tuple[Text, Text], tmp_path: Path
    ) -> None:
        """At sites that only the second panel has, they keep their alleles in that panel."""
        first = halves[0]
        twins = list(range(0, 20, 2))
        people = list(range(1, len(whole.samples), 2))
        second = whole.of([*twins, *people])
        lost = {i for i, row in enumerate(first.rows) if i % 9 == 4}
        first = replace(first, rows=[row for i, row in enumerate(first.rows) if i not in lost])
        turned = [
            (*row[:3], [call[::-1] if x == 2 else call for x, call in enumerate(row[3])])
            for row in second.rows
        ]
        files = build_both([first, replace(second, rows=turned)], tmp_path)
        said = r"a\.spin and b\.spin both have 10 samples \(panel_.*, \.\.\.\): 10 have the same haplotypes"
        with pytest.warns(UserWarning, match=said):
            merge_panels(files, tmp_path / "o.spin")
        with Panel.open(tmp_path / "o.spin") as merged:
            assert sorted(merged.samples) == sorted(whole.samples)
            found, true = alleles(merged), expected(whole, merged.samples)
            mine = [merged.samples.index(whole.samples[x]) for x in twins]
            columns = [2 * x + side for x in mine for side in (0, 1)]
            assert all((found[key][columns] == true[key][columns]).all() for key in found)

    def test_other_haplotypes_are_kept_twice(self, halves: tuple[Text, Text], tmp_path: Path) -> None:
        first, second = halves
        named = replace(second, samples=[first.samples[0], *second.samples[1:]])
        files = build_both([first, named], tmp_path)
        with pytest.warns(UserWarning, match=r"\): 1 have other haplotypes and are kept twice"):
            merge_panels(files, tmp_path / "o.spin")
        with Panel.open(tmp_path / "o.spin") as merged:
            assert f"{first.samples[0]}_2" in merged.samples
            assert len(set(merged.samples)) == len(first.samples) + len(second.samples)


class TestChromosomeX:
    LENGTH = "155270560"  # GRCh37
    STARTS = (100_000, 5_000_000)  # in PAR1 and behind it

    def texts(self, prefix: str, seed: int) -> list[Text]:
        """One VCF for each region of X; every second sample is male."""
        random = np.random.default_rng(seed)
        made = []
        for start in self.STARTS:
            rows = []
            for i in range(30):
                calls = [f"{a}|{b}" for a, b in random.integers(0, 2, (6, 2))]
                if start == 5_000_000:
                    calls[::2] = [call[0] for call in calls[::2]]
                rows.append((start + 100 * i, "A", "C", calls))
            made.append(Text([f"{prefix}{i}" for i in range(6)], rows, "X", self.LENGTH))
        return made

    def joined(self, texts: Sequence[Text], path: Path) -> Path:
        parts = [text.build(path.with_suffix(f".{i}.spin")) for i, text in enumerate(texts)]
        join_panels(parts, path)
        return path

    def test_part_by_part(self, tmp_path: Path) -> None:
        files = [
            self.joined(self.texts(name, seed), tmp_path / f"{name}.spin") for seed, name in enumerate("ab")
        ]
        merge_panels(files, tmp_path / "o.spin")
        with open_spin_file(tmp_path / "o.spin") as parts:
            assert [part.n_haplotypes for part in parts] == [24, 18]
            assert [part.n_sites for part in parts] == [30, 30]
            assert parts[0].samples == parts[1].samples

    def test_people_are_kept_once_only_if_they_are_the_same_in_all_parts(self, tmp_path: Path) -> None:
        one, other = self.texts("a", 0), self.texts("a", 0)
        position, ref, alt, calls = other[1].rows[-1]
        other[1].rows[-1] = position, ref, alt, [swap(call) for call in calls]
        files = [self.joined(one, tmp_path / "a.spin"), self.joined(other, tmp_path / "b.spin")]
        with pytest.warns(UserWarning, match="both have 6 samples"):
            merge_panels(files, tmp_path / "o.spin")
        with open_spin_file(tmp_path / "o.spin") as parts:
            assert [part.n_samples for part in parts] == [12, 12]

    def test_other_parts_are_refused(self, tmp_path: Path) -> None:
        files = [
            self.joined(self.texts("a", 0), tmp_path / "a.spin"),
            self.texts("b", 1)[1].build(tmp_path / "b.spin"),
        ]
        with pytest.raises(InputError, match=r"different parts of chromosome X \(PAR1, non-PAR; non-PAR\)"):
            merge_panels(files, tmp_path / "o.spin")


def sites_of(
    start: int, step: int, *, chrom: str = "20", length: str = "", prefix: str = "p", alt: str = "C"
) -> Text:
    random = np.random.default_rng(start)
    rows = [
        (start + step * i, "A", alt, [f"{a}|{b}" for a, b in random.integers(0, 2, (6, 2))])
        for i in range(100)
    ]
    return Text([f"{prefix}{i}" for i in range(6)], rows, chrom, length)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (sites_of(1_000, 100, chrom="21", prefix="q"), "are of chromosomes 20 and 21"),
        (
            sites_of(1_050, 100, prefix="q"),
            "share 0 sites of 100 and 100, too few to .*: if they are of different genome builds, lift .*; "
            "if not, they have different sites; give one of them alone",
        ),
        (
            sites_of(1_050, 100, length="63025520", prefix="q"),
            "sites that one of them lacks: they have different sites; give one of them alone",
        ),
        (
            sites_of(1_000, 100, prefix="q", alt="G"),
            "lacks: at 100 positions they have the same REF but different ALT; write both VCFs",
        ),
        (
            sites_of(100_000, 100, prefix="q"),
            "they are of different regions, 20:1000-10900 and 20:100000-109900; build both",
        ),
        (
            sites_of(1_000, 100, length="64444167", prefix="q"),
            "are of the genome builds GRCh37 and GRCh38: lift the VCF",
        ),
    ],
)
def test_panels_that_do_not_fit_are_refused(other: Text, message: str, tmp_path: Path) -> None:
    files = build_both([sites_of(1_000, 100, length="63025520"), other], tmp_path)
    with pytest.raises(InputError, match=message):
        merge_panels(files, tmp_path / "o.spin")
    assert sorted(path.name for path in tmp_path.glob("*.spin")) == ["a.spin", "b.spin"]


def test_a_panel_that_extends_far_beyond_the_other_is_refused(tmp_path: Path) -> None:
    one = sites_of(100_000, 10_000)
    more = replace(
        one, rows=[*one.rows, *sites_of(1_200_000, 20_000).rows], samples=[f"q{i}" for i in range(6)]
    )
    files = build_both([one, more], tmp_path)
    said = (
        r"b\.spin has \d+ sites, the first at 20:\d+, more than 1 cM from every site that .*a\.spin has, too"
    )
    with pytest.raises(InputError, match=said):
        merge_panels(files, tmp_path / "o.spin")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda a, b: [a], "give at least two panels to merge, got 1"),
        (lambda a, b: [a, a], "are the same: give one of them"),
        (lambda a, b: [a, a.with_suffix(".vcf")], "a.vcf"),
    ],
)
def test_unusable_second_panels(
    given: Callable[[Path, Path], list[Path]], message: str, tmp_path: Path
) -> None:
    files = build_both([sites_of(1_000, 100), sites_of(1_000, 100, prefix="q")], tmp_path)
    with pytest.raises(InputError, match=message):
        merge_panels(given(*files), tmp_path / "o.spin")
    assert not (tmp_path / "o.spin").exists()


def test_doubts_of_merged_panels() -> None:
    """Doubts that only one panel confirms do not raise those that the other panel confirms."""
    n = 4
    panels = [
        SimpleNamespace(doubts=SiteDoubts(np.array(discordance, np.uint8), np.array(confirmed, bool)))
        for discordance, confirmed in (((160, 160, 0, 10), (0, 1, 0, 0)), ((60, 60, 80, 90), (1, 1, 0, 0)))
    ]
    everywhere = np.arange(n)
    sites = Sites("20", np.arange(1, n + 1), ["A"] * n, ["C"] * n, ["."] * n)
    union = SiteUnion(sites, np.zeros(n), np.zeros(n, bool), (everywhere, everywhere), np.zeros(n, bool))
    doubts = union.doubts((panels[0], panels[1]))  # type: ignore[arg-type]
    assert doubts.confirmed_discordance.tolist() == [60, 160, 0, 0]
    assert doubts.discordance.tolist() == [60, 160, 80, 90]
