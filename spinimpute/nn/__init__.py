"""Networks of SPIN and its baselines, their training objective and optimisers.

The name of a tensor ends in its axes: `key_BNE` has the axes B, N and E. Axis letters have the same meaning
in this package, in `spinimpute.neural_processes` and in `spinimpute.tabular`:

    B  tasks of a batch
    N  datapoints of the context (the data with visible labels): rows of a table, points of a neural process
    Q  datapoints to predict: queries, targets of a neural process
    L  any sequence: queries; context points and queries together; the queries of all ensemble members
    M  any sequence of keys
    D  attributes: columns of a table, tokens of a datapoint
    F  latent attributes
    T  tokens of a row in FT-Transformer: [CLS] and the columns
    H  inducing points
    E  width of an embedding
    U  all embedded attributes of a datapoint, D * E numbers; or the labels of a datapoint
    R  width of the vector to which a row is projected
    W  width of queries
    V  width of keys and values
    G  attention heads
    P  width of one head
    A  members of an ensemble
    K  outputs for one attribute: categories, or 1 for a number
    O  outputs for the label of a table: classes, or 1 for a number
    C  numbers that describe an attribute (side information)
    I  inputs of a network of a neural process
    X  features by which datapoints are compared; input dimensions of a process
    Y  output dimensions of a process
    S  samples of a latent variable, or of a bootstrap

A digit is an axis of that length: `square_B1H` has a second axis of length 1.

This file does not import torch, because compiled code uses its constants without torch.
"""

NO_POINT = -1e30  # logit of padding, below the logits of all inducing points
SMALLEST_MASS = 1e-30  # avoids division by 0 for a point without datapoints
MASS_OFFSET = 0.1  # in log(mass + offset): a point without datapoints keeps a finite prior
