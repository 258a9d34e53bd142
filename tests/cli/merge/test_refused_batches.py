"""Batches that do not fit: one clear line, exit 2, and no output."""

import gzip
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import spinimpute
from spinimpute.vcf.bgzf import EOF_BLOCK, compress_block


@pytest.fixture
def refused(refused_by: Callable[..., str]) -> Callable[..., str]:
    return partial(refused_by, "merge", suffix=".vcf")


@pytest.fixture
def changed(made: Path, tmp_path: Path) -> Callable[..., Path]:
    """changed(pattern, replacement, count=1): the batch 1.vcf with some text replaced."""

    def change(pattern: str, replacement: str, count: int = 1) -> Path:
        text, n = re.subn(pattern, replacement, (made / "1.vcf").read_text(), count=count, flags=re.MULTILINE)
        assert n
        path = tmp_path / "changed.vcf"
        path.write_text(text)
        return path

    return change


@pytest.mark.parametrize(
    ("pattern", "replacement", "message"),
    [
        (r"^##spinimpute_panel=.", "##spinimpute_panel=x", "differ in the panel: "),
        (r"^##spinimpute_model=haplotype", "##spinimpute_model=other", "differ in the model: "),
        (r"^##source=spinimpute .*", "##source=spinimpute 0.0.1", "differ in the program: "),
        (r"^##source=.*", "##source=bcftools", "spinimpute did not impute it"),
        (r"^##INFO=<ID=SUMS.*\n", "", "it lacks INFO/SUMS, from which R2 and the other INFO fields are"),
        (r"in steps of 0.001", "in steps of 0.1", "differ in the definitions of the header"),
        (r"^##FORMAT=<ID=GP.*\n", "", "differ in FORMAT: GT:DS:HDS:GP and GT:DS:HDS"),
        (r"^##FORMAT=<ID=GP", "##FORMAT=<ID=PL", "FORMAT has fields that impute does not write: PL"),
        (r"^(##contig=<ID=)20", r"##contig=<ID=19>\n\g<1>20", "it is of 2 chromosomes"),
        (r"^##spinimpute_samples=1", "##spinimpute_samples=9", "INFO was computed is 9: another program has"),
        (r"^##spinimpute_samples=1\n", "", "INFO was computed is unknown: another program has changed it"),
        (r"^##spinimpute_records=", r"##spinimpute_region=20:1-400000 sites=", "differ in the region: "),
        (r"^##spinimpute_records=.*\n", "", "its header does not say how many records it has"),
        (r"^20\t692\t\S+", r"20\t692\trs1", "the site 20:692 has the ID sim:692"),
        (r"SUMS=2/", "SUMS=3/", "INFO/SUMS at 20:259 is of 3 haplotypes, but the file has 1 samples"),
        (r"^(##spinimpute_panel)", r"##spinimpute_command=spinimpute impute --vcf a --window-cM 2\n\1",
         "differ in the options of their commands: "),
        (r"(#CHROM.*\t)target_\S+$", r"\1target_AFR_01", "both have a sample target_AFR_01. Leave one"),
        (r"(#CHROM.*FORMAT)\t.*", r"\1", "it has no samples"),
        (r"^20\t\d+\tsim:649\S*\t.*\n", "", "do not have the same sites: they first differ at 20:649."),
        (r"^20\t692\t(\S+)\tG\tT", r"20\t692\t\1\tG\tC", "they first differ at 20:692."),
        (r"SUMS=[^;]*;IMPUTED", "SUMS=1/2;IMPUTED", "INFO/SUMS of a record between 259 and "),
        (r"SUMS=[^;]*;IMPUTED", "SUMS=2/ffffff;IMPUTED", "INFO/SUMS of a record between 259 and "),
        (r"SUMS=2/", "SUMS=ffffff/", "INFO/SUMS of a record between 259 and "),
        (r"SUMS=[^;]*;IMPUTED", "IMPUTED", "INFO/SUMS of a record between 259 and "),
        (r"SUMS=[^;]*;IMPUTED", "SUMS=x;IMPUTED", "its columns ID to INFO are not those of impute"),
        (r"ER2_SUMS=[^;]*", "ER2_SUMS=1/3/////", "INFO/ER2_SUMS of a record between "),
        (r"IMPUTED\t(.*)", r"TYPED\t\1", "the site 20:259 is typed in "),
        (r"/([0-3]);IMPUTED", r"/7;IMPUTED", "the site 20:259 was switched to the other strand in "),
        (r"\t0\|0:", "\t0|x:", "a value of a sample is not a genotype or a number"),
    ],
)  # fmt: skip
def test_what_differs(refused, made, changed, pattern, replacement, message):
    path = changed(pattern, replacement)
    for batches in ((made / "0.vcf", path), (path, made / "0.vcf"))[: 2 if "they first" in message else 1]:
        assert message in refused(*batches)


def test_sites_that_one_batch_lacks_at_its_end(refused, made, changed):
    path = changed(r"^20\t3[89]\d\d\d\d\t(.*\n)*\Z", "")
    text = path.read_text()
    n_records = len(re.findall("^20", text, re.MULTILINE))
    path.write_text(re.sub("(##spinimpute_records=).*", rf"\g<1>{n_records}", text))
    for batches in ((made / "0.vcf", path), (path, made / "0.vcf")):
        assert "do not have the same sites: they first differ at 20:38" in refused(*batches)


def test_unsorted_batches(refused, made, tmp_path):
    """The batches have the same sites, but the index of the output needs sorted ones."""
    for at in (5, 1_500):
        for name in "01":
            lines = (made / f"{name}.vcf").read_text().splitlines(keepends=True)
            row = next(number for number, line in enumerate(lines) if line[0] != "#") + at
            lines[row : row + 2] = reversed(lines[row : row + 2])
            (tmp_path / f"{name}.vcf").write_text("".join(lines))
        message = refused(tmp_path / "0.vcf", tmp_path / "1.vcf")
        assert f"0.vcf: the positions go backwards at record {at + 2}, 20:" in message


def test_text_that_is_not_utf_8(refused, made, tmp_path):
    text = re.sub(rb"^20\t692\t[^\t]*", b"20\t692\t\xff", (made / "1.vcf").read_bytes(), flags=re.MULTILINE)
    (tmp_path / "1.vcf").write_bytes(text)
    assert "1.vcf: the text of records 1 to " in refused(made / "0.vcf", tmp_path / "1.vcf")
    data = gzip.decompress((made / "1.bcf").read_bytes())
    at = data.index(b"//", data.index(b"#CHROM"))
    data = data[:at] + b"\xff" + data[at + 1 :]
    blocks = [compress_block(data[start : start + 0xFF00]) for start in range(0, len(data), 0xFF00)]
    (tmp_path / "1.bcf").write_bytes(b"".join(blocks) + EOF_BLOCK)
    message = refused(made / "0.bcf", tmp_path / "1.bcf", suffix=".bcf")
    assert "is not valid UTF-8; impute it again" in message


def test_pipe(refused, made, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert f"batch {pipe}: it is not a regular file; copy it to one" in refused(made / "0.vcf", pipe)


def test_formats(refused, made):
    assert "is BCF, but the output is VCF" in refused(made / "0.vcf", made / "1.bcf")
    assert "is VCF, but the output is BCF" in refused(made / "0.vcf", made / "1.bcf", suffix=".bcf")
    assert "none.vcf" in refused(made / "0.vcf", "none.vcf")


def test_a_batch_twice(refused, made):
    assert "both have a sample target_AFR_01" in refused(made / "0.vcf", made / "0.vcf")


def test_output_of_an_input(run, made):
    before = (made / "0.bcf").read_bytes()
    failed = run("merge", made / "0.bcf", made / "1.bcf", "--out", made / "0.bcf", "--force")
    failed.refused("it is also read from")
    assert (made / "0.bcf").read_bytes() == before


def test_existing_output(run, made, tmp_path):
    out = tmp_path / "o.bcf"
    out.write_bytes(b"mine")
    run("merge", made / "0.bcf", made / "1.bcf", "--out", out).refused("exists", "--force")
    assert out.read_bytes() == b"mine"
    run("merge", made / "0.bcf", made / "1.bcf", "--out", out, "--force", "-q").ok()


@pytest.mark.parametrize("suffix", [".bcf", ".vcf.gz"])
def test_truncated(refused, made, tmp_path, suffix):
    whole = (made / f"1{suffix}").read_bytes()
    cut = tmp_path / f"cut{suffix}"
    for size in (0, 10, 300, len(whole) // 3, len(whole) - 1000, len(whole) - 28, len(whole) - 1):
        for end in (b"", EOF_BLOCK):
            cut.write_bytes(whole[:size] + end)
            if cut.read_bytes() != whole:
                assert str(cut) in refused(made / f"0{suffix}", cut, suffix=suffix)


def test_truncated_within_a_record(refused, made, tmp_path):
    for suffix in (".bcf", ".vcf.gz"):
        data = gzip.decompress((made / f"1{suffix}").read_bytes())
        data = data[: len(data) - 9]
        cut = tmp_path / f"cut{suffix}"
        blocks = [compress_block(data[start : start + 0xFF00]) for start in range(0, len(data), 0xFF00)]
        cut.write_bytes(b"".join(blocks) + EOF_BLOCK)
        message = refused(made / f"0{suffix}", cut, suffix=suffix)
        assert "truncated: it ends within record" in message
    cut = tmp_path / "cut.vcf"
    cut.write_bytes((made / "1.vcf").read_bytes()[:-5])
    assert "the file is truncated: its last line has no newline" in refused(made / "0.vcf", cut)


@pytest.mark.parametrize("region", ["20:1-100000", None])
def test_files_that_end_between_records(impute, names, refused, tmp_path, region):
    """Both files lack the same records; the header says how many there were."""
    batches = [impute(tmp_path / f"{g}.vcf", group, region) for g, group in enumerate((names[:3], names[3:]))]
    for batch in batches:
        text = batch.read_text()
        batch.write_text(text[: text[:-1].rindex("\n") + 1])
    assert "records, but its header says" in refused(*batches)


def test_other_panels_and_options(impute, names, refused, panel, run, example, tmp_path):
    region = "20:1-100000"
    batches = [
        impute(tmp_path / "0.vcf", names[:3], region),
        impute(tmp_path / "1.vcf", names[3:5], region, panel=panel),
        impute(tmp_path / "2.vcf", names[5:7], "20:1-100001"),
        impute(tmp_path / "3.vcf", names[7:9], region, keep_unmatched=True),
        impute(tmp_path / "4.vcf", names[9:12], region, leave_one_out=False),
    ]
    for batch, message in zip(
        batches[1:],
        (
            "differ in the panel: ",
            "differ in the region: ",
            "differ in the region: ",
            "definitions of the header",
        ),
        strict=True,
    ):
        assert message in refused(batches[0], batch)


def test_unphased_and_phased(impute, names, edited_target, refused, tmp_path):
    def unphase(text: str) -> str:
        return re.sub(r"\t([01])\|([01])", r"\t\1/\2", text)

    phased = impute(tmp_path / "0.vcf", names[:3], "20:1-100000")
    unphased = impute(tmp_path / "1.vcf", names[3:], "20:1-100000", target=edited_target(unphase))
    message = refused(phased, unphased)
    assert "differ in the region" in message
    assert "phased_here" in message


def test_other_typed_sites(impute, names, edited_target, refused, tmp_path):
    def without_a_site(text: str) -> str:
        lines = text.splitlines(keepends=True)
        row = next(number for number, line in enumerate(lines) if line[0] != "#")
        return "".join(lines[: row + 3] + lines[row + 4 :])

    other = impute(tmp_path / "1.vcf", names[3:], target=edited_target(without_a_site))
    whole = impute(tmp_path / "0.vcf", names[:3])
    message = refused(whole, other)
    assert f"is typed in {whole} but not in {other}. Impute all batches from targets with the same" in message
    assert "--ambiguous keep or drop" in message


def test_strands_that_frequencies_switched(impute, names, edited_target, refused, small, tmp_path):
    """With few samples, allele frequencies may switch a site that they do not switch with all samples."""

    palindromes = ({"A", "T"}, {"C", "G"})
    other_strand = str.maketrans("ACGT", "TGCA")
    rare = max(
        u
        for u in range(small.n_sites)
        if {small.sites.ref[u], small.sites.alt[u]} in palindromes and small.frequency[u] < 0.05
    )

    def edit(text: str) -> str:
        lines = text.splitlines()
        head = [line for line in lines if line[0] == "#"]
        rows = [line.split("\t") for line in lines[len(head) :]]
        rows = [row for row in rows if {row[3], row[4]} not in palindromes]
        for row in rows[:3]:
            row[3:5] = [allele.translate(other_strand) for allele in row[3:5]]
        site = [str(small.position[rare]), ".", small.sites.ref[rare], small.sites.alt[rare]]
        rows.append(["20", *site, ".", ".", ".", "GT", *["1|1"] * 10, *["0|0"] * 10])
        rows.sort(key=lambda row: int(row[1]))
        return "\n".join([*head, *("\t".join(row) for row in rows)]) + "\n"

    target = edited_target(edit)
    batches = [
        impute(tmp_path / f"{g}.vcf", group, target=target)
        for g, group in enumerate((names[:10], names[10:]))
    ]
    assert "was switched to the other strand in" in refused(*batches)


def test_names_for_python_callers(made, tmp_path):
    with pytest.raises(spinimpute.InputError, match="mergeable=True") as caught:
        spinimpute.impute(
            "none.vcf", tmp_path / "o.bgen", "none.spin", output=spinimpute.OutputSettings(mergeable=True)
        )
    assert caught.value.code == "arguments"


def test_outputs_that_cannot_be_merged(run, example, panel, tmp_path):
    for suffix in (".pgen", ".bgen"):
        failed = run.impute(example / "target.vcf.gz", panel, tmp_path / f"o{suffix}", "--mergeable")
        failed.refused(f"--mergeable: {tmp_path / f'o{suffix}'} cannot be merged")
    assert not list(tmp_path.iterdir())
