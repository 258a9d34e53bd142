"""Contents of inducing-panel files, and refusal of damaged ones."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

import spinimpute
from spinimpute.panels.opening import is_panel_file
from spinimpute.panels.panel_blocks import BlockReader, EncodedBlock
from spinimpute.panels.soft_alleles import (
    LABEL_STEPS,
    LEVEL_MARGIN,
    TOKEN_STEPS,
    pack_points,
    round_points,
    unpack_points,
)
from spinimpute.predictors.spin.predictor import SPINPredictor
from spinimpute.runtime.errors import InputError

TYPED = np.arange(7, 4_400, 45)


@pytest.fixture(scope="module")
def made(
    example_panel: spinimpute.Panel, example: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[spinimpute.InducingPanel]:
    """The inducing panel of the example, made with the shipped model."""
    path = tmp_path_factory.mktemp("inducing") / "p.spip"
    with spinimpute.build_inducing_panel(example_panel, path, example / "array.txt", 32) as panel:
        yield panel


@pytest.fixture
def small(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor, tmp_path: Path
) -> Iterator[spinimpute.InducingPanel]:
    path = tmp_path / "small.spip"
    with spinimpute.build_inducing_panel(example_panel, path, TYPED, model=random_predictor) as panel:
        yield panel


def test_contents(made: spinimpute.InducingPanel, example_panel: spinimpute.Panel, example: Path) -> None:
    assert is_panel_file(made.path)
    assert made.sites.keys() == example_panel.sites.keys()
    assert made.sites.id == example_panel.sites.id
    assert made.contig_line == example_panel.contig_line
    assert (made.chrom, made.n_samples, made.n_haplotypes) == ("20", 150, 300)
    np.testing.assert_allclose(made.cM, example_panel.cM, rtol=0, atol=1e-8)
    np.testing.assert_array_equal(made.allele_count, example_panel.allele_count)
    np.testing.assert_array_equal(made.multiallelic, example_panel.multiallelic)
    array = [int(line.split()[1]) for line in (example / "array.txt").read_text().splitlines()]
    np.testing.assert_array_equal(made.position[made.array_index], array)
    assert made.panel_checksum == example_panel.checksum != made.checksum
    assert made.inducing_points == 32
    assert made.provenance["array"] == {"file": "array.txt", "sites": 246}
    content = made.path.read_bytes()
    assert b"panel.vcf.gz" in content  # the header is not compressed
    assert made.samples == ()
    assert not any(name.encode() in content for name in example_panel.samples)
    assert 0 <= made.mass_below["2"] <= made.mass_below["5"] <= made.mass_below["10"] <= 1


def test_blocks_are_those_of_the_panel_within_a_step(
    small: spinimpute.InducingPanel, example_panel: spinimpute.Panel, random_predictor: SPINPredictor
) -> None:
    reader = BlockReader(
        example_panel, TYPED, random_predictor.shape, 0, len(TYPED), 0, example_panel.n_sites
    )
    assert small.n_blocks == len(reader.blocks)
    covered = []
    for block in reader:
        number = len(covered)
        expected, found = random_predictor.encode(block), small.read(number)
        covered.append(found.sites.panel_index_U)
        assert found.places.first == expected.places.first
        assert found.places.last == expected.places.last
        assert found.n_haplotypes == expected.n_haplotypes
        for part, names in (
            ("places", ("cM_S", "valid_S")),
            ("sites", ("gap_U", "fraction_U", "block_fraction_U")),
        ):
            for name in names:
                np.testing.assert_allclose(
                    getattr(getattr(found, part), name),
                    getattr(getattr(expected, part), name),
                    rtol=0,
                    atol=2e-5,  # genetic positions keep 1e-8 cM, gaps may be 1e-3 cM
                )
        np.testing.assert_array_equal(found.frequency_S, expected.frequency_S)
        np.testing.assert_array_equal(found.sites.frequency_U, expected.sites.frequency_U)
        stored_HDV, token_HDV = (encoded.tokens for encoded in (found, expected))
        np.testing.assert_allclose(stored_HDV.sum(-1), 1, rtol=1e-6)
        np.testing.assert_allclose(stored_HDV, token_HDV, rtol=0, atol=1.001 / TOKEN_STEPS)
        constant = (found.sites.frequency_U == 0) | (found.sites.frequency_U == 1)
        kept = ~constant
        angles = [
            np.arcsin(np.sqrt(points["label_BHU"][:, kept].clip(0, 1)))
            for points in (found.points, expected.points)
        ]
        np.testing.assert_allclose(*angles, rtol=0, atol=(0.501 + LEVEL_MARGIN) * np.pi / 2 / LABEL_STEPS)
        np.testing.assert_allclose(
            found.points["mass_BH"], expected.points["mass_BH"], rtol=1.2 * 2**-8, atol=0
        )
    np.testing.assert_array_equal(np.concatenate(covered), np.arange(example_panel.n_sites))


def with_tokens(block: EncodedBlock, token_V: list[float], k: int = 5) -> EncodedBlock:
    """The block with this token in every column of one point."""
    n_columns = -(-len(block.places.cM_S) // k)
    filled_V = np.zeros(2**k, np.float32)
    filled_V[: len(token_V)] = token_V
    points = {name: value[:1] for name, value in block.points.items()}
    return replace(block, k=k, points={**points, "feature_BHF": np.tile(filled_V, n_columns)[None]})


@pytest.mark.parametrize(
    ("token_V", "steps"),
    [
        ([1.0], [20]),
        ([0.125] * 8, [3] * 4 + [2] * 4),
        ([0.07] * 5 + [0.65], [2, 2, 1, 1, 1, 13]),
        ([0.0275] * 24 + [0.34], [1] * 13 + [0] * 11 + [7]),
        ([1 / 32] * 32, [1] * 20),
        ([0.98, 0.02], [20]),
    ],
    ids=str,
)
def test_rounded_shares_add_up_to_one(
    small: spinimpute.InducingPanel, token_V: list[float], steps: list[int]
) -> None:
    """Largest remainders are rounded up, so no K-mer gets the rounding errors of all others."""
    stored = round_points(with_tokens(small.read(3), token_V))
    expected_V = np.array(steps + [0] * (32 - len(steps))) / TOKEN_STEPS
    for token in stored.tokens[0]:
        np.testing.assert_allclose(token, expected_V, rtol=1e-6)


def test_invalid_tokens_are_refused(small: spinimpute.InducingPanel) -> None:
    block = with_tokens(small.read(3), [0.6, 0.4])
    content = pack_points(block)
    at_mask = 9 + 2  # sizes, then the mass of one point
    n_mask = -(-len(block.points["feature_BHF"][0]) // 8)

    def unpacked(changed: bytes, most: int | None = None) -> object:
        return unpack_points(changed, block.places, block.sites, slice(0, 3), most)

    def with_byte(place: int, value: int) -> bytes:
        return content[:place] + bytes([value]) + content[place + 1 :]

    assert unpacked(content)
    assert content[at_mask] == 0b11000000
    for changed, message in (
        (with_byte(4, 0), "tokens of 0 SNPs"),
        (with_byte(4, 9), "tokens of 9 SNPs"),
        (content[: at_mask + 2], "tokens are missing"),
        (with_byte(at_mask, 0b10000000), "the number of shares is not that of the K-mers"),
        (with_byte(at_mask + n_mask, 5), "do not add up to 1"),  # no K-mer is left to have the rest
        (with_byte(at_mask + n_mask + 1, 0), "do not add up to 1"),  # two are
        (with_byte(at_mask + n_mask + 1, 20), "do not add up to 1"),  # nothing is left for it
        (content[:-1] + bytes([64]), "soft alleles above 1"),
    ):
        with pytest.raises(ValueError, match=message):
            unpacked(changed)
    with pytest.raises(ValueError, match="a block of 1 inducing points"):
        unpacked(content, 0)


def test_tokens_of_another_length_are_refused(
    small: spinimpute.InducingPanel, random_predictor: SPINPredictor
) -> None:
    block = small.read(3)
    other = with_tokens(block, [1.0], k=2)
    n_places = len(block.places.cM_S)
    query_QS, known_QS = np.zeros((1, n_places), np.uint8), np.ones((1, n_places), np.uint8)
    with pytest.raises(InputError, match=r"tokens of 2 SNPs.*Make it again"):
        random_predictor.predict(other, query_QS, known_QS)


def test_part_of_a_block(small: spinimpute.InducingPanel) -> None:
    whole = small.read(3)
    sites = whole.sites.panel_index_U
    start, stop = int(sites[5]), int(sites[-8])
    part = small.read(3, start, stop)
    np.testing.assert_array_equal(part.sites.panel_index_U, np.arange(start, stop))
    np.testing.assert_array_equal(part.sites.fraction_U, whole.sites.fraction_U[5:-8])
    np.testing.assert_array_equal(part.points["label_BHU"], whole.points["label_BHU"][:, 5:-8])
    np.testing.assert_array_equal(part.points["feature_BHF"], whole.points["feature_BHF"])


@pytest.mark.parametrize("typed", [[0], [4_452], [0, 4_452], list(range(30))], ids=str)
def test_arrays_at_the_edges(
    typed: list[int], example_panel: spinimpute.Panel, random_predictor: SPINPredictor, tmp_path: Path
) -> None:
    index = np.array(typed)
    with spinimpute.build_inducing_panel(
        example_panel, tmp_path / "e.spip", index, model=random_predictor
    ) as made:
        covered = np.concatenate([made.read(b).sites.panel_index_U for b in made.blocks(0, made.n_sites)])
        np.testing.assert_array_equal(covered, np.arange(made.n_sites))
        assert made.n_blocks == len(made.blocks(0, made.n_sites))


def test_same_bytes_for_any_number_of_threads(
    example_panel: spinimpute.Panel, random_predictor: SPINPredictor, tmp_path: Path
) -> None:
    contents = set()
    for threads in (1, 2, 5):
        path = tmp_path / f"{threads}.spip"
        spinimpute.build_inducing_panel(
            example_panel, path, TYPED, model=random_predictor, threads=threads
        ).close()
        contents.add(path.read_bytes())
    assert len(contents) == 1


def test_other_files(small: spinimpute.InducingPanel, example_panel: spinimpute.Panel) -> None:
    with pytest.raises(InputError, match=r"not a spinimpute inducing panel .*build_inducing_panel"):
        spinimpute.InducingPanel.open(example_panel.path)
    with pytest.raises(
        InputError, match=r"this is an inducing panel, which has no haplotypes. Give the panel"
    ):
        spinimpute.Panel.open(small.path)


def test_an_interrupted_build_leaves_no_file(
    example_panel: spinimpute.Panel,
    random_predictor: SPINPredictor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(random_predictor, "encode", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        spinimpute.build_inducing_panel(
            example_panel, tmp_path / "p.spip", TYPED, model=random_predictor, threads=1
        )
    assert not list(tmp_path.iterdir())


def test_unusable_choices(
    small: spinimpute.InducingPanel,
    example_panel: spinimpute.Panel,
    random_predictor: SPINPredictor,
    tmp_path: Path,
) -> None:
    build = spinimpute.build_inducing_panel
    out = tmp_path / "o.spip"
    with pytest.raises(InputError, match="no inducing points"):
        build(example_panel, out, TYPED, model=spinimpute.load_predictor())
    with pytest.raises(InputError, match="already exists; use force=True"):
        build(example_panel, small.path, TYPED, model=random_predictor)
    with pytest.raises(InputError, match="threads must be at least 1"):
        build(example_panel, out, TYPED, model=random_predictor, threads=0)
    with pytest.raises(InputError, match="no site"):
        build(example_panel, out, TYPED[:0], model=random_predictor)
    for array, message in ((TYPED[::-1], "increasing"), (TYPED * 1000, "must lie"), (TYPED / 2, "integers")):
        with pytest.raises(ValueError, match=message):
            build(example_panel, out, array, model=random_predictor)
    assert not out.exists()


def test_points_of_a_model_with_other_sizes_are_refused(
    made: spinimpute.InducingPanel, random_predictor: SPINPredictor
) -> None:
    alleles = np.zeros((len(TYPED), 1), dtype=np.int8)
    with pytest.raises(InputError, match=r"Give that model with model=\.\.\., or make the file again"):
        spinimpute.impute_haplotypes(
            made, alleles, TYPED, predictor=spinimpute.PredictorSettings(model=random_predictor)
        )
    shipped = spinimpute.load_predictor(name="spin")
    assert isinstance(shipped, SPINPredictor)
    assert made.shape == spinimpute.load_predictor(name="spin", options={"inducing_points": 32}).shape  # type: ignore[attr-defined]
    assert made.shape.core == shipped.shape.core // 2


@pytest.mark.parametrize("mass", [float("nan"), float("inf"), -1.0, 0.0])
def test_invalid_masses_are_refused(small: spinimpute.InducingPanel, mass: float) -> None:
    block = small.read(3)
    block.points["mass_BH"].fill(mass)
    with pytest.raises(ValueError, match="invalid masses"):
        round_points(block)


def test_more_points_than_the_header_states(small: spinimpute.InducingPanel) -> None:
    small.inducing_points = 1
    with pytest.raises(InputError, match="damaged"):
        small.verify()
