"""Python's collector of garbage in cycles, which stops the whole process while it runs.

It walks through all objects that are not excluded: those of a country's map are about a million and
take a second. Hardly any object needs it, since objects are freed once nothing refers to them.
"""

from __future__ import annotations

import gc

# A collection is due after this many new objects, or collections of younger generations. Fixes of
# thousands of vehicles make as many objects in a second, and nearly all are freed in the next.
_THRESHOLDS = 20_000, 20, 20


def collect_seldom() -> None:
    """Collect only once there may be much to collect, not after every few requests."""
    gc.set_threshold(*_THRESHOLDS)


def leave_out(*, collected: bool) -> None:
    """Exclude all present objects, since they last; `collected`: collect the garbage first.

    Without that, present garbage in cycles stays until the next call that collects.
    """
    if collected:
        gc.unfreeze()
        gc.collect()
    gc.freeze()
