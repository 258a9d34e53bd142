"""Parameters of the model of Li and Stephens and of its computation, each with its reason.

They were chosen on samples left out of the real panels and on simulated panels, never on the targets. The
numbers are in benchmarks/tried.md and benchmarks/phasing/README.md.
"""

from __future__ import annotations

import numpy as np

# Mismatch: probability that a typed allele differs from that of the copied haplotype, because of a mutation
# or a wrong call.
MISMATCH = 3e-3  # posteriors, leave-one-out, recombination scale, map tuning; 1e-2 is worse
PHASING_MISMATCH = 3e-4  # 1e-3 gives as many switch errors
# The shipped weights were trained with this value and JUMPS_PER_CM. Training with the estimated scale was
# worse: where posteriors are as good as at inference, the network does not learn to compare by itself.
TRAINING_MISMATCH = 1e-3

# Recombination scale in jumps per cM; `jump_probabilities` divides it by the number of haplotypes.
# Default without an estimate: 4 x 10,000 effective samples, 100 cM per Morgan. 400 is better than 100 and
# 4,000 for all panels.
JUMPS_PER_CM = 400.0
SCALES = tuple(100.0 * 2**i for i in range(10))  # scales that differ by a factor of two impute equally well
FIRST_SCALE = 4  # index in SCALES where the search starts: 1,600, the scale of one of the real panels
SCALE_QUERIES = 16  # haplotypes left out
SCALE_SITES = 512  # around the middle of the panel
MIN_SITES = 20  # typed sites needed to estimate a scale or a map
MAX_HAPLOTYPES = 20_000  # copied haplotypes in estimates of scales and maps; limits the time

# Map tuning. 400 queries and one iteration gain half as much.
TUNING_QUERIES = 1_000  # haplotypes left out, one at a time
TUNING_ITERATIONS = 4
PRIOR_SWITCHES = 1.0  # pseudo-count of changes at the rate of the map; 5 and 20 are worse
MAX_JUMP_PROBABILITY = 0.99  # above it all haplotypes are left, and nothing can be learned
MIN_MAP_RATE = 0.02  # share of the mean cM per base between the outer typed sites that each gap has
MIN_HAPLOTYPES = 4

# The map that `panel build` estimates from the panel alone (benchmarks/tried.md) uses one common site per
# 2,000 base pairs. 4,000 base pairs gain a little less, and more haplotypes gain nothing.
MAP_STEP, COMMON = 2_000, 0.05
MAX_HAPLOTYPES_FOR_MAP = 5_000  # haplotypes
MAX_HELD_OUT, MIN_HELD_OUT = 200, 10  # haplotypes that judge the map, at most a fifth of the panel
TEST_INTERVALS, TEST_SITES = 8, 256  # intervals in which the maps are compared, and their sites
# Gain in log-likelihood of the haplotypes left out: -.005 to .002 against exact maps of simulated panels,
# .009 to .022 against published maps, .033 and .057 against a constant rate.
MIN_GAIN = 0.005

# Windows of phasing, leave-one-out and map tuning. For phasing a single window is worse, and cores of 128
# sites are as good but take a third longer.
CORE = 256  # typed sites that a window decides
FLANK = 128  # typed sites seen on either side; sites further away have next to no effect

# In larger panels the states are a query's own candidates: with 100,000 haplotypes this is as accurate and
# takes a sixth of the time.
MAX_PANEL_AS_STATES = 8_000
# A query's likeliest states join the candidates of a block if these have less posterior at any place: after a
# wrong call other haplotypes match longer. In a simulated panel of 42,000 haplotypes this happens in 14 of
# 2,400 blocks and queries, which have 2.5 % of all errors. 0.1 to 0.8 are equally good.
MIN_MASS = 0.5
# No candidate needs a posterior above this share of that of equally likely states: where typed sites are
# sparse, a query may have so many states that none would reach the usual threshold.
MAX_THRESHOLD_SHARE = 0.5

# Chains of sequenced samples copy all haplotypes of panels up to this size, and the likeliest haplotypes of
# larger panels. At 20,000 haplotypes these take two fifths of the time and are a little more accurate.
MAX_COPIED = 12_000
MAX_SEARCHED = 20_000  # haplotypes, evenly spread over the panel, among which the likeliest are searched

# Computation.
SPAN = 16  # typed places that haplotypes of one pattern share; divides 64, so that a span lies in one word
LANES = 16  # float32 numbers of the widest registers; equal to SPAN, see `posteriors`
ROUNDING = np.float32(1e-4)  # bound on the relative rounding error of sums of posteriors
SMALLEST = np.float32(1e-30)  # smaller products become 0: denormal numbers are slow
