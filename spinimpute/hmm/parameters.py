"""Parameters of the model of Li and Stephens and of its computation, each with its reason.

They were chosen on samples held out of the real panels and on simulated panels, never on the targets. The
measurements are in benchmarks/tried.md and benchmarks/phasing/README.md. Terms: docs/glossary.md.
"""

from __future__ import annotations

import numpy as np

# Mismatch: probability that a typed allele differs from that of the copied haplotype, because of a mutation
# or a wrong call.
MISMATCH = 3e-3  # used for posteriors, leave-one-out, recombination scale and map tuning; 1e-2 is worse
PHASING_MISMATCH = 3e-4  # 1e-3 gives as many switch errors
# The shipped weights were trained with this value and JUMPS_PER_CM. Training with the estimated scale was
# worse: if training posteriors are as accurate as at inference, the network relies on them and does not learn
# its own comparison.
TRAINING_MISMATCH = 1e-3

# Recombination scale in jumps per cM; `jump_probabilities` divides it by the number of haplotypes.
# Default without an estimate: 4 Ne per Morgan with Ne = 10,000, divided by 100 cM. It is better than 100 and
# 4,000 for all panels.
JUMPS_PER_CM = 400.0
SCALES = tuple(100.0 * 2**i for i in range(10))  # scales that differ by a factor of two impute equally well
FIRST_SCALE = 4  # index in SCALES where the search starts: 1,600, the scale of one of the real panels
SCALE_QUERIES = 16  # held-out haplotypes used for the estimate
SCALE_SITES = 512  # typed sites in the middle of the region, used for the estimate
MIN_SITES = 20  # typed sites needed to estimate a scale or a map
MAX_HAPLOTYPES = 20_000  # copied haplotypes in estimates of scales and maps; limits the time

# Map tuning. 400 queries and one iteration gain half as much as these settings.
TUNING_QUERIES = 1_000  # haplotypes that are held out, one at a time
TUNING_ITERATIONS = 4
PRIOR_SWITCHES = 1.0  # pseudo-count of switches at the rate of the map; 5 and 20 are worse
# Above this switch probability a query leaves nearly every haplotype, so the data say nothing about the
# length of a gap. The map's length is kept.
MAX_JUMP_PROBABILITY = 0.99
# Minimum rate of a gap, as a share of the mean rate (cM per base) from the first to the last typed site.
MIN_MAP_RATE = 0.02
MIN_HAPLOTYPES = 4  # panel haplotypes needed to tune a map

# The map that `panel build` estimates from the panel alone (benchmarks/tried.md).
MAP_STEP = 2_000  # base pairs; one common site of each step is used, and steps of 4,000 gain a little less
MIN_MAP_FREQUENCY = 0.05  # minimum minor allele frequency of these sites
MAX_HAPLOTYPES_FOR_MAP = 5_000  # more haplotypes gain nothing
MAX_HELD_OUT, MIN_HELD_OUT = 200, 10  # held-out haplotypes that test the map, at most a fifth of the panel
TEST_INTERVALS, TEST_SITES = 8, 256  # number of intervals in which the maps are compared, and sites in each
# Minimum relative gain in held-out log-likelihood. Observed gains: -.005 to .002 over exact maps of simulated
# panels, .009 to .022 over published maps, .033 and .057 over a constant rate.
MIN_GAIN = 0.005

# Windows of phasing, leave-one-out and map tuning. Phasing in a single window is worse. Cores of 128 sites
# are as good as 256 but take a third longer.
CORE = 256  # typed sites whose result is taken from one window
FLANK = 128  # further typed sites read on either side; sites further away have next to no effect

# Panels of at most this many haplotypes use all of them as HMM states. Larger panels use the query's
# candidates: with 100,000 haplotypes this is as accurate and takes a sixth of the time.
MAX_PANEL_AS_STATES = 8_000
# If a block's candidates together have less than this posterior at any typed site of the block, the query's
# most likely states are added: after a wrong call, other haplotypes may have the longest matches. In a
# simulated panel of 42,000 haplotypes this happens in 14 of 2,400 query-block pairs, which hold 2.5 % of all
# errors. 0.1 to 0.8 are equally good.
MIN_POSTERIOR_SUM = 0.5
# The threshold for dropping candidates never exceeds this share of 1 / (number of states): where typed sites
# are sparse, a query may have so many states that none would reach the usual threshold.
MAX_THRESHOLD_SHARE = 0.5

# Chains of sequenced samples copy all haplotypes of panels up to this size. In larger panels they copy only
# the most likely ones: with 20,000 haplotypes this takes 40 % of the time and is slightly more accurate.
MAX_COPIED = 12_000
MAX_SEARCHED = 20_000  # haplotypes, evenly spread over the panel, among which the most likely are searched

# Computation.
# Typed sites per span. Haplotypes with equal alleles in a span are computed once. SPAN divides 64, so a span
# never crosses a 64-bit word.
SPAN = 16
LANES = 16  # float32 values per SIMD register (AVX-512); must equal SPAN, see `posteriors`
ROUNDING = np.float32(1e-4)  # bound on the relative rounding error of sums of posteriors
SMALLEST = np.float32(1e-30)  # smaller products are set to 0, because denormal numbers are slow
