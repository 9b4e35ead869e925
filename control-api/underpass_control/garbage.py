"""Python's collector of garbage in cycles, which has the whole process wait.

It walks through all objects that it does not leave out: those of a country's map are some million,
and take a second. Hardly any need it, as objects are freed once nothing refers to them.
"""

from __future__ import annotations

import gc

# So many more objects than before, and so many collections of younger ones, make one due. Fixes
# of thousands of vehicles make as many in a second, and nearly all of them are gone in the next.
_THRESHOLDS = 20_000, 20, 20


def collect_seldom() -> None:
    """Collect once there may be something to collect, not with every few requests."""
    gc.set_threshold(*_THRESHOLDS)


def leave_out(*, collected: bool) -> None:
    """Leave out from now on what there is now, as it lasts; `collected`: without its garbage.

    What is garbage in cycles without having been collected stays until the next call that does.
    """
    if collected:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
