"""Networks of SPIN and its baselines, their training objective and optimisers.

Names of tensors end in their axes. A letter means the same here, in `spinimpute.neural_processes` and in
`spinimpute.tabular`:

    B  tasks of a batch
    N  datapoints of a context: rows of a table, points of a neural process
    Q  datapoints to predict: queries, targets of a neural process
    L  any sequence: of queries, of points of both kinds, of the queries of all members of an ensemble
    M  any sequence of keys
    D  attributes: columns of a table, tokens of a datapoint
    F  latent attributes
    T  tokens of a row in FT-Transformer: [CLS] and the columns
    H  inducing points
    E  width of an embedding
    U  numbers of all attributes of a datapoint, D * E; labels that a datapoint carries
    R  width to which a row is folded
    W  width of queries
    V  width of keys and values
    G  attention heads
    P  width of one head
    A  members of an ensemble
    K  outputs for one attribute: categories, or 1 for a number
    O  outputs for the label of a table: classes, or 1 for a number
    C  numbers of side information about an attribute
    I  inputs of a network of a neural process
    X  features that datapoints are compared by; input dimensions of a process
    Y  output dimensions of a process
    S  samples of a latent variable, or of a bootstrap

A digit is an axis of that length.
"""
