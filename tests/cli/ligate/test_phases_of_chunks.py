"""Chunks whose haplotypes are exchanged, or were phased apart."""

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

import spinimpute
from spinimpute.vcf.reader import read_haplotypes

Change = Callable[[bytes], bytes]


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


def exchanged_text(samples: Sequence[int]) -> Change:
    """What exchanges the haplotypes of some samples in a VCF's text."""

    def change(text: bytes) -> bytes:
        lines = text.decode().splitlines()
        return ("\n".join(x if x[0] == "#" else exchange(x, samples) for x in lines) + "\n").encode()

    return change


def exchanged_bcf(samples: Sequence[int]) -> Change:
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

    return change


def test_exchanged_samples_are_restored(run, made, opened, tmp_path, suffix, content, rewritten):
    exchanged = exchanged_bcf if suffix == ".bcf" else exchanged_text
    chunks = [
        made / f"o0{suffix}",
        rewritten(made / f"o1{suffix}", tmp_path / f"1{suffix}", exchanged([0, 3, 7, 19])),
        # 3: as in the chunk before
        rewritten(made / f"o2{suffix}", tmp_path / f"2{suffix}", exchanged([3, 5])),
    ]
    assert content(chunks[1]) != content(made / f"o1{suffix}")
    out = tmp_path / f"joined{suffix}"
    done = run("ligate", *chunks, "-o", out, "--panel", opened.path).ok()
    assert out.read_bytes() == (made / f"whole{suffix}").read_bytes()
    assert "haplotypes of 4 samples exchanged" in done.err
    assert "haplotypes of 2 samples exchanged" in done.err


def test_without_heterozygotes_nothing_is_exchanged(run, made, tmp_path, rewritten):
    alone = re.compile(rb"\t[01]\|[01]")
    chunks = [
        rewritten(made / f"o{n}.vcf", tmp_path / f"{n}.vcf", lambda text: alone.sub(b"\t1|1", text))
        for n in (0, 1)
    ]
    chunks[1] = rewritten(chunks[1], tmp_path / "other.vcf", exchanged_text(range(20)))
    done = run("ligate", *chunks, "-o", tmp_path / "joined.vcf")
    assert "haplotypes of 0 samples exchanged" in done.err


def test_chunks_phased_apart(unphased, example, opened, tmp_path, impute, overlapping):
    """Fewer wrong links than without looking at the overlap."""
    lines = unphased.read_text().splitlines(keepends=True)
    chunks = []
    for n, region in enumerate(overlapping):
        start, end = map(int, region.removeprefix("20:").split("-"))
        part = tmp_path / f"{n}.vcf"
        near = range(start - 50_000, end + 50_000)
        part.write_text("".join(x for x in lines if x[0] == "#" or int(x.split("\t")[1]) in near))
        chunks.append(impute(part, tmp_path / f"{n}.bcf", opened, region))
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
