"""Batches of samples, merged, are the file of a single run."""

import re
import shutil
import subprocess
from itertools import pairwise

import cyvcf2
import numpy as np
import pytest

import spinimpute


def merge_again(batches, out, **settings):
    """Merge so that the output can be merged, too."""
    return spinimpute.merge_samples(batches, out, mergeable=True, **settings)


@pytest.mark.parametrize("n_batches", [2, 5, 10])
def test_bytes(made, names, impute, tmp_path, n_batches):
    """All INFO fields, records, header and index."""
    cuts = [len(names) * i // n_batches for i in range(n_batches + 1)]
    batches = [impute(tmp_path / f"{start}.bcf", names[start:stop]) for start, stop in pairwise(cuts)]
    merge_again(batches, tmp_path / "merged.bcf")
    for end in ("", ".csi"):
        merged, whole = tmp_path / f"merged.bcf{end}", made / f"whole.bcf{end}"
        assert merged.read_bytes() == whole.read_bytes()


def test_every_format(run, made, tmp_path, suffix):
    """Without --mergeable, nothing shows that there were batches."""
    out = tmp_path / f"merged{suffix}"
    batches = [made / f"{number}{suffix}" for number in range(3)]
    run("merge", *batches, "--out", out, "--threads", 2).ok(
        "batches:  3, of 20 samples", "note:     INFO/R2 is estimated from only 20 samples", "output:"
    )
    assert len(list(tmp_path.iterdir())) == (1 if suffix == ".vcf" else 2)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (made / path.name.replace("merged", "plain")).read_bytes()


def test_every_field_is_there(made):
    record = next(v for v in cyvcf2.VCF(str(made / "whole.vcf")) if v.INFO.get("TYPED"))
    assert {key for key, _ in record.INFO} == {
        "MAF", "AF", "AVG_CS", "R2", "ER2", "SUMS", "ER2_SUMS", "TYPED",
    }  # fmt: skip
    assert record.FORMAT == ["GT", "DS", "HDS", "GP"]


def test_files_without_sums_have_the_same_other_fields(made, content):
    texts = [content(made / "plain.vcf"), re.sub(rb";(ER2_)?SUMS=[^;\t]*", b"", content(made / "whole.vcf"))]
    records = [[line for line in text.split(b"\n") if line[:1] != b"#"] for text in texts]
    assert records[0] == records[1]


def test_one_batch(made, tmp_path):
    """Workflows need not know how many batches there are."""
    spinimpute.merge_samples([made / "whole.bcf"], tmp_path / "merged.bcf")
    assert (tmp_path / "merged.bcf").read_bytes() == (made / "plain.bcf").read_bytes()


def test_samples_in_any_order(made, names, impute, tmp_path):
    """INFO does not depend on the order of files; samples are in this order."""
    merge_again([made / f"{number}.vcf" for number in (2, 0, 1)], tmp_path / "merged.vcf")
    impute(tmp_path / "whole.vcf", [*names[12:], *names[:12]])
    assert (tmp_path / "merged.vcf").read_bytes() == (tmp_path / "whole.vcf").read_bytes()


def test_merged_files_can_be_merged(made, tmp_path):
    merge_again([made / "0.bcf", made / "1.bcf"], tmp_path / "01.bcf")
    merge_again([tmp_path / "01.bcf", made / "2.bcf"], tmp_path / "merged.bcf")
    assert (tmp_path / "merged.bcf").read_bytes() == (made / "whole.bcf").read_bytes()


@pytest.mark.parametrize("suffix", [".bcf", ".vcf.gz"])
def test_ligate_and_merge_in_either_order(names, impute, small, tmp_path, suffix):
    """Chunks overlap, and samples are divided: all orders give the bytes of one run."""
    regions, groups = ("20:1-150000", "20:140000-260000", "20:255000-400000"), (names[:7], names[7:])
    chunk = {
        (r, g): impute(tmp_path / f"{r}.{g}{suffix}", groups[g], regions[r])
        for r in range(3)
        for g in range(2)
    }
    for r in range(3):
        merge_again([chunk[r, 0], chunk[r, 1]], tmp_path / f"m{r}{suffix}")
    spinimpute.ligate([tmp_path / f"m{r}{suffix}" for r in (1, 2, 0)], tmp_path / f"ml{suffix}", panel=small)
    for g in range(2):
        spinimpute.ligate([chunk[r, g] for r in range(3)], tmp_path / f"l{g}{suffix}", panel=small)
    merge_again([tmp_path / f"l{g}{suffix}" for g in range(2)], tmp_path / f"lm{suffix}")
    whole = impute(tmp_path / f"whole{suffix}")
    assert (tmp_path / f"ml{suffix}").read_bytes() == whole.read_bytes()
    assert (tmp_path / f"lm{suffix}").read_bytes() == whole.read_bytes()
    one_chunk = impute(tmp_path / f"one{suffix}", None, regions[1])
    assert (tmp_path / f"m1{suffix}").read_bytes() == one_chunk.read_bytes()


def test_commands(run, example, panel, names, tmp_path):
    """The recorded command is that of a single run."""
    (tmp_path / "first.txt").write_text("\n".join(names[:3]))
    common = ("impute", "--vcf", example / "target.vcf.gz", "--panel", panel, "--region", "20:1-200000", "-q")
    samples = [("--samples-file", tmp_path / "first.txt"), ("--samples", ",".join(names[3:])), ()]
    outs = [tmp_path / f"{number}.bcf" for number in range(4)]
    for out, chosen in zip(outs, [*samples, ()], strict=True):
        kept = () if out is outs[3] else ("--mergeable",)
        run(*common, *kept, "--buffer", 0, *chosen, "--out", out).ok()
    for out, kept in ((outs[2], ("--mergeable",)), (outs[3], ())):
        done = run("merge", *outs[:2], "--out", tmp_path / "merged.bcf", "-q", "-f", *kept).ok()
        assert done.err == ""
        assert (tmp_path / "merged.bcf").read_bytes() == out.read_bytes()


def test_typed_sites_that_the_panel_lacks_and_missing_calls(edited_target, names, impute, tmp_path):
    """INFO of sites that are written as they were typed counts the known calls only."""

    def edit(text: str) -> str:
        lines = []
        for number, line in enumerate(text.splitlines()):
            columns = line.split("\t")
            if line.startswith("20\t") and number % 3 == 0:
                columns[9 + number % 20] = "./."
                columns[12 : 12 + number % 8] = ["./."] * (number % 8)
            lines.append("\t".join(columns))
            if line.startswith("20\t") and number % 10 == 0:
                lines.append("\t".join([*columns[:2], "new", "A", "ACGTACGT", *columns[5:]]))
            if line.startswith("20\t") and number % 50 == 0:
                missing = ["./."] * (len(columns) - 9)
                lines.append("\t".join([*columns[:2], "none", "A", "ACGTACGTA", *columns[5:9], *missing]))
        return "\n".join(lines) + "\n"

    target = edited_target(edit)
    groups = (names[:4], names[4:9], names[9:])
    batches = [
        impute(tmp_path / f"{g}.vcf", group, target=target, keep_unmatched=True)
        for g, group in enumerate(groups)
    ]
    merge_again(batches, tmp_path / "merged.vcf")
    whole = impute(tmp_path / "whole.vcf", target=target, keep_unmatched=True)
    assert (tmp_path / "merged.vcf").read_bytes() == whole.read_bytes()


def test_far_from_the_typed_sites_of_all_batches(edited_target, names, impute, panel, tmp_path):
    """A site where no sample of a batch has a call is not a typed site of this batch."""

    def edit(text: str) -> str:
        lines = text.splitlines()
        head = [line for line in lines if line[0] == "#"]
        rows = [line.split("\t") for line in lines[len(head) :]]
        for row in rows[20:]:  # only one half of the samples have calls
            row[9:19] = ["./."] * 10
        return "\n".join([*head, *("\t".join(row) for row in rows)]) + "\n"

    target = edited_target(edit)
    groups = (names[:10], names[10:])
    batches = [
        impute(tmp_path / f"{g}.vcf", group, target=target, panel=panel) for g, group in enumerate(groups)
    ]
    assert [";FAR;" in batch.read_text() for batch in batches] == [True, False]
    merge_again(batches, tmp_path / "merged.vcf")
    whole = impute(tmp_path / "whole.vcf", target=target, panel=panel)
    assert (tmp_path / "merged.vcf").read_bytes() == whole.read_bytes()


@pytest.mark.parametrize("suffix", [".bcf", ".vcf"])
def test_haploid_batches(example, names, impute, tmp_path, suffix):
    """A batch of men has one value where a file with women has two."""
    shift, par1_end = 2_500_000, 2_699_520

    def on_x(source, out):
        lines = []
        for line in subprocess.run(
            ["zcat", source], capture_output=True, text=True, check=True
        ).stdout.splitlines():
            if line.startswith("##contig"):
                line = "##contig=<ID=X,length=155270560>"
            elif line[0] != "#":
                fields = line.split("\t")
                position = int(fields[1]) + shift
                if int(fields[1]) > 400_000:
                    break
                calls = [call.split(":")[0] for call in fields[9:]]
                if position > par1_end:
                    calls[::2] = [call[0] for call in calls[::2]]
                line = "\t".join(["X", str(position), *fields[2:8], "GT", *calls])
            lines.append(line)
        out.write_text("\n".join(lines) + "\n")
        return out

    panel = on_x(example / "panel.vcf.gz", tmp_path / "panel.vcf")
    spinimpute.build_panels(panel, tmp_path / "x.spin")
    target = on_x(example / "target.vcf.gz", tmp_path / "target.vcf")
    common = {"target": target, "panel": tmp_path / "x.spin"}
    groups = (names[::2], names[1::2])  # men and women
    batches = [impute(tmp_path / f"{g}{suffix}", group, **common) for g, group in enumerate(groups)]
    merge_again(batches, tmp_path / f"merged{suffix}")
    whole = impute(tmp_path / f"whole{suffix}", [*groups[0], *groups[1]], **common)
    assert (tmp_path / f"merged{suffix}").read_bytes() == whole.read_bytes()


def test_more_files_than_are_usually_open(made, names, impute, tmp_path, monkeypatch):
    from spinimpute.pipeline.merging import merge

    limits = []
    monkeypatch.setattr(merge.resource, "getrlimit", lambda _: (20, 100))
    monkeypatch.setattr(merge.resource, "setrlimit", lambda _, limit: limits.append(limit))
    merge_again([made / f"{number}.bcf" for number in range(3)], tmp_path / "merged.bcf")
    assert limits == [(67, 100), (20, 100)]
    monkeypatch.setattr(merge.resource, "getrlimit", lambda _: (20, 65))
    with pytest.raises(spinimpute.InputError, match=r"3 files are more than a process may open here \(65\)"):
        merge_again([made / f"{number}.bcf" for number in range(3)], tmp_path / "more.bcf")
    assert not (tmp_path / "more.bcf").exists()


def test_small_pieces(made, tmp_path, monkeypatch):
    """Files are read in pieces that end at different records."""
    from spinimpute.pipeline.merging import batch_file

    monkeypatch.setattr(batch_file, "_MEMORY", 0)
    monkeypatch.setattr(batch_file, "_MIN_PIECE", 5_000)
    fractions: list[float] = []
    merge_again(
        [made / f"{number}.vcf.gz" for number in range(3)],
        tmp_path / "merged.vcf.gz",
        progress=fractions.append,
    )
    assert (tmp_path / "merged.vcf.gz").read_bytes() == (made / "whole.vcf.gz").read_bytes()
    assert len(fractions) > 100
    assert np.all(np.diff(fractions) >= 0)
    assert fractions[-1] == 1


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_bcftools_reads_it(made, tmp_path):
    merge_again([made / f"{number}.bcf" for number in range(3)], tmp_path / "merged.bcf")
    command = ["bcftools", "view", "-H", "-r", "20:100000-110000", tmp_path / "merged.bcf"]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    assert found.stderr == ""
    assert {len(line.split("\t")) for line in found.stdout.splitlines()} == {29}


@pytest.mark.parametrize("suffix", [".vcf", ".bcf"])
def test_filters_and_the_table_of_sites(run, made, impute, tmp_path, suffix):
    """R2 and MAF of all samples together decide, as in a single run."""
    batches = [made / f"{number}{suffix}" for number in range(3)]
    more = ("--min-r2", 0.7, "--min-maf", 0.03, "--sites", tmp_path / "m.tsv.gz")
    done = run("merge", *batches, "--out", tmp_path / f"merged{suffix}", *more).ok(
        "below --min-r2 or --min-maf"
    )
    single = {"min_r2": 0.7, "min_maf": 0.03, "sites": tmp_path / "w.tsv.gz", "mergeable": False}
    whole = impute(tmp_path / f"whole{suffix}", **single)
    assert (tmp_path / f"merged{suffix}").read_bytes() == whole.read_bytes()
    assert (tmp_path / "m.tsv.gz").read_bytes() == (tmp_path / "w.tsv.gz").read_bytes()
    n_sites = len(list(cyvcf2.VCF(str(whole))))
    assert 0 < n_sites < 600
    assert f"written:  {n_sites} sites\n" in done.err
    run("merge", tmp_path / f"merged{suffix}", batches[0], "--out", tmp_path / f"o{suffix}").refused(
        "it lacks INFO/SUMS"
    )
    more = ("--min-r2", 0.7, "--mergeable", "--out", tmp_path / "no.vcf")
    run("impute", "--vcf", "t.vcf", "--panel", "p.spin", *more).refused(
        "--mergeable: files with filters cannot be merged", "Give --min-r2 and --min-maf when you merge all"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--sites", "s.txt"], "s.txt: the table of sites is compressed"),
        (["--sites", "no/s.tsv.gz"], "there is no folder no"),
        (["--min-maf", "0.6"], "--min-maf"),
    ],
)
def test_refused_tables_and_filters(run, made, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    run("merge", made / "0.bcf", made / "1.bcf", "--out", "o.bcf", *options).refused(message)
    assert not list(tmp_path.iterdir())
