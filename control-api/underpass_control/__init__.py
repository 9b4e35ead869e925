"""The control service: positions in, borrow/repay plans out."""

import os

# The matrices of planning are small: more threads would only wait for each other. numpy reads this
# once, when it is loaded.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
