"""Sizes and constants of the networks of SPIN, and checks of its weights.

This module does not import torch, because imputing from inducing points on a CPU does not need torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from spinimpute.genotypes.blocks import BlockShape
from spinimpute.genotypes.kmers import MAX_SNPS
from spinimpute.nn.checks import require_count
from spinimpute.predictors.interface import check_arrays, layer_shapes

MAX_ROUNDS = 20
COLUMN_FEATURES = 8  # features of a column, from which the weights of the heads are computed
POINT_FEATURES = 3  # features of a pair of a query and a point that do not depend on the match
GATE_FEATURES = 5  # features of a site that the decoder's gate sees
CORRECTION_FEATURES = 2  # further features of a site that only the decoder's correction sees
GATE_QUERY_WIDTH, GATE_SITE_WIDTH = 32, 16

ENCODER_DECAY = 0.12  # decrease of the log weight in the encoder per column away from the middle
ALLELE_ERROR = 0.01  # error rate of an allele at an untyped site
UNTYPED_WEIGHT, RARITY_EXPONENT = 1.0, 0.4  # see `similarity.untyped_weights`
MIN_MEMBER = 0.01  # smaller assignments of a haplotype to a point are left out of `EncodedBlock.members`

DISTANCE_OFFSET = 1e-4  # cM, added to distances before taking logs
FREQUENCY_OFFSET = 1e-3  # added to the frequency of a K-mer before taking logs
MIN_KMER_PROBABILITY = 1e-9  # added to the probability of a K-mer before taking logs
ENTROPY_OFFSET = 1e-9  # added to a weight before taking logs
# allele frequencies of typed sites and of imputed sites are clipped to [minimum, 1 - minimum]
MIN_FREQUENCY, MIN_SITE_FREQUENCY = 1e-4, 1e-5
# lower limits of two features of a pair
MIN_LOG_MASS = -3.0  # log mass of the point
MIN_SCORE = -40.0  # score of the point, minus the query's best score
FREQUENCY_SHARE = 0.001  # weight of the panel's ALT frequency in the P(ALT) of a head
MIN_PROBABILITY = 1e-6  # of P(ALT); not 1e-8, because 1 - 1e-8 equals 1 in float32
LOGIT_SCALE = 0.25  # of the inputs of the correction network
MIN_TOTAL = 1e-20  # of the weights of all heads


@dataclass(frozen=True)
class SPINSettings:
    """Sizes of the model: the table [model] of a configuration. Raise ValueError for invalid sizes."""

    core: int = 8  # gaps of a block, see `BlockShape`
    flank: int = 128  # further typed sites of a block on each side
    k: int = 5  # SNPs of a K-mer
    fewest_points: int = 48  # minimum number of inducing points of a block in training
    inducing_points: int = 400  # maximum number of inducing points of a block in training
    rounds: int = 3  # rounds of the encoder
    heads: int = 8  # attention heads that sum over columns
    pair_heads: int = 8  # attention heads of the pair network
    tolerances: int = 4  # number of tolerances of runs, see `matching`
    hidden: int = 24  # width of the column network and of the pair network
    decoder_hidden: int = 32  # width of the decoder

    def __post_init__(self) -> None:
        BlockShape(self.core, self.flank)  # raises ValueError
        for name in vars(self):
            if name not in ("core", "flank"):
                require_count(name, getattr(self, name))
        if self.rounds > MAX_ROUNDS:
            raise ValueError(f"rounds must be at most {MAX_ROUNDS}, got {self.rounds}")
        if self.k > MAX_SNPS:
            raise ValueError(f"k must be at most {MAX_SNPS}, got {self.k}")

    @property
    def shape(self) -> BlockShape:
        """Shape of a block."""
        return BlockShape(self.core, self.flank)

    @property
    def pair_features(self) -> int:
        """Number of features of a pair of a query and an inducing point."""
        return 4 * self.tolerances + self.heads + POINT_FEATURES


def check_weights(weights: Mapping[str, np.ndarray], settings: SPINSettings) -> None:
    """Raise ValueError if a weight has a wrong name, shape or type, or is not finite."""
    s = settings
    heads, width = s.heads + s.pair_heads, s.decoder_hidden
    n_summaries, site_features = 2 * heads, GATE_FEATURES + CORRECTION_FEATURES
    layers = {
        "column.0": (s.hidden, COLUMN_FEATURES),
        "column.2": (1 + s.heads, s.hidden),
        "pair.0": (s.hidden, s.pair_features),
        "pair.2": (s.pair_heads, s.hidden),
        "decoder.gate_query.0": (GATE_QUERY_WIDTH, n_summaries),
        "decoder.gate_query.2": (heads, GATE_QUERY_WIDTH),
        "decoder.gate_site.0": (GATE_SITE_WIDTH, GATE_FEATURES),
        "decoder.gate_site.2": (heads, GATE_SITE_WIDTH),
        "decoder.from_heads": (width, heads + 1),
        "decoder.middle": (width, width),
        "decoder.last": (1, width),
    }
    others: dict[str, tuple[int, ...]] = {
        "decoder.from_query.weight": (width, n_summaries),
        "decoder.from_site.weight": (width, site_features),
        "confusion.log_confusion": (2**s.k, 2**s.k),
        **dict.fromkeys(("encoder.prior", "log_sharpness", "tolerance"), ()),
        **dict.fromkeys(("log_scale", "lean", "prior"), (s.heads,)),
    }
    check_arrays(weights, layer_shapes(layers) | others)


def size_feature(n_haplotypes: int) -> float:
    """Return the log of the panel's size, scaled to about -1 to 1."""
    return math.log(n_haplotypes) / 4 - 1.8
