"""`evaluate` compared with plain loops, its files, and its error messages."""

import os
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rich.console

from spinimpute.evaluation.evaluate import evaluate
from spinimpute.evaluation.result import summary_table
from spinimpute.panels.build import BuildJob, compile_panel
from spinimpute.quality.metrics import DEFAULT_BINS
from spinimpute.runtime.errors import InputError

MEASURES = ["pooled_r2", "mean_r2", "nrc"]
BINS = (0, 0.02, 0.1, 0.5)


def measures(result, imputer="imputed"):
    frame = pd.DataFrame(result.by_frequency)
    return frame[frame["imputer"] == imputer].set_index("bin")[MEASURES]


def expected_rows(problem, dosage):
    """Accuracy per bin by loops over genotypes; dosage (n_sites, n_samples) of ALT, NaN where missing."""
    n_panel = problem.panel.shape[1]
    true = problem.truth[:, ::2] + problem.truth[:, 1::2]
    rows = {}
    for low, high in [(0, 0.5), *pairwise(BINS)]:
        pairs, per_site = [], []
        for i in range(len(true)):
            count = problem.panel[i].sum()
            minor = min(count, n_panel - count)
            if problem.typed[i] or minor == 0 or not low < minor / n_panel <= high:
                continue
            site = []
            for t, d in zip(true[i], dosage[i], strict=True):
                guess = 2 * count / n_panel if np.isnan(d) else d
                site.append((2 - t, 2 - guess) if count > n_panel - count else (t, guess))
            pairs += site
            t, d = np.array(site).T
            if t.std() > 0:
                per_site.append(np.corrcoef(t, d)[0, 1] ** 2 if d.std() > 1e-9 else 0.0)
        t, d = np.array(pairs).T
        carriers = (t > 0) | (np.rint(d) > 0)
        label = "all" if (low, high) == (0, 0.5) else f"({low:g},{high:g}]"
        pooled = np.corrcoef(t, d)[0, 1] ** 2 if d.std() > 1e-9 else np.nan
        rows[label] = [pooled, np.mean(per_site), np.mean(np.rint(d)[carriers] == t[carriers])]
    return pd.DataFrame.from_dict(rows, orient="index", columns=MEASURES)


def assert_same(actual, expected, tolerance=1e-6):
    assert list(actual.index) == list(expected.index)
    np.testing.assert_allclose(actual.to_numpy(), expected.to_numpy(), atol=tolerance)


@pytest.mark.parametrize("form", ["DS", "HDS", "GP", "GT", "GT:DS:GP"])
def test_equal_to_plain_loops_whatever_the_field(problem, form):
    result = evaluate(*problem.files(form=form), bins=BINS)
    haploid = np.rint(problem.probability + 1e-9) if form == "GT" else problem.probability
    dosage = haploid[:, ::2] + haploid[:, 1::2]
    dosage[problem.absent] = np.nan
    assert_same(measures(result), expected_rows(problem, dosage), tolerance=1e-5)
    assert result.fields_used == ("DS" if "DS" in form.split(":") else form,)
    assert (result.calibration is not None) == ("GP" in form)


def test_baseline_rows_are_the_panel_frequencies(problem):
    result = evaluate(*problem.files(), bins=BINS)
    nothing = np.full((len(problem.position), len(problem.samples)), np.nan)
    expected = expected_rows(problem, nothing)
    baseline = measures(result, "allele-frequency")
    assert_same(baseline, expected)
    singletons = measures(evaluate(*problem.files(), bins=(0, 0.0126)), "allele-frequency").loc["(0,0.0126]"]
    assert np.nan_to_num(singletons["pooled_r2"]) < 0.01
    assert singletons["mean_r2"] < 0.01


def test_counts_of_sites_and_samples(problem):
    result = evaluate(*problem.files())
    polymorphic = (problem.panel.min(1) == 0) & (problem.panel.max(1) == 1)
    scored = ~problem.typed & polymorphic
    assert result.scored_sites == scored.sum()
    assert result.missing_sites == (scored & problem.absent).sum() > 0
    assert result.left_out == {
        "typed": problem.typed.sum(),
        "monomorphic in the panel": (~problem.typed & ~polymorphic).sum(),
    }
    assert result.samples == problem.samples
    assert result.truth_only_samples == result.imputed_only_samples == result.samples_in_panel == []


def test_order_of_samples_and_chromosome_prefix_do_not_matter(problem):
    as_is = evaluate(*problem.files(), bins=BINS)
    order = list(np.random.default_rng(0).permutation(len(problem.samples)))
    other = evaluate(*problem.files(order=order, chrom="chr20"), bins=BINS)
    assert_same(measures(other), measures(as_is), tolerance=0)


def test_only_common_samples_are_scored(problem):
    result = evaluate(*problem.files(order=[9, 4, 12]), bins=BINS)
    assert result.samples == ["s4", "s9", "s12"]
    assert len(result.truth_only_samples) == len(problem.samples) - 3
    chosen = [4, 9, 12]
    pair = np.ravel([[2 * i, 2 * i + 1] for i in chosen])
    problem.truth, problem.probability = problem.truth[:, pair], problem.probability[:, pair]
    dosage = problem.probability[:, ::2] + problem.probability[:, 1::2]
    dosage[problem.absent] = np.nan
    assert_same(measures(result), expected_rows(problem, dosage), tolerance=1e-5)


def test_spin_panel_gives_the_same_numbers_as_its_vcf(problem):
    truth, imputed, panel, typed = problem.files()
    with pytest.warns(UserWarning, match="."):
        compile_panel(BuildJob(panel, problem.folder / "panel.spin")).close()
    from_vcf = evaluate(truth, imputed, panel, typed)
    from_spin = evaluate(truth, imputed, problem.folder / "panel.spin", typed)
    pd.testing.assert_frame_equal(*(pd.DataFrame(one.by_frequency) for one in (from_spin, from_vcf)))


def test_unknown_truth_is_not_scored_and_missing_dosages_count_as_frequency(small):
    truth = [
        ("20", 100, "A", "C", "GT", ["0|0", "0|1", ".|.", "1|1"]),
        ("20", 200, "A", "C", "GT", ["0|1", "./1", "0|0", "1|1"]),
    ]
    imputed = [
        ("20", 100, "A", "C", "DS", ["0", "1", "2", "2"]),
        ("20", 200, "A", "C", "DS", ["1", "2", ".", "2"]),
    ]
    result = evaluate(*small(truth, imputed))
    assert result.unknown_genotypes == 2
    assert result.missing_genotypes == 1
    pairs = np.array([(0, 0), (1, 1), (2, 2), (1, 1), (0, 0.5), (2, 2)])
    row = measures(result).loc["all"]
    assert row["pooled_r2"] == pytest.approx(np.corrcoef(pairs.T)[0, 1] ** 2)
    assert result.by_frequency[0]["genotypes"] == 6


def test_each_allele_of_a_record_is_compared(small):
    truth = [("20", 200, "A", "C,G", "GT", ["0|1", "0|2"]), ("20", 300, "A", ".", "GT", ["0|0", "0|0"])]
    expected = None
    for imputed in (
        [("20", 200, "A", "C", "DS", ["0.75", "0.25"]), ("20", 200, "A", "G", "DS", ["0.25", "1"])],
        [("20", 200, "A", "G,C", "DS", ["0.25,0.75", "1,0.25"])],
        [("20", 200, "A", "C,G", "HDS", ["0.25,0,0.5,0.25", "0.125,0.5,0.125,0.5"])],
        [("20", 200, "A", "G,C", "GP", ["0.125,0.125,0,0.625,0.125,0", "0,0.75,0,0,0.25,0"])],
    ):
        result = evaluate(*small(truth, imputed, panel=("0|1", "2|0")))
        assert result.scored_sites == 2
        assert result.left_out == {"without ALT in the truth": 1}
        found = measures(result).loc["all", "pooled_r2"]
        expected = found if expected is None else expected
        assert found == expected


@pytest.mark.parametrize(
    ("field", "values"), [("DS", ["0", "1"]), ("GP", ["1,0,0", "0,1,0"]), ("HDS", ["0,0,1", "1,1,0"])]
)
def test_fields_without_a_value_for_each_allele(small, field, values):
    truth = [("20", 200, "A", "C,G", "GT", ["0|1", "0|2"])]
    with pytest.raises(InputError, match="DS, HDS, GP, GT with a value for each allele"):
        evaluate(*small(truth, [("20", 200, "A", "C,G", field, values)]))


def test_accuracy_of_each_sample(small):
    truth = [
        ("20", 100, "A", "C", "GT", ["0|1", "1", "1|1", "0"]),
        ("20", 200, "A", "C", "GT", ["0|1", "0", ".|.", "1"]),
        ("20", 300, "A", "C", "GT", ["0|0", "1", "0|1", "1"]),
        ("20", 400, "A", "C", "GT", ["1|1", "0", "0|0", "1"]),  # the imputed file lacks it
    ]
    imputed = [
        ("20", 100, "A", "C", "GT:DS", ["0|1:0.9", "1:0.8", "1|1:1.7", "0:0.2"]),
        ("20", 200, "A", "C", "GT:DS", ["0|1:1.2", "0:0.1", "1|1:2", "1:0.9"]),
        ("20", 300, "A", "C", "GT:DS", ["0|0:0.3", "1:1", "0|1:0.8", "1:0.5"]),
    ]
    result = evaluate(*small(truth, imputed, panel=("0|0", "0|1")))
    guess = 0.25  # the panel's frequency
    expected = [
        np.corrcoef([1, 1, 0, 2], [0.9, 1.2, 0.3, 2 * guess])[0, 1] ** 2,
        np.corrcoef([1, 0, 1, 0], [0.8, 0.1, 1, guess])[0, 1] ** 2,
        np.corrcoef([2, 1, 0], [1.7, 0.8, 2 * guess])[0, 1] ** 2,
        np.corrcoef([0, 1, 1, 1], [0.2, 0.9, 0.5, guess])[0, 1] ** 2,
    ]
    assert [row["pooled_r2"] for row in result.by_sample] == pytest.approx(expected)
    assert [row["genotypes"] for row in result.by_sample] == [4, 4, 3, 4]


def test_report_files(problem):
    out = problem.folder / "deep" / "report"
    files = problem.files(form="GT:DS:GP")
    result = evaluate(*files, out=out)
    names = ["accuracy.png", "accuracy.tsv", "calibration.tsv", "samples.tsv"]
    assert sorted(path.name for path in out.iterdir()) == names
    by_sample = pd.read_csv(out / "samples.tsv", sep="\t")
    pd.testing.assert_frame_equal(by_sample, pd.DataFrame(result.by_sample), atol=1e-6, rtol=0)
    table = pd.read_csv(out / "accuracy.tsv", sep="\t")
    pd.testing.assert_frame_equal(table, pd.DataFrame(result.by_frequency), atol=1e-6, rtol=0)
    assert (out / "accuracy.png").read_bytes().startswith(b"\x89PNG")

    with pytest.raises(InputError, match=r"accuracy\.tsv already exists; use force=True to overwrite"):
        evaluate(*files, out=out)
    evaluate(*problem.files(form="DS"), out=out, force=True)
    names.remove("calibration.tsv")
    assert sorted(path.name for path in out.iterdir()) == names


def test_nothing_is_left_behind_when_a_report_cannot_be_written(problem, monkeypatch):
    out = problem.folder / "report"

    def broken(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("spinimpute.evaluation.files.draw_accuracy", broken)
    with pytest.raises(InputError, match="No space left on device"):
        evaluate(*problem.files(), out=out)
    assert not out.exists()


def test_terminal_table_fits_eighty_columns(problem):
    console = rich.console.Console(width=80, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    with console.file:
        console.print(summary_table(evaluate(*problem.files(form="DS:GP"))))
        text = console.export_text()
    assert "…" not in text
    assert "5–50 %" in text
    assert "calibration error of GP" in text
    assert "not imputed" in text


@pytest.mark.parametrize(
    ("number", "old", "new", "message"),
    [
        (1, "\ts", "\tother", r"no sample is in both .*s0, s1, .* 20 more.*other0, other1"),
        (2, "\n20\t", "\n21\t", r"300 are not in the panel.*Truth: 20:100-30,000.*Panel: 21:100-30,000"),
        (1, "\n20\t", "\n21\t", r"none of the .* Truth: 20:100-.*Imputed: 21:100-"),
    ],
)
def test_files_that_have_nothing_in_common(problem, number, old, new, message):
    files = problem.files()
    files[number].write_text(files[number].read_text().replace(old, new))
    with pytest.raises(InputError, match=message):
        evaluate(*files)


def test_a_typed_file_without_sites_of_the_panel_gives_a_warning(problem):
    truth, imputed, panel, typed = problem.files()
    typed.write_text(typed.read_text().replace("\n20\t", "\n21\t"))
    with pytest.warns(
        UserWarning, match=r"typed file .*: none of its 30 sites is in the panel.*21:.*20:100-"
    ):
        assert "typed" not in evaluate(truth, imputed, panel, typed).left_out
    typed.write_text("".join(line for line in typed.read_text().splitlines(keepends=True) if line[0] == "#"))
    with pytest.warns(UserWarning, match=r"typed file .*: the file has no sites"):
        evaluate(truth, imputed, panel, typed)


def test_without_a_typed_file_all_sites_count(problem):
    truth, imputed, panel, typed = problem.files()
    found = evaluate(truth, imputed, panel)
    assert "typed" not in found.left_out
    assert found.scored_sites == evaluate(truth, imputed, panel, typed).scored_sites + np.sum(
        problem.typed & (problem.panel.mean(axis=1) % 1 > 0)
    )


def test_a_file_with_typed_sites_needs_the_typed_file(problem):
    """Otherwise typed sites would be scored as perfectly imputed."""
    truth, imputed, panel, typed = problem.files()
    lines = imputed.read_text().splitlines(keepends=True)
    head = sum(line[0] == "#" for line in lines)
    lines[0] += '##INFO=<ID=TYPED,Number=0,Type=Flag,Description="typed">\n'
    at = next(i for i, line in enumerate(lines[head:], head) if f"\t{problem.position[3]}\t" in line)
    lines[at] = lines[at].replace("\t.\t.\t.\t", "\t.\t.\tTYPED\t")
    imputed.write_text("".join(lines))
    with pytest.raises(InputError, match=rf"20:{problem.position[3]} was typed, .*typed=\.\.\."):
        evaluate(truth, imputed, panel)
    evaluate(truth, imputed, panel, typed)


def test_a_truth_with_only_typed_sites_is_refused(problem):
    truth, imputed, panel, _ = problem.files()
    with pytest.raises(InputError, match=r"no site can be scored: .*300 are typed"):
        evaluate(truth, imputed, panel, truth)


def test_files_without_the_fields_needed(problem, write_vcf):
    truth, imputed, panel, typed = problem.files()
    names = ("GT", "DS", "HDS", "GP")
    rows = [("20", 100, "A", "C", ".", ["."] * 25)]
    bare = write_vcf(problem.folder / "bare.vcf", problem.samples, rows, without=names)
    with pytest.raises(InputError, match="has none of the fields DS, HDS, GP, GT"):
        evaluate(truth, bare, panel, typed)
    with pytest.raises(InputError, match=r"truth file .* has no genotypes \(GT\)"):
        evaluate(bare, imputed, panel, typed)
    with pytest.raises(InputError, match=r"panel file .* has no genotypes \(GT\)"):
        evaluate(truth, imputed, bare, typed)


@pytest.mark.parametrize(
    ("form", "value", "message"),
    [
        ("DS", "2.5", r"sample s1 has DS 2.5 at 20:100"),
        ("DS", "-1", r"sample s1 has DS -1 at 20:100"),
        ("GP", "30,0,20", r"sample s1 has GP 30,0,20 at 20:100.*sum to 1"),
        ("GT", "1", r"sample s1 has 1 allele at 20:100 and 2 in the truth"),
    ],
)
def test_invalid_values(small, form, value, message):
    good = {"DS": "1", "GP": "0,1,0", "GT": "0|1"}[form]
    files = small([("20", 100, "A", "C", "GT", ["0|0", "0|1"])], [("20", 100, "A", "C", form, [good, value])])
    with pytest.raises(InputError, match=message):
        evaluate(*files)


@pytest.mark.parametrize("type_", ["Type=String,", ""])
def test_fields_that_are_not_declared_as_numbers(small, type_):
    files = small([("20", 100, "A", "C", "GT", ["0|0", "0|1"])], [("20", 100, "A", "C", "DS", ["1", "0.5"])])
    header = files[1].read_text()
    files[1].write_text(header.replace("ID=DS,Number=A,Type=Float,", f"ID=DS,Number=A,{type_}"))
    with pytest.raises(InputError, match="DS at 20:100"):
        evaluate(*files)


@pytest.mark.parametrize("role", ["truth", "imputed", "panel", "typed"])
def test_messages_name_absent_and_truncated_files(problem, role):
    files = dict(zip(["truth", "imputed", "panel", "typed"], problem.files(), strict=True))
    whole = files[role].read_bytes()
    lines = whole.splitlines(keepends=True)
    cut_in_a_record = b"".join(lines[:30]) + lines[30][: len(lines[30]) * 2 // 3]
    files[role].write_bytes(cut_in_a_record)
    with pytest.raises(InputError, match=f"{role} .*truncated"):
        evaluate(**files)
    files[role].write_bytes(cut_in_a_record + b"\n" + b"".join(lines[31:]))
    with pytest.raises(
        InputError, match=rf"{role} .*truncated or malformed at record 21, after 20:\d+ \(line 31"
    ):
        evaluate(**files)
    files[role].unlink()
    with pytest.raises(InputError, match=f"{role} .*no such file"):
        evaluate(**files)


@pytest.mark.parametrize(
    ("bins", "message"),
    [
        (bins, "bins=...: give two or more increasing")
        for bins in [(), (0.1,), (0.1, 0.1), (0, 0.6), (-0.1, 0.5)]
    ]
    + [(DEFAULT_BINS, r"is a file\. Give a folder")],
)
def test_invalid_arguments_are_refused_before_files_are_read(problem, bins, message):
    out = problem.folder / "report"
    out.write_text("mine")
    with pytest.raises(InputError, match=message):
        evaluate("absent", "absent", "absent", "absent", bins=bins, out=out)
    assert out.read_text() == "mine"


def test_samples_of_the_panel_among_those_compared_are_reported(problem):
    truth, imputed, panel, typed = problem.files()
    panel.write_text(panel.read_text().replace("\tp3\t", "\ts3\t"))
    result = evaluate(truth, imputed, panel, typed)
    assert result.samples_in_panel == ["s3"]


def test_reports_do_not_overwrite_inputs_or_each_other(problem):
    truth, imputed, panel, typed = problem.files()
    out, new = problem.folder / "report", problem.folder / "new"
    out.mkdir()
    mine = out / "samples.tsv"
    mine.write_bytes(Path(imputed).read_bytes())
    with pytest.raises(InputError, match="it is also read from"):
        evaluate(truth, mine, panel, typed, out=out, force=True)
    with pytest.raises(InputError, match=r"also the name of the table accuracy\.tsv"):
        evaluate(truth, imputed, panel, typed, out=new, report=new / "accuracy.tsv")
    with pytest.raises(InputError, match="is also the folder of the tables"):
        evaluate(truth, imputed, panel, typed, out=new, report=new)
    assert not new.exists()


@pytest.mark.parametrize("number", [0, 1])
def test_alleles_with_invalid_utf8(small, number):
    rows = [("20", 100, "A", "C", "GT", ["0|0", "0|1"]), ("20", 200, "A", "CTT", "GT", ["0|0", "0|1"])]
    files = small(rows, rows)
    files[number].write_bytes(files[number].read_bytes().replace(b"CTT", b"C\xff\xfeT"))
    with pytest.raises(InputError, match=f"^{files[number].stem} .*20:200 is not valid UTF-8"):
        evaluate(*files)
