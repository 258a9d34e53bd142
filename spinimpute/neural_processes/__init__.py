"""Neural processes: networks that predict a function from a few of its points (the context).

They are trained on many functions of the same kind. The prediction at each further position (a target) is a
probability distribution.
"""
