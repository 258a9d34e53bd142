"""Working on less at a time: results in files, limits, and a budget that is kept."""

import gzip
import os
import re
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spinimpute
from spinimpute.genotypes.intervals import Interval
from spinimpute.hmm.parameters import MISMATCH
from spinimpute.hmm.pbwt import find_candidates
from spinimpute.hmm.posteriors import copying_posteriors
from spinimpute.hmm.steps import allele_emissions, jump_probabilities
from spinimpute.hmm.typed_alleles import PanelAlleles, TypedAlleles
from spinimpute.phasing.memory import check_phasing
from spinimpute.predictors import typed_tiles
from spinimpute.predictors.haplotype_attention.copying import BLOCK_GAPS, MAX_UINT16_PATTERNS
from spinimpute.predictors.haplotype_attention.memory import DEFAULT, MIN_QUERIES, JobSizes, limits_within
from spinimpute.predictors.haplotype_attention.tile import (
    CANDIDATES,
    LARGE_PANEL_HAPLOTYPES,
    MIN_POSTERIOR_SHARE,
    TileSizes,
)
from spinimpute.predictors.results import FileResults, MemoryResults
from spinimpute.predictors.typed_tiles import TILE_GAPS, add_flanks, flank_reach
from spinimpute.runtime.errors import InputError
from spinimpute.runtime.memory import parse_size, resident_bytes, within_budget
from spinimpute.vcf.header import OutputLayout
from spinimpute.vcf.reader import read_haplotypes
from spinimpute.vcf.record_block import RecordBlock
from spinimpute.vcf.writer import GenotypeWriter
from tests.conftest import NEEDS_PROC

pytestmark = pytest.mark.slow

PEOPLE = 1_500
MB = 2**20
# what a program leaves in VmHWM is its own, unlike ru_maxrss, which knows of the program that started it
MEASURED = """
import sys
from spinimpute.cli.main import run_command
status = run_command()
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
sys.exit(status)
"""


@pytest.fixture(scope="module")
def many(example: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """1,500 samples drawn from those of the example."""
    few = read_haplotypes(example / "target.vcf.gz")
    rng = np.random.default_rng(1)
    alleles = few.alleles[:, rng.integers(0, few.alleles.shape[1], 2 * PEOPLE)]
    path = tmp_path_factory.mktemp("many") / "many.bcf"
    names = [f"p{number}" for number in range(PEOPLE)]
    layout = OutputLayout(names, np.full(PEOPLE, 2), [few.contig_line], (), ("GT",))
    with GenotypeWriter(path, layout) as writer:
        writer.write_block(
            RecordBlock("20", few.sites, alleles.astype(np.float32), {}, alleles, np.ones(len(alleles), bool))
        )
        writer.close()
    return path


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 40), st.integers(1, 60), st.integers(1, 20), st.integers(0, 99))
def test_results_in_a_file_are_those_in_memory(n_sites: int, n_queries: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    p_UQ = rng.random((n_sites, n_queries), np.float32)
    kept = MemoryResults(np.empty((n_sites, n_queries), np.float32))
    filed = FileResults(n_sites, n_queries, Path("/tmp"))
    parts = [slice(i, i + width) for i in range(0, n_queries, width)]
    for number in rng.permutation(len(parts)):
        kept.put(0, parts[number], p_UQ[:, parts[number]])
        filed.put(0, parts[number], p_UQ[:, parts[number]])
    start = int(rng.integers(n_sites))
    stop = int(rng.integers(start, n_sites)) + 1
    np.testing.assert_array_equal(filed.take(start, stop), p_UQ[start:stop])
    np.testing.assert_array_equal(kept.take(start, stop), p_UQ[start:stop])
    filed.close()


@pytest.mark.parametrize(
    ("text", "size"), [("2G", 2 * 2**30), ("1.5gb", 3 * 2**29), ("800 MiB", 800 * MB), ("4096", 4096)]
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-2G", "2X", "0", "1e9", "2 G B", "9" * 400])
def test_sizes_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="is not an amount of memory"):
        parse_size(text)


def test_limits_shrink_with_the_budget() -> None:
    sizes = JobSizes(2_000, 10_000, 2, TileSizes(10, 600, 5_000, 400, 2_500, 50_000))
    assert limits_within(None, 150 * MB, sizes) == DEFAULT == limits_within(2**40, 150 * MB, sizes)
    before = DEFAULT
    for budget in (2_000, 550, 430, 395, 370, 360, 350):
        limits = limits_within(budget * MB, 150 * MB, sizes)
        assert 0 < limits.tiles_ahead <= before.tiles_ahead
        assert 0 < limits.queries <= before.queries
        assert limits.window >= sizes.query_haplotypes, "at least a site"
        before = limits
    assert before.window < DEFAULT.window / 10
    assert (before.tiles_ahead, before.queries) == (1, 32)
    with pytest.raises(InputError, match=r"250 MB of memory are too little .* 150 MB of them"):
        limits_within(250 * MB, 150 * MB, sizes)


def test_patterns_take_two_bytes_until_a_gap_may_have_too_many() -> None:
    sizes = TileSizes(10, 300, 3_000, 300, 10 * TILE_GAPS, 30_000)

    def needed_mb(haplotypes: int) -> int:
        with pytest.raises(InputError, match="are too little") as error:
            limits_within(MB, 0, JobSizes(haplotypes, 2, 1, sizes))
        return int(re.search(r": (\d+) MB are needed", str(error.value))[1])  # type: ignore[index]

    bytes_of_tile = 2 * TILE_GAPS * MAX_UINT16_PATTERNS
    assert needed_mb(MAX_UINT16_PATTERNS + 1) - needed_mb(MAX_UINT16_PATTERNS) == pytest.approx(
        bytes_of_tile / MB, abs=4
    )


def test_candidates_of_a_large_panel_are_counted() -> None:
    """Hundreds of haplotypes match alike, as in large panels."""
    n, n_queries, n_places = 30_000, 32, TILE_GAPS + 40
    rng = np.random.default_rng(3)
    founders = rng.integers(0, 2, (n_places, 60), np.uint8)
    alleles = founders[:, rng.integers(0, 60, n + n_queries)]
    errors = rng.integers(0, alleles.size, alleles.size // 50)
    alleles.reshape(-1)[errors] ^= 1
    panel, queries = (
        PanelAlleles.from_alleles(alleles[:, n_queries:]),
        TypedAlleles.from_alleles(alleles[:, :n_queries]),
    )
    backwards, jump_S = panel.backwards(), jump_probabilities(np.linspace(0, 0.3, n_places), n)
    blocks = 20 + np.arange(0, TILE_GAPS, BLOCK_GAPS), np.full(TILE_GAPS // BLOCK_GAPS, BLOCK_GAPS)
    tracemalloc.start()
    candidates = find_candidates(panel, backwards, queries, *blocks, CANDIDATES)
    found = copying_posteriors(
        None, panel.bits_NW, allele_emissions(queries.alleles_SX.T, MISMATCH), jump_S, candidates,
        *blocks, MIN_POSTERIOR_SHARE * n / LARGE_PANEL_HAPLOTYPES,
    )  # fmt: skip
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sizes = JobSizes(n, n_queries, 1, TileSizes(1, n_places, 0, 0, n_places, 0))
    assert len(found[0]) > 50 * n_queries * len(blocks[0])
    assert 0.1 < peak / (n_queries * sizes.bytes_of_query()) < 1


def test_phasing_cannot_shrink() -> None:
    check_phasing(None, 10**9, 10**6, 8)
    check_phasing(2**40, 1_000, 10_000, 2)
    with pytest.raises(InputError, match="too little to phase 10000 typed sites"):
        check_phasing(2**30, 1_000_000, 10_000, 2)


def test_a_disk_without_room_for_results(
    many: Path, example_panel: spinimpute.Panel, small_disk: Callable[[int], Any]
) -> None:
    """The disk would have room for the beginning of the output."""
    disk = small_disk(2_048).folder
    with pytest.raises(InputError, match=rf"{disk}: temporary results .*No space left"):
        spinimpute.impute(many, disk / "o.bcf", example_panel)
    assert not list(disk.iterdir())


def test_writing_fails_while_others_wait(
    many: Path,
    example_panel: spinimpute.Panel,
    small_disk: Callable[[int], Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing waits for tiles that have not begun."""
    monkeypatch.setattr(typed_tiles, "TILE_GAPS", 16)
    disk = small_disk(64).folder
    with pytest.raises(InputError, match="No space left"):
        spinimpute.impute(
            many,
            disk / "o.bcf",
            example_panel,
            predictor=spinimpute.PredictorSettings(options={"window_cM": 0.01}),
            resources=spinimpute.Resources(threads=2),
        )
    assert not list(disk.iterdir())


def test_results_that_were_cut_short(tmp_path: Path) -> None:
    results = FileResults(5, 4, tmp_path)
    results.put(0, slice(0, 4), np.zeros((5, 4), np.float32))
    os.ftruncate(results._file.fileno(), 30)
    with pytest.raises(InputError, match="temporary results cannot be read again"):
        results.take(0, 5)
    results.close()
    with pytest.raises(InputError, match=r"temporary results .* cannot be written"):
        FileResults(3, 4, tmp_path / "absent")


def test_what_is_read_counts() -> None:
    with within_budget(None, "x"), within_budget(2**40, "x"):
        pass
    now = resident_bytes(peak=True)
    with pytest.raises(InputError, match="are needed for reading it"), within_budget(now // 2, "reading it"):
        held = np.ones(now // 8 + 10**7)
    assert resident_bytes(peak=True) > now
    del held
    with within_budget(now // 2, "x"):  # what was before is not its own
        pass


@NEEDS_PROC
def test_a_budget_is_kept(many: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    peaks = {}
    for budget in (None, "300M"):
        out = tmp_path / f"{budget}.bcf"
        command = [sys.executable, "-c", MEASURED, "impute", "--vcf", many, "--panel", example_panel.path]
        command += ["--out", out, "--threads", "2", "--quiet"]
        if budget is not None:
            command += ["--max-memory", budget]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
        assert done.returncode == 0, done.stderr
        peaks[budget] = int(done.stdout.split()[-1]) / 1024
    assert peaks["300M"] < 300 < peaks[None], peaks
    assert (tmp_path / "300M.bcf").read_bytes() == (tmp_path / "None.bcf").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "300M.bcf", "300M.bcf.csi", "None.bcf", "None.bcf.csi"
    ]  # fmt: skip


def test_budgets_that_are_refused(
    many: Path, example: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    out = tmp_path / "o.bcf"
    with pytest.raises(InputError, match="are needed"):
        spinimpute.impute(many, out, example_panel, resources=spinimpute.Resources(max_memory=100 * MB))
    with pytest.raises(InputError, match=r"leave_one_out=True, report=\.\.\."):
        spinimpute.impute(
            many,
            out,
            example_panel,
            resources=spinimpute.Resources(max_memory=10**10),
            output=spinimpute.OutputSettings(leave_one_out=True),
        )
    assert not list(tmp_path.iterdir())


def test_a_region_with_its_buffer_is_all_that_is_read_of_our_files(
    dense_target: Path, example_panel: spinimpute.Panel, tmp_path: Path
) -> None:
    """Other files are read whole, as all sites together decide on repairs."""
    ours = tmp_path / "ours.bcf"
    spinimpute.convert(dense_target, ours, example_panel)
    found = []
    for target in (dense_target, ours):
        out = tmp_path / f"{target.stem}.vcf"
        region = spinimpute.RegionSettings("20:1-50000", 0.1)
        summary = spinimpute.impute(target, out, example_panel, region=region)
        found.append((summary, [line for line in out.read_text().splitlines() if line[0] != "#"]))
    (every, expected), (some, records_of_some) = found
    assert records_of_some == expected
    assert some.used_sites == every.used_sites
    assert 0 < some.typed_sites < every.typed_sites / 2


def test_one_tile_repairs_as_all_do(example: Path, example_panel: spinimpute.Panel, tmp_path: Path) -> None:
    """All sites outside one region are on the other strand."""
    letters = str.maketrans("ACGT", "TGCA")
    lines = []
    for line in gzip.decompress((example / "target.vcf.gz").read_bytes()).decode().splitlines(keepends=True):
        fields = line.split("\t")
        if line[0] != "#" and not 400_000 <= int(fields[1]) <= 520_000:
            fields[3:5] = [allele.translate(letters) for allele in fields[3:5]]
        lines.append("\t".join(fields))
    target = tmp_path / "flipped.vcf"
    target.write_text("".join(lines))
    counts = [
        spinimpute.impute(
            target,
            tmp_path / f"{b}.bcf",
            example_panel,
            region=spinimpute.RegionSettings(region="20:420000-500000", buffer_cM=b),
        ).repaired
        for b in (0.01, None)
    ]
    assert counts[0] == counts[1] != {}


def test_few_typed_sites_and_many_others(tmp_path: Path) -> None:
    """Fewer queries are computed at once, so that memory stays bounded."""
    rng = np.random.default_rng(1)
    sizes = TileSizes.of(np.arange(300_000) / 1e5, np.sort(rng.choice(300_000, 30, replace=False)), 400)
    assert (sizes.n_tiles, sizes.sites) == (1, 300_000)
    assert 90_000 < sizes.block_sites < 300_000
    job = JobSizes(400, 400, 2, sizes)
    assert limits_within(None, 0, job).queries == MIN_QUERIES
    with pytest.raises(InputError, match="are needed"):
        limits_within(300 * MB, 100 * MB, job)


def test_a_region_does_not_count_the_rest_of_the_chromosome() -> None:
    """Blocks at the edges of a region are computed whole, unless they are long."""
    cM, typed = np.arange(900_000) / 1e5, np.arange(0, 20_000, 50)
    assert TileSizes.of(cM, typed, 400).block_sites > 800_000
    sizes = TileSizes.of(cM, typed, 400, Interval(1_000, 19_500))
    assert sizes.block_sites == 16 * 50
    assert sizes.sites == 15 * 16 * 50  # all blocks of the first tile but the first
    assert TileSizes.of(cM, typed, 400, Interval(19_000, 40_000)).block_sites == 40_000 - 19_951


@settings(deadline=None, max_examples=50)
@given(st.integers(1, 3_000), st.integers(0, 99), st.floats(0.01, 1), st.sampled_from([100, 9_000]))
def test_sizes_of_tiles(n_sites: int, seed: int, share: float, haplotypes: int) -> None:
    rng = np.random.default_rng(seed)
    typed = np.flatnonzero(rng.random(n_sites) < share)
    typed = typed if len(typed) else np.array([n_sites // 2])
    cM = np.sort(rng.random(n_sites))
    sizes = TileSizes.of(cM, typed, haplotypes)
    edges = [0, *(typed + 1).tolist(), n_sites]
    starts = range(0, len(edges) - 1, TILE_GAPS)
    assert sizes.n_tiles == len(starts)
    assert sizes.sites == max(edges[min(i + TILE_GAPS, len(edges) - 1)] - edges[i] for i in starts)
    blocks = range(0, len(edges) - 1, BLOCK_GAPS)
    assert sizes.block_sites == max(edges[min(i + BLOCK_GAPS, len(edges) - 1)] - edges[i] for i in blocks)
    reach_cM = flank_reach(haplotypes)
    places = [add_flanks(cM[typed], Interval(i - 1, i + TILE_GAPS), reach_cM) for i in starts]
    assert sizes.places == max(high - low for low, high in places)
