"""The control service: positions in, borrow/repay plans out."""

import os

# Planning is linear algebra of the size of the blockages: more threads only wait for each other.
# Read once, when numpy is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
