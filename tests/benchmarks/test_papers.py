"""The papers' tables: windows, cells that resume, targets that never train, the page."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.imputation.cases import Case
from benchmarks.papers import __main__ as papers
from benchmarks.papers import (
    cells,
    elsewhere,
    genomics,
    images,
    many_windows,
    page,
    random_bits,
    section_many_windows,
    small_tables,
    window_baselines,
    window_rows,
    windows,
)
from benchmarks.papers.__main__ import make_parser
from benchmarks.papers.cells import Cell, make_cells, write_result
from benchmarks.papers.claims import FAILS, PARTLY, UNDECIDED, UNTESTED
from benchmarks.papers.section_genomics import section
from benchmarks.papers.window_baselines import BASELINES, BEAGLE, BEAGLE_NEAR, FREQUENCIES, KNN
from benchmarks.papers.window_networks import (
    NETWORKS,
    NPT_16,
    SET_TF_16,
    SPIN_16,
    WITHOUT_XABD,
    WindowNetwork,
    WindowRecipe,
)
from benchmarks.papers.window_scores import R2, R2_MINOR, window_scores
from benchmarks.papers.windows import Cut, Window, read_sites, read_targets, read_window, read_windows

pytestmark = pytest.mark.slow

SMALL = Cut(windows=5, untyped=8, typed=9)
TINY = WindowRecipe(steps=3, batch=16, width=4, h=3, f=2, k=3, looks=1)


@pytest.fixture
def window(simulated: Case) -> Window:
    return read_window(simulated, 2, SMALL)


def test_a_window_has_untyped_snps_in_a_row_and_the_nearest_typed_ones(simulated: Case) -> None:
    panel, typed = read_sites(simulated.panel), set(read_sites(simulated.target).sites)
    untyped = [
        site
        for site, alleles in zip(panel.sites, panel.allele_VX, strict=True)
        if site not in typed and 0 < alleles.sum() < len(alleles) and len(site[1] + site[2]) == 2
    ]
    found = read_windows(simulated, SMALL)
    assert len(found) == SMALL.windows
    for number, one in enumerate(found):
        first = untyped.index(one.untyped_sites[0])
        assert one.untyped_sites == untyped[first : first + 8]
        assert number * len(untyped) // SMALL.windows <= first + 1
        assert first + 8 <= -(-(number + 1) * len(untyped) // SMALL.windows)
        assert set(one.typed_sites) <= typed
        assert len(one.typed_sites) == 9
        row = panel.sites.index(one.untyped_sites[3])
        np.testing.assert_array_equal(one.label_NU[:, 3], panel.allele_VX[row])


def test_nearest_typed_sites_are_those_of_the_least_distance() -> None:
    positions = np.array([10, 50, 90, 105, 120, 180, 400])
    # distances to 100-110: 90, 50, 10, 0, 10, 70, 290
    assert windows.nearest_typed(positions, 100, 110, 4).tolist() == [1, 2, 3, 4]


def test_windows_are_the_papers_and_do_not_overlap() -> None:
    assert Cut() == Cut(windows=5, untyped=100, typed=150)
    assert all(b - a >= 100 for a, b in pairwise(windows.first_untyped(16_644, Cut())))


def test_people_are_kept_apart_whole() -> None:
    apart = windows.kept_apart(300)
    assert (apart[::2] == apart[1::2]).all()
    assert apart.mean() == pytest.approx(0.12 / 0.98, abs=0.005)


@pytest.mark.parametrize("method", NETWORKS)
def test_only_rows_of_training_teach(window: Window, method: str) -> None:
    """Rows kept apart only choose among looks, and there is one look."""
    trained = []
    for flip in (0, 1):
        apart = window.is_validation_N
        label_NU = np.where(apart[:, None], window.label_NU ^ flip, window.label_NU)
        torch.manual_seed(1)
        network = WindowNetwork(method, window.typed_NS, label_NU, TINY)
        network.train(~apart, apart, seed=1)
        trained.append(network.network.state_dict())
    torch.testing.assert_close(*trained, rtol=0, atol=0)


def test_without_xabd_the_context_is_not_read(window: Window) -> None:
    def change(method: str) -> float:
        torch.manual_seed(1)
        network = WindowNetwork(method, window.typed_NS, window.label_NU, TINY)
        train_N = ~window.is_validation_N
        contexts = (network.context(chosen) for chosen in (train_N, window.is_validation_N))
        told = [network.probabilities(window.typed_NS[:2], context) for context in contexts]
        return float(np.abs(told[0] - told[1]).max())

    assert change(WITHOUT_XABD) == 0
    assert change(SPIN_16) > 0


def test_targets_are_read_when_training_is_over(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            done = function(*arguments)
            events.append(name)
            return done

        return call

    monkeypatch.setattr(genomics, "read_targets", noted("targets", read_targets))
    monkeypatch.setattr(WindowNetwork, "train", noted("trained", WindowNetwork.train))
    found = genomics._network(window, SPIN_16, 1, TINY, True)["found"]
    assert events == ["trained", "targets"]
    assert set(found) == {genomics.KEPT_APART, genomics.TRUE, genomics.SHUFFLED}
    assert set(genomics._network(window, SPIN_16, 1, TINY, False)["found"]) == {genomics.KEPT_APART}
    assert events == ["trained", "targets", "trained"]


@pytest.mark.parametrize("method", [name for name in BASELINES if name not in (BEAGLE, BEAGLE_NEAR)])
def test_baselines_beat_frequencies_or_are_them(window, method, monkeypatch) -> None:
    pytest.importorskip("lightgbm", reason="lightgbm is not installed (extra: bench)")
    monkeypatch.setattr(window_baselines, "HIDDEN", (20,))
    found = genomics._baseline(window, method, 1)["found"][genomics.TRUE]
    frequency = genomics._baseline(window, FREQUENCIES, 1)["found"][genomics.TRUE]
    if method == KNN:
        assert found[R2_MINOR] > frequency[R2_MINOR]
    assert 0 <= found[R2] <= 1


def test_beagle_gives_haplotypes(window: Window, programs: None) -> None:
    targets, answers = read_targets(window), []
    for method in (BEAGLE, BEAGLE_NEAR):
        answers.append(BASELINES[method](window, targets.typed_QS, 1).p_QU)
        assert answers[-1].shape == targets.truth_QU.shape
        error = np.mean((answers[-1] - targets.truth_QU) ** 2)
        assert error < np.mean((window.frequency_U - targets.truth_QU) ** 2)
    assert (answers[0] != answers[1]).any()


def test_beagle_is_given_the_typed_sites_of_the_window(window: Window, tmp_path: Path) -> None:
    assert read_sites(window_baselines._near(window, tmp_path)).sites == window.typed_sites


def test_scores_are_of_dosages_of_people() -> None:
    rng = np.random.default_rng(1)
    truth_QU = (rng.random((40, 6)) < [0.1, 0.9, 0.5, 0.02, 0.3, 0.7]).astype(np.int8)
    p_QU = np.clip(truth_QU + rng.normal(0, 0.3, truth_QU.shape), 0, 1)
    frequency_U = np.array([0.1, 0.9, 0.5, 0.02, 0.3, 0.7])
    found = window_scores(p_QU, truth_QU, frequency_U)
    dosage, true = p_QU[::2] + p_QU[1::2], truth_QU[::2] + truth_QU[1::2]
    assert found[R2] == pytest.approx(np.corrcoef(dosage.ravel(), true.ravel())[0, 1] ** 2)
    turned = [np.where(frequency_U > 0.5, 2 - x, x).ravel() for x in (dosage, true)]
    assert found[R2_MINOR] == pytest.approx(np.corrcoef(*turned)[0, 1] ** 2)
    swapped = p_QU.reshape(20, 2, 6)[:, ::-1].reshape(40, 6)
    assert window_scores(swapped, truth_QU, frequency_U)[R2] == pytest.approx(found[R2])


def test_a_cell_that_is_there_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        called.append(command[-1])
        failed = command[-1] == "2" and len(called) == 2
        return subprocess.CompletedProcess(command, int(failed), 'told\n{"found": 1}\n')

    monkeypatch.setattr(cells.subprocess, "run", run)
    monkeypatch.setattr(cells, "commit", lambda: "abc")
    some = [Cell("table3", ("a", number), ("window", number)) for number in (1, 2, 3)]
    with pytest.raises(SystemExit, match="1 cells failed: a-2"):
        make_cells(some, tmp_path)
    make_cells(some, tmp_path)
    assert called == ["1", "2", "3", "2"]
    result = json.loads((tmp_path / "table3" / "a-2.json").read_text())
    assert result["command"] == "python -m benchmarks.papers window 2"
    assert (result["commit"], result["found"]) == ("abc", 1)
    assert not list(tmp_path.rglob("*.part"))
    with pytest.raises(SystemExit, match="Run the command again"):
        make_cells([Cell("table3", ("b", 1), ("window", 1))], tmp_path, limit=-1)


def test_cells_of_a_table_have_names_of_their_own() -> None:
    parser = make_parser()
    for table, number in {"table3": 100, "table5": 10, "table6": 20, "table9": 40, "table10": 100}.items():
        arguments = parser.parse_args([table])
        names = [cell.path(Path()) for cell in arguments.cells(arguments)]
        assert len(set(names)) == len(names) == number
    usual = parser.parse_args(["table6"])
    for options in (["--steps", "5"], ["--learning-rate", "0.003"]):
        other = parser.parse_args(["table6", *options])
        names = {cell.path(Path()) for cell in other.cells(other)}
        assert not names & {cell.path(Path()) for cell in usual.cells(usual)}


def result(method: str, r2: float, window: int = 3, steps: int = 600) -> dict[str, Any]:
    scores = dict.fromkeys(window_scores(np.eye(4), np.eye(4), np.full(4, 0.25)), 0.5)
    found = {genomics.TRUE: scores | {R2: r2}}
    row: dict[str, Any] = {
        "case": "chr20_eur", "window": window, "method": method, "seed": 1, "untyped": [5, 9], "seconds": 60,
        "configuration": {}, "found": found,
    }  # fmt: skip
    if method in NETWORKS:
        found[genomics.SHUFFLED] = scores | {R2: r2}
        row["configuration"] = replace(TINY, steps=steps).as_dict()
        row["parameters"] = 8_000_000
        row["training"] = {
            "peak bytes of training": 100 if method == SPIN_16 else 200, "seconds a step": 0.1,
            "bytes of weights, gradients and optimiser": 10, "looks": [],
        }  # fmt: skip
    return row


def verdicts(results: Path) -> dict[str, tuple[str, str]]:
    return {claim.says: (claim.verdict, claim.because) for claim in section(results).claims}


def test_what_was_not_run_has_no_verdict_and_no_number(tmp_path: Path) -> None:
    assert {of for of, _ in verdicts(tmp_path).values()} == {UNTESTED}


def with_loss(row: dict[str, Any], loss: float, **settings: float) -> dict[str, Any]:
    """As if people kept apart had this loss at the best look."""
    training = row["training"] | {"looks": [{"step": 1, "loss": 1.0, "validation loss": loss}]}
    return row | {"training": training, "configuration": row["configuration"] | settings}


def test_people_kept_apart_choose_the_run_not_targets() -> None:
    at_one_rate = with_loss(result(SET_TF_16, 0.99), 0.3, learning_rate=0.01)
    at_another = with_loss(result(SET_TF_16, 0.90), 0.2, learning_rate=0.003)
    longer = with_loss(result(SET_TF_16, 0.80, steps=900), 0.1)
    rows = [at_one_rate, at_another, longer]
    assert window_rows.best_settings(rows) == [at_another, longer]
    assert window_rows.preferred(rows) == [longer]
    compared, places = window_rows.at_equal_steps([*rows, result(NPT_16, 0.9)], (SET_TF_16, NPT_16))
    assert places == [("chr20_eur", 3)]
    assert compared[0] == at_another
    names = [name for _, name, _ in window_rows.by_settings(rows)]
    assert names[0] == "Set-TF-16, 600 steps, dropout 0.4, rate 0.003"


def test_windows_are_compared_with_the_steps_that_they_have() -> None:
    cases = ((method, *case) for method in (SPIN_16, NPT_16) for case in ((1, 400), (2, 800)))
    rows = [result(method, 0.9, window=window, steps=steps) for method, window, steps in cases]
    rows.append(result(SPIN_16, 0.8, window=1, steps=800))
    compared, places = window_rows.at_equal_steps(rows, (SPIN_16, NPT_16))
    assert places == [("chr20_eur", 1), ("chr20_eur", 2)]
    assert sorted(window_rows.steps_of(row) for row in compared) == [400, 400, 800, 800]


def with_looks(row: dict[str, Any], *losses: float) -> dict[str, Any]:
    looks = [{"step": step, "validation loss": loss} for step, loss in enumerate(losses)]
    return row | {"training": row["training"] | {"looks": looks}}


def test_windows_decide_whose_longest_training_has_ended() -> None:
    """The lowest loss chooses the run of such a window, even if it is that of a shorter training."""
    short = with_looks(result(SPIN_16, 0.9, window=1), 0.2, 0.1)
    long = with_looks(result(SPIN_16, 0.8, window=1, steps=900), 0.2, 0.3, 0.3, 0.3)
    falling = with_looks(result(SPIN_16, 0.7, window=2, steps=900), 0.2, 0.1)
    other_set = with_looks(result(SPIN_16, 0.6), 0.2, 0.1) | {"case": "chr22_1kg"}
    assert window_rows.deciding([short, falling], SPIN_16) == ([short, falling], False)
    assert window_rows.deciding([short, long, falling, result(NPT_16, 0.5)], SPIN_16) == ([short], True)
    assert window_rows.deciding([long, other_set], SPIN_16) == ([long, other_set], False)
    assert window_rows.deciding([], SPIN_16) == ([], True)


@pytest.mark.parametrize("ended", [True, False])
def test_spin_is_behind_beagle_only_if_its_training_has_ended(tmp_path: Path, ended: bool) -> None:
    (tmp_path / "table3").mkdir()
    losses = (0.1, 0.2, 0.2, 0.2) if ended else (0.2, 0.1)
    spin = with_looks(result(SPIN_16, 0.8), *losses)
    for name, row in (("spin", spin), ("beagle", result(BEAGLE, 0.9))):
        write_result(tmp_path / "table3" / f"{name}.json", ["window"], row)
    found = verdicts(tmp_path)
    expected = FAILS if ended else UNDECIDED
    assert found["SPIN-16 is as accurate as Beagle, or more accurate"][0] == expected
    assert found["SPIN uses the training set in predictions, through its inducing points"][0] == expected


@pytest.mark.parametrize(
    ("r2", "verdict"), [((0.80, 0.85, 0.90), PARTLY), ((0.80, 0.79, 0.90), PARTLY), ((0.9, 0.9, 0.8), FAILS)]
)
def test_accuracy_by_panel_is_beside_the_whole_panel(tmp_path, r2, verdict) -> None:
    """Only equal steps and windows are compared. NPT's memory is not tested: partly at most."""
    sizes = zip((40, 200, 500), r2, strict=True)
    rows = [result(SPIN_16, x) | {"panel haplotypes": {"training": n}} for n, x in sizes]
    others = [result(SPIN_16, 0.1, steps=900), result(SPIN_16, 0.1, window=4)]
    others = [row | {"panel haplotypes": {"training": 7}} for row in others]
    for i, (table, row) in enumerate(zip(("9", "9", "3", "3", "3"), [*rows, *others], strict=True)):
        (tmp_path / f"table{table}").mkdir(exist_ok=True)
        write_result(tmp_path / f"table{table}" / f"{i}.json", ["window"], row)
    found = verdicts(tmp_path)["Accuracy grows with the panel; NPT runs out of memory"]
    told = f"chr20_eur 3: 40 {100 * r2[0]:.2f}, 200 {100 * r2[1]:.2f}, 500 {100 * r2[2]:.2f} (1 seed)"
    assert found == (verdict, f"R² by panel haplotypes that train: {told}")
    assert f"| chr20_eur 3 | 40 | 600 | 0.4 | {100 * r2[0]:.2f} |" in section(tmp_path).text


def test_the_pages_are_what_the_results_say(tmp_path: Path) -> None:
    arguments = make_parser().parse_args(["page", "--out", str(tmp_path)])
    arguments.function(arguments)
    for name in ("README.md", "tables.md"):
        assert (page.HERE / name).read_text() == (tmp_path / name).read_text(), "run benchmarks.papers page"


def test_patches_are_cut_row_by_row() -> None:
    pixels = np.arange(32).reshape(2, 4, 4)
    assert images.cut(pixels, 2)[1].tolist() == [
        [16, 17, 20, 21], [18, 19, 22, 23], [24, 25, 28, 29], [26, 27, 30, 31]
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["SPIN", "NPT"])
def test_labels_of_queried_images_are_not_seen(method: str) -> None:
    torch.manual_seed(1)
    model = images.ImageNetwork(method, images.load(images.DIGITS), replace(TINY, width=8))
    model.network.eval()
    chosen = torch.arange(5)
    with torch.no_grad():
        rows = [model.rows("test", chosen, label) for label in (torch.zeros_like(chosen), chosen)]
        told = [model.label_logits(model.context(), row) for row in rows]
    torch.testing.assert_close(*told, rtol=0, atol=0)


def test_parts_of_images_are_apart() -> None:
    parts = images.load(images.DIGITS).patches
    rows = [{tuple(image.flatten().tolist()) for image in parts[name]} for name in ("train", "test")]
    assert not rows[0] & rows[1]
    assert sum(map(len, parts.values())) == 1797


@pytest.mark.parametrize("method", random_bits.METHODS)
def test_copied_rows_of_random_bits_are_asked_for(method: str) -> None:
    found = random_bits.random_bits(method, 1, replace(TINY, k=1, attribute_weight=0.0), rows=60, copied=30)
    assert set(found["found"]) == {*random_bits.PARTS, random_bits.SHUFFLED}
    assert all(0.2 < share < 0.8 for share in found["found"].values())
    if method == "XABA alone":
        assert found["found"]["test"] == found["found"][random_bits.SHUFFLED]


@pytest.mark.parametrize("method", [*small_tables.METHODS, small_tables.WITHOUT_XABA])
def test_test_rows_of_a_table_teach_nothing(method: str) -> None:
    """Test rows influence neither weights nor scales."""
    table_ND = np.random.default_rng(1).normal(size=(40, 4))
    train_N, validation_N, test_N = np.arange(24), np.arange(24, 32), np.arange(32, 40)
    recipe = small_tables.TableRecipe(steps=2, width=8, h=3, f=2, heads=2, looks=1)
    trained = []
    for spoilt in (0.0, 100.0):
        other_ND = table_ND.copy()
        other_ND[test_N] += spoilt
        torch.manual_seed(1)
        network = small_tables.TableNetwork(method, other_ND, train_N, recipe)
        network.train(train_N, validation_N, seed=1)
        trained.append(network.network.state_dict())
    torch.testing.assert_close(*trained, rtol=0, atol=0)


def test_the_label_of_a_queried_row_is_not_seen() -> None:
    table_ND = np.random.default_rng(1).normal(size=(30, 4))
    network = small_tables.TableNetwork("SPIN", table_ND, np.arange(20), small_tables.TableRecipe(width=8))
    network.network.eval()
    query_ND, told = network.table_ND[20:].clone(), []
    for _ in range(2):
        hidden_ND = network.is_label_D.expand(query_ND.shape)
        told.append(network.outputs(network.table_ND[:20], query_ND, hidden_ND))
        query_ND[:, -1] += 1
    torch.testing.assert_close(*told, rtol=0, atol=0)


def test_without_xabd_the_rows_of_a_table_are_not_read() -> None:
    table_ND = np.random.default_rng(1).normal(size=(30, 4))
    recipe = small_tables.TableRecipe(width=8, h=3, f=2, heads=2)
    for method, read in ((small_tables.WITHOUT_XABD, False), (small_tables.WITHOUT_XABA, True)):
        torch.manual_seed(1)
        network = small_tables.TableNetwork(method, table_ND, np.arange(20), recipe)
        errors = [network.rmse(rows, np.arange(20, 30)) for rows in (np.arange(10), np.arange(10, 20))]
        assert (errors[0] != errors[1]) is read


@pytest.mark.parametrize("method", many_windows.METHODS)
def test_windows_never_seen_do_not_train(simulated: Case, method: str) -> None:
    trained = []
    for flip in (0, 1):
        found = [
            replace(w, label_NU=w.label_NU ^ flip) if w.number in many_windows.UNSEEN else w
            for w in read_windows(simulated, replace(SMALL, windows=10, untyped=6))
        ]
        told = many_windows.train_together(found, method, 1, TINY)
        assert list(told["found"][many_windows.NEVER_SEEN]) == list(map(str, many_windows.UNSEEN))
        assert len(told["found"][many_windows.TRAINED]) == 8
        trained.append([look["validation loss"] for look in told["training"]["looks"]])
        row = {**told, "case": "a", "untyped sites": 6, "method": "b", "seed": 1}
        text = section_many_windows._table([row])
        assert "| b | a | 6 | chunk | 3 | 1 |" in text
    assert trained[0] == trained[1]


LINES = sorted({tuple(line) for _, lines in elsewhere.COMMANDS.values() for line in lines})


@pytest.mark.parametrize(("module", "command"), sorted({line[:2] for line in LINES}))
def test_other_benchmarks_know_the_commands(module, command, monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", [module, command, "--help"])
    with pytest.raises(SystemExit) as left:
        import_module(f"{module}.__main__").main()
    assert left.value.code == 0
    known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    for line in LINES:
        if line[:2] == (module, command):
            assert {word for word in line if word.startswith("--")} <= known
    assert ("--data" in known) == (command in elsewhere.NEEDS_DATA)


@pytest.mark.parametrize("name", elsewhere.COMMANDS)
def test_they_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = papers.make_parser().parse_args([name, "--show"])
    arguments.function(arguments)
    shown = capsys.readouterr().out.splitlines()
    assert [line.split()[2] for line in shown] == [line[0] for line in elsewhere.COMMANDS[name][1]]
