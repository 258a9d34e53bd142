"""Sequenced samples from files to files: genotype likelihoods."""

import numpy as np
import pytest

from spinimpute.pipeline.merging.merge import merge_samples
from spinimpute.pipeline.sequenced.impute import impute_sequenced
from spinimpute.pipeline.sequenced.inputs import SequencingSettings
from spinimpute.pipeline.settings import OutputSettings, RegionSettings
from tests.pipeline.sequenced.outputs import correlation, phred_of_reads, read, without_header


def test_truth_is_found_between_the_records_too(world, gl, impute):
    out = impute(world, gl, suffix=".bcf")
    found = read(out)
    assert found.position == world.position
    assert found.samples == world.names
    assert out.with_name(out.name + ".csi").exists()
    missing_S = np.arange(len(world.position)) % 3 == 0
    for sites in (missing_S, ~missing_S):
        truth_SX, f_S = world.genotype_SX[sites], world.frequency[sites]
        assert correlation(found.DS[sites], truth_SX, f_S) > 0.9
        error = np.mean((found.DS[sites] - truth_SX) ** 2)
        assert error < 0.25 * np.mean((2 * f_S[:, None] - truth_SX) ** 2)


def test_formats_agree(world, gl, impute):
    found = read(impute(world, gl))
    np.testing.assert_allclose(found.GP.sum(axis=2), 1, atol=2e-4)
    assert ((found.GP >= 0) & (found.GP <= 1)).all()
    np.testing.assert_allclose(found.DS, found.GP[:, :, 1] + 2 * found.GP[:, :, 2], atol=3e-4)
    np.testing.assert_allclose(found.DS, found.HDS.sum(axis=2), atol=2e-4)
    best_SX3 = np.sort(found.GP, axis=2)
    clear_SX = best_SX3[..., 2] - best_SX3[..., 1] > 1e-3
    assert clear_SX.mean() > 0.98
    np.testing.assert_array_equal(found.GT.sum(axis=2)[clear_SX], found.GP.argmax(axis=2)[clear_SX])
    assert all(call[2] for calls in found.calls for call in calls)  # phased
    het_SX = found.GT[..., 0] != found.GT[..., 1]
    ahead_SX = found.HDS[..., 0] - found.HDS[..., 1]
    np.testing.assert_array_equal(found.GT[..., 0][het_SX & (ahead_SX > 0)], 1)
    np.testing.assert_array_equal(found.GT[..., 1][het_SX & (ahead_SX < 0)], 1)


def test_the_summary(world, gl, bams, tmp_path):
    summary = impute_sequenced(tmp_path / "o.vcf", world.panel, SequencingSettings(gl))
    assert (summary.panel_sites, summary.written_sites) == (len(world.position), len(world.position))
    assert summary.panel_haplotypes == 80
    assert summary.samples == world.names
    assert (summary.haploid, summary.coverage.reads, summary.warnings) == (0, None, [])
    assert summary.coverage.known_sites <= 2 * len(world.position) // 3
    # two of three sites, and of them those with reads: 1 - 1 / e
    np.testing.assert_allclose(summary.coverage.unknown_X, 1 - 2 / 3 * (1 - np.exp(-1)), atol=0.1)
    assert summary.lines()[0].startswith(f"target:   {6} samples")
    of_reads = impute_sequenced(tmp_path / "r.vcf", world.panel, SequencingSettings(None, bams))
    reads = of_reads.coverage.reads
    assert reads is not None
    np.testing.assert_allclose(reads.depth_X, 1, atol=0.2)
    np.testing.assert_allclose(reads.expected_no_reads_X, np.exp(-reads.depth_X))
    np.testing.assert_allclose(reads.no_reads_X, reads.expected_no_reads_X, atol=0.05)
    np.testing.assert_array_equal(reads.no_reads_X, of_reads.coverage.unknown_X)


def test_bytes_do_not_depend_on_threads_or_other_samples(world, gl, impute):
    one = impute(world, gl)
    assert without_header(one) == without_header(impute(world, gl, threads=3))
    lines = [line.split("\t") for line in gl.read_text().splitlines() if not line.startswith("##")]
    for x in (0, 4):
        rows = [(world.position.index(int(line[1])), [line[9 + x]]) for line in lines[1:]]
        alone = impute(world, world.write_vcf(gl.with_name("alone.vcf"), rows, [world.names[x]]))
        whole_columns = [line.split("\t")[9 + x] for line in without_header(one)]
        assert [line.split("\t")[9] for line in without_header(alone)] == whole_columns


@pytest.mark.parametrize("buffer_cM", [None, 0.0, 0.5, 100.0])
def test_a_region_has_exactly_its_records(world, gl, impute, buffer_cM):
    first, last = world.position[120], world.position[239]
    out = impute(world, gl, region=RegionSettings(f"20:{first}-{last}", buffer_cM))
    found, whole = read(out), read(impute(world, gl))
    assert found.position == world.position[120:240]
    limit = {None: 0.01, 0.0: 0.1, 0.5: 0.03, 100.0: 0}[buffer_cM]
    assert np.abs(found.DS - whole.DS[120:240]).mean() <= limit


def test_a_region_between_records_is_imputed_from_its_buffer(world, impute, tmp_path):
    phred_SX3 = phred_of_reads(np.random.default_rng(1), world.genotype_SX, 4.0)
    sites = [s for s in range(len(world.position)) if not 200 <= s < 210]
    path = world.write_gl(tmp_path / "gl.vcf", phred_SX3, sites)
    region = RegionSettings(f"20:{world.position[200]}-{world.position[209]}")
    found = read(impute(world, path, region=region))
    assert found.position == world.position[200:210]
    assert correlation(found.DS, world.genotype_SX[200:210], world.frequency[200:210]) > 0.8


def test_gl_and_gt_are_as_good(world, impute, tmp_path):
    """Certain calls, unphased, at every fourth site."""
    calls = {0: "0/0", 1: "0/1", 2: "1/1"}
    sites = range(0, len(world.position), 4)
    rows = [(s, [calls[g] for g in world.genotype_SX[s].tolist()]) for s in sites]
    found = read(impute(world, world.write_vcf(tmp_path / "gt.vcf", rows, form="GT")))
    assert correlation(found.DS, world.genotype_SX, world.frequency) > 0.9
    np.testing.assert_array_equal(found.GT.sum(axis=2)[::4], world.genotype_SX[::4])


@pytest.mark.parametrize("region", [None, "first 100 sites", "two regions"])
@pytest.mark.parametrize("name", ["world", "x_world"])
def test_merged_batches_are_the_file_of_one_run(request, tmp_path, name, region):
    world = request.getfixturevalue(name)
    last = len(world.position) - 1
    regions = {
        "first 100 sites": [f"{world.chrom}:{world.position[0]}-{world.position[99]}"],
        "two regions": [
            f"{world.chrom}:{world.position[first]}-{world.position[stop]}"
            for first, stop in ((0, 40), (90, last))
        ],
    }
    settings = RegionSettings(regions.get(region))
    phred_SX3 = phred_of_reads(np.random.default_rng(1), world.genotype_SX, 4.0)
    groups = {"whole": range(6), "0": range(2), "1": range(2, 6)}
    outs = {key: tmp_path / f"{key}.vcf" for key in groups}
    for key, samples in groups.items():
        names = [world.names[x] for x in samples]
        gl = world.write_gl(tmp_path / "gl.vcf", phred_SX3[:, list(samples)], range(last + 1), names)
        impute_sequenced(
            outs[key],
            world.panel,
            SequencingSettings(gl),
            region=settings,
            output=OutputSettings(mergeable=True),
        )
    merge_samples([outs["0"], outs["1"]], tmp_path / "merged.vcf", mergeable=True)
    assert (tmp_path / "merged.vcf").read_bytes() == outs["whole"].read_bytes()
