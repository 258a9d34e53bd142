"""Neural processes: distributions over functions that are conditioned on any number of points."""
