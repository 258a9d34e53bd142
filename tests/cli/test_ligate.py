"""`spinimpute ligate`: chunks of `impute --region` in, the file of a single run out."""

import gzip
import re
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import spinimpute
from spinimpute.genotypes.bgzf import EOF_BLOCK, compress_block
from spinimpute.genotypes.vcf_reader import read_haplotypes
from spinimpute.imputation import window_records
from spinimpute.imputation.chunk_file import read_chunk

Run = Callable[..., Any]

ABUTTING = ("20:1-300000", "20:300001-712345", "20:712346-2000000")
OVERLAPPING = ("20:1-350000", "20:300000-720000", "20:650000-2000000")
FORMATS = ("GT", "DS", "HDS", "GP")
SUFFIXES = (".vcf.gz", ".bcf", ".vcf")


@pytest.fixture(scope="module")
def opened(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("panel") / "panel.spin"
    with spinimpute.build_panel(example / "panel.vcf.gz", path, example / "genetic.map") as panel:
        yield panel


def impute(vcf: Path, out: Path, panel: Any, region: str | None = None, **options: Any) -> Path:
    output = spinimpute.OutputSettings(options.pop("formats", FORMATS))
    spinimpute.impute(vcf, out, panel, region=region, output=output, threads=1, **options)
    return out


@pytest.fixture(scope="module")
def made(example: Path, opened: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of files of the example's phased target: whole.*, and chunks a0.*, a1.* ..., o0.*, o1.* ..."""
    folder = tmp_path_factory.mktemp("chunks")
    for suffix in SUFFIXES:
        impute(example / "target.vcf.gz", folder / f"whole{suffix}", opened)
        for letter, regions in (("a", ABUTTING), ("o", OVERLAPPING)):
            for number, region in enumerate(regions):
                out = folder / f"{letter}{number}{suffix}"
                impute(example / "target.vcf.gz", out, opened, region)
    return folder


def content(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def rewritten(path: Path, out: Path, change: Callable[[bytes], bytes]) -> Path:
    """A copy whose content is changed, with new checksums."""
    data = change(content(path))
    if path.suffix == ".vcf":
        out.write_bytes(data)
        return out
    step = 0xFF00
    blocks = [compress_block(data[start : start + step]) for start in range(0, len(data), step)]
    out.write_bytes(b"".join(blocks) + EOF_BLOCK)
    return out


class TestSameAsASingleRun:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    @pytest.mark.parametrize("kind", ["a", "o"])
    def test_bytes(self, run: Run, made: Path, opened: Any, tmp_path: Path, kind: str, suffix: str) -> None:
        chunks = [made / f"{kind}{number}{suffix}" for number in (2, 0, 1)]  # in any order
        out = tmp_path / f"joined{suffix}"
        done = run("ligate", *chunks, "--out", out, "--panel", opened.path)
        assert done.code == 0, done.err
        assert "warning" not in done.err
        assert content(out) == content(made / f"whole{suffix}")
        for name in (out.name, *(p.name for p in tmp_path.iterdir())):
            twin = name.replace("joined", "whole")
            assert (tmp_path / name).read_bytes() == (made / twin).read_bytes()
        assert len(list(tmp_path.iterdir())) == (1 if suffix == ".vcf" else 2)
        if kind == "o":
            assert done.err.count("haplotypes of 0 samples exchanged, DS differ by 0.0000 at most") == 2
        assert f"written:  {opened.n_sites} sites of 20:1-2000000" in done.err

    def test_no_bit_depends_on_the_region(
        self, example: Path, opened: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of what is computed, before it is rounded: regions that begin and end anywhere."""
        computed: list[np.ndarray] = []
        quality = window_records.site_quality
        monkeypatch.setattr(
            window_records, "site_quality", lambda p: (computed.append(p.copy()), quality(p))[1]
        )
        impute(example / "target.vcf.gz", tmp_path / "whole.bcf", opened)
        whole = np.concatenate(computed)
        for first, stop in ((1, 700), (777, 3001), (3001, 3004), (3004, 4453)):
            computed.clear()
            region = f"20:{opened.position[first]}-{opened.position[stop - 1]}"
            impute(example / "target.vcf.gz", tmp_path / f"{first}.bcf", opened, region)
            np.testing.assert_array_equal(np.concatenate(computed), whole[first:stop])

    def test_a_chunk_across_a_border(self, made: Path, example: Path, opened: Any, tmp_path: Path) -> None:
        across = impute(example / "target.vcf.gz", tmp_path / "across.bcf", opened, "20:290000-310000")
        chunks = [across, *(made / f"a{number}.bcf" for number in range(3))]
        spinimpute.ligate(chunks, tmp_path / "joined.bcf", panel=opened)
        assert (tmp_path / "joined.bcf").read_bytes() == (made / "whole.bcf").read_bytes()

    def test_the_command_line_stays_that_of_a_single_run(
        self, run: Run, example: Path, panel: Path, tmp_path: Path
    ) -> None:
        target = tmp_path / "with --region x.vcf.gz"
        target.write_bytes((example / "target.vcf.gz").read_bytes())
        common = ("impute", "--vcf", target, "--panel", panel, "--seed", 3, "--keep-unmatched")
        assert run(*common, "--out", tmp_path / "whole.bcf").code == 0
        chunks = [tmp_path / f"{number}.bcf" for number in range(3)]
        for chunk, region in zip(chunks, OVERLAPPING, strict=True):
            assert run(*common, "--out", chunk, "--region", region).code == 0
        done = run("ligate", *chunks, "-o", tmp_path / "joined.bcf", "--threads", 2, "-q")
        assert (done.code, done.err) == (0, "")
        assert (tmp_path / "joined.bcf").read_bytes() == (tmp_path / "whole.bcf").read_bytes()

    def test_phased_by_the_program_first(self, run: Run, unphased: Path, opened: Any, tmp_path: Path) -> None:
        phased = tmp_path / "phased.vcf.gz"
        assert run("phase", "--vcf", unphased, "--panel", opened.path, "--out", phased).code == 0
        chunks = [
            impute(phased, tmp_path / f"{number}.bcf", opened, region)
            for number, region in enumerate(ABUTTING)
        ]
        spinimpute.ligate(chunks, tmp_path / "joined.bcf", panel=opened)
        impute(phased, tmp_path / "whole.bcf", opened)
        assert (tmp_path / "joined.bcf").read_bytes() == (tmp_path / "whole.bcf").read_bytes()

    def test_typed_sites_that_the_panel_lacks(self, edited_target: Any, opened: Any, tmp_path: Path) -> None:
        def with_insertions(text: str) -> str:
            lines = []
            for number, line in enumerate(text.splitlines()):
                lines.append(line)
                if line.startswith("20\t") and number % 10 == 0:
                    columns = line.split("\t")
                    lines.append("\t".join([*columns[:2], "new", "A", "ACGTACGT", *columns[5:]]))
            return "\n".join(lines) + "\n"

        target = edited_target(with_insertions)

        def run(name: str, region: str | None) -> Path:
            output = spinimpute.OutputSettings(("GT",), keep_unmatched=True)
            spinimpute.impute(target, tmp_path / name, opened, region=region, output=output, force=True)
            return tmp_path / name

        chunks = [run(f"{number}.vcf.gz", region) for number, region in enumerate(OVERLAPPING)]
        assert all(read_chunk(chunk, 1).unmatched for chunk in chunks)
        spinimpute.ligate(chunks, tmp_path / "joined.vcf.gz", panel=opened)
        assert (tmp_path / "joined.vcf.gz").read_bytes() == run("whole.vcf.gz", None).read_bytes()


@pytest.fixture
def unphased(edited_target: Any) -> Path:
    def unphase(text: str) -> str:
        return re.sub(r"\t([01])\|([01])", lambda m: f"\t{min(m[1], m[2])}/{max(m[1], m[2])}", text)

    return Path(edited_target(unphase))


class TestBuffer:
    def test_only_sites_nearby_are_used(self, run: Run, unphased: Path, panel: Path, tmp_path: Path) -> None:
        common = ("impute", "--vcf", unphased, "--panel", panel, "--region", "20:400000-600000")
        counts = []
        for buffer in ("0.1", "10"):
            out = tmp_path / f"{buffer}.vcf"
            done = run(*common, "--buffer", buffer, "--out", out)
            assert done.code == 0, done.err
            (used,) = re.findall(r"(\d+) of them lie in the region and its buffer", done.err)
            (phased,) = re.findall(r"phased:   (\d+) unphased", done.err)
            counts.append((int(used), int(phased)))
            assert f"--buffer {float(buffer)}" in out.read_text()
        assert counts[0][0] < counts[1][0] == 246
        assert counts[0][1] < counts[1][1]
        done = run(*common, "--out", tmp_path / "all.vcf")
        records = [
            [line for line in (tmp_path / name).read_text().splitlines() if line[0] != "#"]
            for name in ("10.vcf", "all.vcf")
        ]
        assert records[0] == records[1]

    def test_region_in_the_header(self, made: Path, opened: Any) -> None:
        lines = [
            line for line in content(made / "a1.vcf").decode().splitlines() if "spinimpute_region" in line
        ]
        n_sites = int(((opened.position >= 300001) & (opened.position <= 712345)).sum())
        assert lines == [f"##spinimpute_region=20:300001-712345 sites={n_sites}"]
        assert b"spinimpute_region" not in content(made / "whole.vcf")

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (["--buffer", "1"], "give --region"),
            (["--buffer", "-1", "--region", "20:1-9000"], "at least 0 cM"),
            (["--buffer", "nan", "--region", "20:1-9000"], "at least 0 cM"),
            (
                ["--buffer", "0", "--region", "20:259-259"],
                "no typed site lies within 0 cM",
            ),
        ],
    )
    def test_refusals(
        self, run: Run, example: Path, panel: Path, tmp_path: Path, options: list[str], said: str
    ) -> None:
        vcf = example / "target.vcf.gz"
        failed = run("impute", "--vcf", vcf, "--panel", panel, "--out", tmp_path / "o.vcf", *options)
        assert failed.code == 2
        assert said in failed.err
        assert not list(tmp_path.iterdir())


def exchange(line: str, samples: Sequence[int]) -> str:
    """A record with the haplotypes of some samples exchanged."""
    columns = line.split("\t")
    keys = columns[8].split(":")
    for sample in samples:
        values = columns[9 + sample].split(":")
        for key, mark in (("GT", "|"), ("HDS", ",")):
            if key in keys:
                at = keys.index(key)
                values[at] = mark.join(reversed(values[at].split(mark)))
        columns[9 + sample] = ":".join(values)
    return "\t".join(columns)


def exchanged_file(path: Path, out: Path, samples: Sequence[int]) -> Path:
    def change(text: bytes) -> bytes:
        lines = text.decode().splitlines()
        return ("\n".join(x if x[0] == "#" else exchange(x, samples) for x in lines) + "\n").encode()

    return rewritten(path, out, change)


def exchanged_bcf(path: Path, out: Path, samples: Sequence[int]) -> Path:
    """The same of a BCF of GT:DS:HDS:GP."""

    def change(data: bytes) -> bytes:
        changed = bytearray(data)
        at = 9 + int.from_bytes(data[5:9], "little")
        while at < len(data):
            shared, of_samples = struct.unpack_from("<2I", data, at)
            at += 8 + shared
            genotypes = np.frombuffer(changed, np.int8, 40, at + 3).reshape(20, 2)
            hds = np.frombuffer(changed, "<u4", 40, at + 3 + 40 + 3 + 80 + 3).reshape(20, 2)
            chosen = list(samples)
            genotypes[chosen] = genotypes[chosen][:, ::-1] ^ 1  # only the second is marked as phased
            hds[chosen] = hds[chosen][:, ::-1]
            at += of_samples
        return bytes(changed)

    return rewritten(path, out, change)


class TestPhase:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_exchanged_samples_are_restored(
        self, run: Run, made: Path, opened: Any, tmp_path: Path, suffix: str
    ) -> None:
        make = exchanged_bcf if suffix == ".bcf" else exchanged_file
        chunks = [
            made / f"o0{suffix}",
            make(made / f"o1{suffix}", tmp_path / f"1{suffix}", [0, 3, 7, 19]),
            make(made / f"o2{suffix}", tmp_path / f"2{suffix}", [3, 5]),  # 3: as in the chunk before
        ]
        assert content(chunks[1]) != content(made / f"o1{suffix}")
        out = tmp_path / f"joined{suffix}"
        done = run("ligate", *chunks, "-o", out, "--panel", opened.path)
        assert done.code == 0, done.err
        assert out.read_bytes() == (made / f"whole{suffix}").read_bytes()
        assert "haplotypes of 4 samples exchanged" in done.err
        assert "haplotypes of 2 samples exchanged" in done.err

    def test_without_heterozygotes_nothing_is_exchanged(self, run: Run, made: Path, tmp_path: Path) -> None:
        alone = re.compile(rb"\t[01]\|[01]")
        chunks = [
            rewritten(made / f"o{n}.vcf", tmp_path / f"{n}.vcf", lambda text: alone.sub(b"\t1|1", text))
            for n in (0, 1)
        ]
        chunks[1] = exchanged_file(chunks[1], tmp_path / "other.vcf", range(20))
        done = run("ligate", *chunks, "-o", tmp_path / "joined.vcf")
        assert "haplotypes of 0 samples exchanged" in done.err

    def test_chunks_phased_apart(self, unphased: Path, example: Path, opened: Any, tmp_path: Path) -> None:
        """Fewer wrong links than without looking at the overlap."""
        chunks = [
            impute(unphased, tmp_path / f"{n}.bcf", opened, region, buffer_cM=0.05)
            for n, region in enumerate(OVERLAPPING)
        ]
        summary = spinimpute.ligate(chunks, tmp_path / "joined.bcf", panel=opened)
        assert all(join.sites > 100 for join in summary.joins)
        assert sum(join.exchanged for join in summary.joins) > 0
        assert all(join.largest_difference is not None for join in summary.joins)
        truth = read_haplotypes(example / "target.vcf.gz")
        joined = read_haplotypes(tmp_path / "joined.bcf")
        assert joined.sites.position.tolist() == opened.position.tolist()
        place = {key: row for row, key in enumerate(joined.sites.keys())}
        rows = [place[key] for key in truth.sites.keys()]  # noqa: SIM118
        # heterozygotes on either side of a join have the same phase as the truth, or both the other
        good = bad = 0
        for middle in (325_000, 685_000):
            for x in range(20):
                het = np.flatnonzero(truth.alleles[:, 2 * x] != truth.alleles[:, 2 * x + 1])
                position = truth.sites.position[het]
                cut = int(np.searchsorted(position, middle))
                near = [het[cut - 1], het[cut]] if 0 < cut < len(het) else []
                same = [truth.alleles[t, 2 * x] == joined.alleles[rows[t], 2 * x] for t in near]
                good, bad = good + (len(set(same)) == 1), bad + (len(set(same)) == 2)
        assert good > 5 * bad


class TestRefusals:
    """One clear line, exit 2, and no output."""

    @pytest.fixture
    def refused(self, run: Run, tmp_path: Path) -> Callable[..., str]:
        def ligate(*arguments: object, suffix: str = ".vcf.gz") -> str:
            folder = tmp_path / "out"
            folder.mkdir(exist_ok=True)
            failed = run("ligate", *arguments, "--out", folder / f"o{suffix}", "--quiet")
            assert failed.code == 2
            assert failed.out == ""
            assert failed.err.startswith("spinimpute: error: ")
            assert failed.err.count("\n") == 1
            assert not list(folder.iterdir())
            return str(failed.err)

        return ligate

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_truncated(self, refused: Any, made: Path, tmp_path: Path, suffix: str) -> None:
        whole = (made / f"a1{suffix}").read_bytes()
        cut = tmp_path / f"cut{suffix}"
        for size in (0, 10, 300, len(whole) // 3, len(whole) - 1000, len(whole) - 28, len(whole) - 1):
            for end in (b"", EOF_BLOCK if suffix != ".vcf" else b"\n"):
                cut.write_bytes(whole[:size] + end)
                if cut.read_bytes() == whole:
                    continue
                message = refused(made / f"a0{suffix}", cut, suffix=suffix)
                assert str(cut) in message

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_truncated_between_or_within_records(
        self, refused: Any, made: Path, tmp_path: Path, suffix: str
    ) -> None:
        data = content(made / f"a1{suffix}")
        for size in (200, len(data) // 2, len(data) - 1):
            cut = rewritten(made / f"a1{suffix}", tmp_path / f"cut{suffix}", lambda d, n=size: d[:n])
            assert "truncated" in refused(made / f"a0{suffix}", cut, suffix=suffix)
        if suffix != ".bcf":
            cut = rewritten(
                made / f"a1{suffix}", tmp_path / f"cut{suffix}", lambda d: d[: d[:-1].rindex(b"\n") + 1]
            )
            assert "records, but its header says" in refused(cut, suffix=suffix)

    @pytest.mark.parametrize("suffix", [".vcf.gz", ".bcf"])
    def test_a_flipped_byte(self, refused: Any, made: Path, tmp_path: Path, suffix: str) -> None:
        data = (made / f"a1{suffix}").read_bytes()
        size = int.from_bytes(data[16:18], "little") + 1
        flipped = tmp_path / f"flipped{suffix}"
        places = [0, 2, 12, 16, 17, 20, size // 2, size - 5, size - 1, size, size + 17, len(data) // 2]
        for place in [*places, len(data) - 40, len(data) - 20]:
            changed = bytearray(data)
            changed[place] ^= 4
            flipped.write_bytes(changed)
            assert str(flipped) in refused(flipped, suffix=suffix)

    def test_a_changed_line(self, refused: Any, made: Path, tmp_path: Path) -> None:
        for old, new, said in (
            (b"\n20\t", b"\n21\t", "it is on 21"),
            (b"\tGT:DS", b"\tGT:XX", "its FORMAT is GT:XX"),
            (b"\t0|0:", b"\t0|0\t:", "columns in place of"),
            (b"\n20\t", b"\n20\tx", "its position is"),
            (b"\n20\t", b"\n20\t9", "the positions go backwards at record 2"),
            (b"-712345 ", b"-700000 ", "does not lie in the region"),
        ):
            changed = rewritten(
                made / "a1.vcf", tmp_path / "changed.vcf", lambda d, o=old, n=new: d.replace(o, n, 1)
            )
            assert said in refused(changed, suffix=".vcf")

    def test_missing_chunk(self, refused: Any, made: Path, panel: Path) -> None:
        chunks = (made / "a0.bcf", made / "a2.bcf")
        assert "there is a gap: is a chunk missing?" in refused(*chunks, suffix=".bcf")
        message = refused(*chunks, "--panel", panel, suffix=".bcf")
        assert "sites of the panel, the first of them 20:" in message
        assert all(str(chunk) in message for chunk in chunks)

    def test_gaps_that_are_allowed(self, run: Run, made: Path, panel: Path, tmp_path: Path) -> None:
        chunks = (made / "a2.bcf", made / "a1.bcf")
        missing = run("ligate", *chunks, "-o", tmp_path / "o.bcf", "--panel", panel, "-q")
        assert missing.code == 2
        assert "and 0 behind the last: is a chunk missing?" in missing.err
        done = run("ligate", *chunks, "-o", tmp_path / "o.bcf", "--panel", panel, "-q", "--allow-gaps")
        assert done.code == 0
        assert re.search(r"the panel has \d+ sites before the first chunk and 0 behind", done.err)
        chunks = (made / "a0.bcf", made / "a2.bcf")
        done = run("ligate", *chunks, "-o", tmp_path / "p.bcf", "--panel", panel, "--allow-gaps")
        assert done.code == 0
        assert "warning: " in done.err
        assert "they are left out" in done.err
        assert run("ligate", *chunks, "-o", tmp_path / "q.bcf", "--allow-gaps").code == 0
        assert (tmp_path / "q.bcf").read_bytes() == (tmp_path / "p.bcf").read_bytes()

    def test_regions_without_a_site_between(
        self, run: Run, example: Path, opened: Any, tmp_path: Path
    ) -> None:
        last, following = (int(p) for p in opened.position[100:102])
        chunks = [
            impute(example / "target.vcf.gz", tmp_path / f"{n}.vcf", opened, region, formats=("GT",))
            for n, region in enumerate([f"20:1-{last}", f"20:{following}-2000000"])
        ]
        assert run("ligate", *chunks, "-o", tmp_path / "o.vcf").code == 2
        done = run("ligate", *chunks, "-o", tmp_path / "o.vcf", "--panel", opened.path)
        assert done.code == 0, done.err

    def test_given_twice_and_contained(
        self, refused: Any, made: Path, example: Path, opened: Any, tmp_path: Path
    ) -> None:
        chunk = made / "a0.vcf.gz"
        assert "are both of 20:1-300000" in refused(chunk, made / "a1.vcf.gz", chunk)
        inner = impute(example / "target.vcf.gz", tmp_path / "i.vcf.gz", opened, "20:1000-20000")
        assert "lies within" in refused(chunk, inner)
        three = impute(example / "target.vcf.gz", tmp_path / "t.vcf.gz", opened, "20:340000-800000")
        assert "at most two may overlap" in refused(made / "o0.vcf.gz", made / "o1.vcf.gz", three)

    def test_another_panel(self, refused: Any, made: Path, example: Path, tmp_path: Path) -> None:
        with spinimpute.Panel.open(_panel_of(example, tmp_path)) as other:
            chunk = impute(example / "target.vcf.gz", tmp_path / "1.vcf.gz", other, ABUTTING[1])
            message = refused(made / "a0.vcf.gz", chunk)
            assert "differ in the panel" in message
            assert str(chunk) in message
            assert "imputed from another panel" in refused(made / "a0.vcf.gz", "--panel", other.path)

    def test_other_samples_formats_and_versions(
        self, refused: Any, made: Path, example: Path, opened: Any, tmp_path: Path
    ) -> None:
        first = made / "a0.vcf"
        for change, said in (
            (lambda d: d.replace(b"\ttarget_AFR_02", b"\trenamed", 1), "their samples or the order of them"),
            (lambda d: d.replace(b"##source=spinimpute ", b"##source=spinimpute x"), "in the program"),
            (lambda d: d.replace(b"##spinimpute_model=", b"##spinimpute_model=x"), "in the model"),
            (lambda d: d.replace(b"ID=AF,Number=A", b"ID=AF,Number=1"), "in the definitions"),
            (lambda d: re.sub(rb"##spinimpute_region.*\n", b"", d), "does not say which region"),
            (lambda d: d.replace(b"20:300001-712345 ", b"20:300001-712345 unmatched=0 "), "which region"),
        ):
            other = rewritten(made / "a1.vcf", tmp_path / "other.vcf", change)
            message = refused(first, other, suffix=".vcf")
            assert said in message
            assert str(other) in message
        assert "which region" in refused(made / "whole.vcf.gz")
        other = impute(
            example / "target.vcf.gz", tmp_path / "other.bcf", opened, ABUTTING[1], formats=("GT",)
        )
        assert "differ in FORMAT: GT:DS:HDS:GP and GT" in refused(made / "a0.bcf", other, suffix=".bcf")

    def test_fewer_samples(self, refused: Any, made: Path, tmp_path: Path) -> None:
        def without_last(text: bytes) -> bytes:
            lines = text.decode().splitlines()
            return ("\n".join(x if x[:2] == "##" else x.rsplit("\t", 1)[0] for x in lines) + "\n").encode()

        other = rewritten(made / "a1.vcf.gz", tmp_path / "other.vcf.gz", without_last)
        assert "differ in the number of samples: 20 and 19" in refused(made / "a0.vcf.gz", other)

    def test_a_site_lost_and_a_site_doubled(
        self, refused: Any, made: Path, panel: Path, tmp_path: Path
    ) -> None:
        def one_less(text: bytes) -> bytes:
            lines = text.splitlines(keepends=True)
            del lines[-10]
            return re.sub(rb"sites=(\d+)", lambda m: b"sites=%d" % (int(m[1]) - 1), b"".join(lines))

        def one_twice(text: bytes) -> bytes:
            lines = text.splitlines(keepends=True)
            lines.insert(-10, lines[-10])
            return re.sub(rb"sites=(\d+)", lambda m: b"sites=%d" % (int(m[1]) + 1), b"".join(lines))

        less = rewritten(made / "o0.vcf", tmp_path / "less.vcf", one_less)
        assert "do not have the same sites" in refused(less, made / "o1.vcf", suffix=".vcf")
        assert "lacks the panel site 20:" in refused(less, "--panel", panel, suffix=".vcf")
        twice = rewritten(made / "a0.vcf", tmp_path / "twice.vcf", one_twice)
        assert "each of the panel's sites once" in refused(twice, "--panel", panel, suffix=".vcf")

    def test_other_forms(self, refused: Any, made: Path, example: Path, tmp_path: Path) -> None:
        assert "is BCF, but the output is to be VCF" in refused(made / "a0.bcf")
        assert "is VCF, but the output is to be BCF" in refused(made / "a0.vcf", suffix=".bcf")
        assert "there is no such file" in refused(tmp_path / "absent.bcf")
        plain = tmp_path / "plain.vcf.gz"
        plain.write_bytes(gzip.compress(content(made / "a0.vcf")))
        assert "no BGZF block" in refused(plain)

    def test_output_that_is_there(self, run: Run, made: Path, tmp_path: Path) -> None:
        out = tmp_path / "o.vcf"
        out.write_text("precious")
        failed = run("ligate", made / "a0.vcf", "-o", out)
        assert failed.code == 2
        assert "--force" in failed.err
        assert out.read_text() == "precious"
        copy = tmp_path / "c.vcf"
        copy.write_bytes((made / "a0.vcf").read_bytes())
        assert run("ligate", copy, "-o", copy, "--force").code == 2
        assert run("ligate", copy, "-o", out, "--force").code == 0

    def test_other_command_lines_are_told(self, run: Run, example: Path, panel: Path, tmp_path: Path) -> None:
        chunks = []
        for number, seed in enumerate((1, 2)):
            chunks.append(tmp_path / f"{number}.vcf")
            region = ("--region", ("20:1-20000", "20:20001-40000")[number])
            vcf = example / "target.vcf.gz"
            run("impute", "--vcf", vcf, "--panel", panel, "-o", chunks[-1], "--seed", seed, *region)
        done = run("ligate", *chunks, "-o", tmp_path / "o.vcf", "-q")
        assert done.code == 0
        assert "were made differently" in done.err


def _panel_of(example: Path, folder: Path) -> Path:
    """Of the example, with another map."""
    path = folder / "other.spin"
    with pytest.warns(UserWarning, match="no genetic map"):
        spinimpute.build_panel(example / "panel.vcf.gz", path).close()
    return path
