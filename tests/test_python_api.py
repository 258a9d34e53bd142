"""What Python users see: versions, panels, summaries and arrays, in words of arguments."""

import ast
import re
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import click
import numpy as np
import pandas as pd
import pytest
from spinimpute.cli.main import spinimpute as spinimpute_group
from spinimpute.cli.messages import COMMAND_OF_CALL, name_option

import spinimpute
from spinimpute.genotypes.sites import Sites
from spinimpute.runtime.errors import InputError
from spinimpute.vcf.reader import read_haplotypes

PACKAGE = Path(spinimpute.__file__).parent
CALL = re.compile(r"(?<![\w.])(argument|call)\(\s*[\"']([^\"']+)[\"']")


@pytest.fixture
def target(example: Path) -> Path:
    return example / "target.vcf.gz"


def genotypes_of(target: Path) -> tuple[np.ndarray, Sites]:
    """Of diploid samples, (variants, samples, 2), as libraries of arrays have them."""
    read = read_haplotypes(target)
    return read.alleles.reshape(len(read.sites), -1, 2), read.sites


def test_the_version() -> None:
    assert spinimpute.__version__ == version("spinimpute")


def test_check_takes_a_path_and_an_open_panel(target: Path, example_panel: spinimpute.Panel) -> None:
    report = spinimpute.check(target, example_panel.path)
    assert str(report) == str(spinimpute.check(target, example_panel))
    assert "matched:  246 of 246 typed sites are panel sites" in str(report)
    with pytest.raises(InputError, match="target must be TargetSettings"):
        spinimpute.check(target, example_panel, "keep")


def test_panels_and_summaries_are_readable(target, example_panel, tmp_path) -> None:
    assert repr(example_panel).startswith("<Panel of 20: 4,453 sites, ")
    assert str(example_panel.path) in repr(example_panel)
    summary = spinimpute.impute(target, tmp_path / "o.bcf", example_panel)
    assert str(summary) == repr(summary) == "\n".join(summary.lines())
    truth, region = target.with_name("truth.vcf.gz"), ["20:1-500000"]
    result = spinimpute.evaluate(truth, tmp_path / "o.bcf", example_panel, target, regions=region)
    first, *rows = repr(result).splitlines()
    assert first.strip() == f"{result.scored_sites:,} sites, 20 samples, 20:1-500000"
    n_bins = len(result.by_frequency) // 2  # for the imputed file and for the baseline
    assert sum(line.startswith("│ ") and "." in line for line in rows) == n_bins


def test_a_refusal_speaks_of_arguments(target: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    out = tmp_path / "o.bcf"
    out.touch()
    with pytest.raises(InputError, match="use force=True to overwrite") as refused:
        spinimpute.impute(target, out, example_panel)
    assert "--" not in str(refused.value)


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"vcf": "absent.vcf"}, "not-found"),
        ({"out": "there.bcf"}, "exists"),
        ({"out": "absent/o.bcf"}, "write"),
        ({"resources": spinimpute.Resources(threads=0)}, "argument"),
        ({"output": "GT"}, "argument"),
        ({"region": spinimpute.RegionSettings("21:1-9")}, "mismatch"),
    ],
)
def test_errors_have_codes(target, example_panel, tmp_path, changed, code) -> None:
    (tmp_path / "there.bcf").touch()
    given = {"vcf": target, "out": "o.bcf", "panel": example_panel} | changed
    given["out"] = tmp_path / given["out"]
    with pytest.raises(InputError) as refused:
        spinimpute.impute(**given)
    assert refused.value.code == code


ROOMS_OF_ARGUMENTS = (
    "genotypes", "vcf", "panels", "targets", "outputs", "sequencing", "hmm", "phasing", "quality", "reports",
    "evaluation",
)  # fmt: skip


def texts_in(path: Path) -> Iterator[str]:
    """Texts in code but for docstrings; the parts of an f-string one by one."""
    tree = ast.parse(path.read_text())
    alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in alone:
            yield node.value


@pytest.mark.parametrize("room", ROOMS_OF_ARGUMENTS)
def test_messages_name_no_options(room: str) -> None:
    """Options of other programs and variables of style sheets are allowed."""
    paths = (path for path in (PACKAGE / room).rglob("*.py") if path.name != "foreign.py")  # only commands
    texts = (text for path in paths for text in texts_in(path))
    options = (text for text in texts if re.search("(?<![-!(])--[a-z]", text))
    assert [text for text in options if not re.search("bcftools|plink|^--[a-z-]+$", text)] == []


def commands(group: click.Group) -> Iterator[click.Command]:
    """Commands of a group and of the groups in it."""
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        yield from commands(found) if isinstance(found, click.Group) else [found]


def named_in_messages(function: str) -> set[str]:
    """First arguments of all calls of `argument` or `call` in the library."""
    calls = (call for path in PACKAGE.rglob("*.py") for call in CALL.findall(path.read_text()))
    return {name for called, name in calls if called == function}


def test_messages_name_options_on_the_command_line() -> None:
    parameters = (parameter for each in commands(spinimpute_group) for parameter in each.params)
    options = {name for parameter in parameters for name in parameter.opts}
    assert {name_option(name, ...) for name in named_in_messages("argument")} <= options
    assert named_in_messages("call") == set(COMMAND_OF_CALL)
    assert name_option("ambiguous", "keep") == "--ambiguous keep"
    assert name_option("leave_one_out", True) == "--loo"


def test_a_path_is_no_open_panel(target: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    path, said = example_panel.path, r"panel must be an open panel, such as Panel\.open\('"
    calls, sites = genotypes_of(target)
    with pytest.raises(InputError, match=said):
        spinimpute.impute_genotypes(path, calls, sites)
    with pytest.raises(InputError, match=said):
        spinimpute.build_inducing_panel(path, tmp_path / "p.spip", target)


def test_panels_by_chromosome(example_panel, example_halves, tmp_path) -> None:
    with spinimpute.open_panels([example_panel.path]) as panels:
        assert list(panels) == ["20"]
        assert panels["20"].checksum == example_panel.checksum
    with pytest.raises(InputError, match="both panels of chromosome 20"):
        spinimpute.open_panels(example_halves)
    with pytest.raises(InputError, match="is given twice"):
        spinimpute.open_panels([example_panel.path] * 2)
    with pytest.raises(InputError, match="at least one file"):
        spinimpute.open_panels([])


def test_sites_as_a_table(example_panel: spinimpute.Panel) -> None:
    table = pd.DataFrame(example_panel.sites.columns())
    assert list(table) == ["chromosome", "position", "ref", "alt", "id"]
    assert len(table) == example_panel.n_sites
    assert (table["chromosome"] == "20").all()
    keys = list(zip(table["position"], table["ref"], table["alt"], strict=True))
    assert keys == example_panel.sites.keys()


def test_genotypes_in_and_out(target: Path, example_panel: spinimpute.Panel) -> None:
    calls, sites = genotypes_of(target)
    found = spinimpute.impute_genotypes(example_panel, calls, sites)
    p = spinimpute.impute_haplotypes(example_panel, calls.reshape(len(calls), -1), sites)
    np.testing.assert_array_equal(found.haplotypes, p)
    assert found.genotypes.shape == (example_panel.n_sites, calls.shape[1], 2)
    np.testing.assert_array_equal(found.genotypes.reshape(len(p), -1), p > 0.5)
    np.testing.assert_allclose(found.dosages, p[:, ::2] + p[:, 1::2])


def test_haploid_genotypes(target: Path, example_panel: spinimpute.Panel) -> None:
    """Beside the one allele sgkit has -2, and scikit-allel -1, as for a missing allele."""
    calls, sites = genotypes_of(target)
    padded, others = calls[:, :3].copy(), calls[:, :3].copy()
    padded[:, 1, 1], others[:, 1, 1] = -1, -2
    padded[5, 1, 0] = others[5, 1, 0] = -1
    haploid = np.array([False, True, False])
    with pytest.raises(ValueError, match=r"sample 1 of genotypes has a second allele in no row.* haploid="):
        spinimpute.impute_genotypes(example_panel, padded, sites)
    with pytest.raises(ValueError, match="sample 0 is haploid, but some of its genotypes have two alleles"):
        spinimpute.impute_genotypes(example_panel, padded, sites, haploid=np.array([True, True, False]))
    with pytest.raises(ValueError, match="haploid must be 3 booleans"):
        spinimpute.impute_genotypes(example_panel, padded, sites, haploid=np.array([0, 1, 0]))
    found = spinimpute.impute_genotypes(example_panel, padded, sites, haploid=haploid)
    as_sgkit = spinimpute.impute_genotypes(example_panel, others, sites)
    alone = spinimpute.impute_genotypes(example_panel, others[:, 1:2, :1], sites)
    np.testing.assert_array_equal(alone.genotypes[:, 0], as_sgkit.genotypes[:, 1])
    assert repr(as_sgkit) == "<ImputedSamples: 4,453 sites, 3 samples, 1 of them with one copy>"
    assert found.haploid.tolist() == as_sgkit.haploid.tolist() == haploid.tolist()
    np.testing.assert_array_equal(found.haplotypes, as_sgkit.haplotypes)
    assert (found.genotypes < 0)[:, haploid, 1].all()
    assert (found.genotypes >= 0).sum() == found.genotypes.size - len(found.genotypes)


def test_genotypes_that_cannot_be_used(target: Path, example_panel: spinimpute.Panel) -> None:
    calls, sites = genotypes_of(target)
    heterozygous = calls[:, :, 0] != calls[:, :, 1]
    for given, phased, message in (
        (calls[:, :, 0], None, "shape"),
        (calls.astype(float), None, "float64"),
        (calls, ~heterozygous, f"{heterozygous.sum()} heterozygous genotypes are not phased"),
        (calls, heterozygous[:3], "phased must be booleans"),
    ):
        with pytest.raises(ValueError, match=message):
            spinimpute.impute_genotypes(example_panel, given, sites, phased=phased)
    some = calls.copy()
    some[0, 3, 1] = -2
    with pytest.raises(ValueError, match="sample 3 of genotypes has the second allele -2"):
        spinimpute.impute_genotypes(example_panel, some, sites)
