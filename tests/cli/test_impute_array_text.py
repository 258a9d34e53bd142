"""`impute` given the text file of a consumer array."""

import gzip
from pathlib import Path

import cyvcf2
import numpy as np

from .conftest import dosages

EXAMPLE = Path(__file__).resolve().parents[2] / "data" / "example"


def test_the_same_as_from_a_vcf(run, panel, tmp_path):
    text = gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode()
    calls, lines = [], []
    for line in text.splitlines():
        fields = line.split("\t")
        if line.startswith("##"):
            lines.append(line)
            continue
        if line.startswith("#"):
            lines.append("\t".join([*fields[:9], "me"]))
            continue
        alleles = sorted(fields[9].split("|"))
        lines.append("\t".join([*fields[:9], "/".join(alleles)]))
        calls.append(
            f"{fields[2]}\t{fields[0]}\t{fields[1]}\t{''.join(fields[3 + int(a)] for a in alleles)}\n"
        )
    (tmp_path / "me.vcf").write_text("\n".join(lines) + "\n")
    (tmp_path / "me.txt").write_text("# rsid\tchromosome\tposition\tgenotype\n" + "".join(calls))
    for name in ("vcf", "txt"):
        out = tmp_path / f"{name}.vcf.gz"
        run.impute(tmp_path / f"me.{name}", panel, out).ok("246 of 246 typed sites")
    assert cyvcf2.VCF(str(tmp_path / "txt.vcf.gz")).samples == ["me"]
    np.testing.assert_array_equal(dosages(tmp_path / "txt.vcf.gz"), dosages(tmp_path / "vcf.vcf.gz"))
    done = run("check", "--vcf", tmp_path / "me.txt", "--panel", panel).ok()
    assert "matched:  246 of 246" in done.out


def test_lines_of_the_same_site_are_merged(run, panel, tmp_path):
    """Arrays have several probes of some sites."""
    rows = [
        line.split("\t")
        for line in gzip.decompress((EXAMPLE / "target.vcf.gz").read_bytes()).decode().splitlines()
        if not line.startswith("#")
    ]
    lines = [f"{r[2]}\t20\t{r[1]}\t{''.join(r[3 + int(a)] for a in r[9][:3].split('|'))}\n" for r in rows]
    place = "\t".join(lines[100].split("\t")[:3])
    ref, alt = rows[100][3:5]
    cases = {
        "doubled": ([f"{place}\t--\n", lines[100]], [lines[100]]),
        "contradictory": ([f"{place}\t{ref}{ref}\n", f"{place}\t{alt}{alt}\n"], [f"{place}\t--\n"]),
    }
    for name, (several, one) in cases.items():
        found = []
        for number, those in enumerate((several, one)):
            target, out = tmp_path / f"{name}{number}.txt", tmp_path / f"{name}{number}.vcf"
            target.write_text("# rsid\tchromosome\tposition\tgenotype\n")
            with target.open("a") as file:
                file.write("".join([*lines[:100], *those, *lines[101:]]))
            done = run.impute(target, panel, out).ok()
            found.append(dosages(out))
            said = "1 contradictory calls of records of the same site: set missing"
            assert (said in done.err) == (name == "contradictory" and not number)
        np.testing.assert_array_equal(*found)


def test_never_phasing_refuses_it(run, panel, tmp_path):
    path = tmp_path / "me.txt"
    path.write_text("".join(f"rs{i}\t20\t{i}\tAC\n" for i in range(1, 4)))
    out = tmp_path / "o.vcf"
    run.impute(path, panel, out, "--phasing", "never").refused(
        "20:1, an unphased heterozygote. Phase the file first"
    )
    run.impute(path, panel, out).refused("no target site is in the panel")
    assert not out.exists()
