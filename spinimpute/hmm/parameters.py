"""The parameters of the model of Li and Stephens and of its computation, each with its reason.

They were chosen on samples that were taken out of the real panels, and on simulated panels, never by the
targets: benchmarks/tried.md and benchmarks/phasing/README.md have the numbers.
"""

from __future__ import annotations

import numpy as np

# Mismatch: the probability that a haplotype's typed allele is not that of the haplotype which it copies, by a
# mutation since or by a wrong call.
MISMATCH = 3e-3  # of posteriors, leave-one-out, recombination scale and map tuning; 1e-2 is worse
PHASING_MISMATCH = 3e-4  # with 1e-3 there are as many switch errors
# The shipped weights were trained with this one and JUMPS_PER_CM. Trained with the estimated scale they were
# worse: where posteriors are as good as at work, the network does not learn to look for itself.
TRAINING_MISMATCH = 1e-3

# Recombination scale, in jumps per cM; it is divided by the number of haplotypes (`jump_probabilities`).
# Where none is estimated: 4 x 10,000 effective samples, a Morgan is 100 cM. For all panels 400 is better than
# 100 and 4,000.
JUMPS_PER_CM = 400.0
SCALES = tuple(100.0 * 2**i for i in range(10))  # a factor of two to either side of the best imputes as well
FIRST_SCALE = 4  # of SCALES, where the search begins: 1,600, that of one of the real panels
SCALE_QUERIES = 16  # haplotypes taken out
SCALE_SITES = 512  # around the middle of the panel
LEAST_SITES = 20  # typed sites that a scale or a map can be estimated from
MOST_HAPLOTYPES = 20_000  # that are copied when a scale or a map is estimated: a bound on time

# Map tuning. With 400 queries and one iteration half as much is gained.
TUNING_QUERIES = 1_000  # haplotypes taken out, one at a time
TUNING_ITERATIONS = 4
PRIOR_CHANGES = 1.0  # changes as the map has them, added to those that are found; 5 and 20 are worse
MOST_JUMP_PROBABILITY = 0.99  # from it on all haplotypes are left anyway, and nothing can be learned
LEAST_MAP_RATE = 0.02  # of the mean cM per base between first and last typed site: no gap is without length
LEAST_HAPLOTYPES = 4

# The map that `panel build` estimates from the panel alone (benchmarks/tried.md): between common sites, one
# of every 2,000 base pairs. With one of 4,000 a little less is gained, with more haplotypes no more.
MAP_STEP, COMMON = 2_000, 0.05
MOST_ESTIMATED_FROM = 5_000  # haplotypes
MOST_LEFT_OUT, LEAST_LEFT_OUT = 200, 10  # haplotypes that judge it, at most a fifth
JUDGED_STRETCHES, JUDGED_SITES = 8, 256  # sites of each stretch that they are compared at
# In place of exact maps of simulated panels those left out gained -.005 to .002 of their log-likelihood, in
# place of published ones .009 to .022, of a constant rate .033 and .057.
LEAST_GAIN = 0.005

# Windows of typed sites, of phasing, leave-one-out and map tuning. For phasing a single window is worse, and
# cores of 128 sites are as good in a third more time.
CORE = 256  # typed sites that a window decides on
FLANK = 128  # that it sees on either side: of what lies further away next to nothing matters

# Of larger panels a query's own candidates are the states: with 100,000 haplotypes this takes a sixth of the
# time, and is as accurate.
MOST_STATES = 8_000
# Where less of a query's probability lies on the candidates of a block, at any of its places, its likeliest
# states join them: behind a wrong call others match longer. 14 of 2,400 blocks and queries of a simulated
# panel of 42,000 haplotypes had less, and 2.5 % of all errors; 0.1 to 0.8 are as good.
LEAST_MASS = 0.5
# No candidate needs more than so many times what a state has if all are alike: where typed sites are sparse a
# query may have more states than a candidate's least probability allows for, and all would go.
LEAST_OF_ALIKE = 0.5

# Chains of sequenced samples copy all haplotypes of panels with up to so many, of larger ones the likeliest.
# Of 20,000 haplotypes these take two fifths of the time that all take, and are a little more accurate.
MOST_COPIED = 12_000
MOST_SEARCHED = 20_000  # haplotypes among which chains search the likeliest; of more, evenly chosen ones

# Computation.
SPAN = 16  # typed places that haplotypes of one pattern go through together; divides 64: it lies in one word
LANES = 16  # float32 numbers of the widest registers; as many as a span has places, see `posteriors`
ROUNDING = np.float32(1e-4)  # sums of posteriors are off by less, relatively
SMALLEST = np.float32(1e-30)  # smaller products are 0: denormal numbers are slow
