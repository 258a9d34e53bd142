"""The examples of CONTRIBUTING.md work: a target format and a predictor, added as the page says."""

import importlib
import re
import sys
import textwrap
import types
from pathlib import Path

import pytest
from cyvcf2 import VCF

import spinimpute
from spinimpute.predictors import registry
from spinimpute.targets import formats

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
MODULE = re.compile(r"^ *```python\n *# (\S+)\n(.*?)^ *```", re.M | re.S)
ROW = re.compile(r"^ *```python\n( *[A-Z]\w+\(.*?)^ *```", re.M | re.S)


@pytest.fixture
def example_modules(monkeypatch: pytest.MonkeyPatch) -> dict[str, types.ModuleType]:
    """The modules of the page, as if they were files of the package."""
    modules = {}
    for path, code in MODULE.findall(PAGE):
        name = path.removesuffix(".py").replace("/", ".")
        package = name.rpartition(".")[0]
        if importlib.util.find_spec(package.rpartition(".")[0]) and package not in sys.modules:
            monkeypatch.setitem(sys.modules, package, types.ModuleType(package))
        module = types.ModuleType(name)
        exec(compile(textwrap.dedent(code), path, "exec"), module.__dict__)
        monkeypatch.setitem(sys.modules, name, module)
        modules[name] = module
    return modules


def row(name: str, **names: object) -> object:
    (code,) = [code for code in ROW.findall(PAGE) if name in code]
    return eval(textwrap.dedent(code).strip().rstrip(","), names)


def test_the_target_format(example_modules, example, example_panel, tmp_path, monkeypatch) -> None:
    module = example_modules["spinimpute.targets.letter_table"]
    new = row("letter table", TargetFormat=formats.TargetFormat, **vars(module))
    monkeypatch.setattr(formats, "FORMATS", (*formats.FORMATS, new))
    records = list(VCF(str(example / "target.vcf.gz"), samples=["target_EUR_01"]))
    lines = [f"20\t{record.POS}\t{record.gt_bases[0].replace('|', '')}" for record in records]
    target = tmp_path / "target_EUR_01.txt"
    target.write_text("\n".join(["#letters", *lines]) + "\n")
    spinimpute.convert(target, tmp_path / "out.vcf", example_panel)
    found = {
        (record.POS, tuple(sorted(record.genotypes[0][:2]))) for record in VCF(str(tmp_path / "out.vcf"))
    }
    assert found == {(record.POS, tuple(sorted(record.genotypes[0][:2]))) for record in records}
    target.write_text("#letters\n20\t17\n")
    with pytest.raises(spinimpute.InputError, match=r"line 2: .* is not chromosome, position, bases"):
        spinimpute.convert(target, tmp_path / "damaged.vcf", example_panel)


def test_the_predictor(example_modules, example, example_panel, tmp_path, monkeypatch) -> None:
    new = row("PredictorRow", **vars(registry))
    monkeypatch.setattr(registry, "PREDICTORS", (*registry.PREDICTORS, new))
    spinimpute.impute(
        example / "target.vcf.gz",
        tmp_path / "out.vcf",
        example_panel,
        predictor=spinimpute.PredictorSettings("frequencies"),
    )
    for record, frequency in zip(VCF(str(tmp_path / "out.vcf")), example_panel.frequency, strict=True):
        if record.INFO.get("IMPUTED"):
            assert record.format("DS").mean() == pytest.approx(2 * frequency, abs=2e-3)


def test_files_that_the_page_names_exist() -> None:
    named = set(re.findall(r"`((?:spinimpute|tests|docs|cli|configs|benchmarks)/[\w./]+)`", PAGE))
    named |= {f"spinimpute/{path}" for path in re.findall(r"`((?:predictors|training)/\w+\.py)`", PAGE)}
    missing = {path for path in named if not (ROOT / path).exists()}
    assert missing == {"spinimpute/predictors/frequencies/"}  # the example's own folder
