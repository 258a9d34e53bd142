"""From files to files: impute, phase, convert, check, ligate."""
