"""The runs of the workflow are those of its benchmark, which is not installed: from the checkout."""

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
if str(REPOSITORY) not in sys.path:
    sys.path.insert(0, str(REPOSITORY))
