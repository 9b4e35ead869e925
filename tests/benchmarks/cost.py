"""What programs cost: the instructions that they execute, or else their processor time."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from tests.testbed.process import Process

Kind = Literal["instructions", "cpu"]

# The number of perf_event_open(2), which the C library does not have.
_SYSCALL = {"x86_64": 298, "aarch64": 241}
# `struct perf_event_attr` up to `bp_addr`, its first version, of 64 bytes.
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")
_HARDWARE, _INSTRUCTIONS = 0, 1
# Threads that start later are counted too. A pinned counter is never left out for a time because
# the processor has too few, which would need an estimate: reading it fails instead.
_INHERIT, _PINNED, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 2, 1 << 6
_CLOSE_ON_EXEC = 8
_COUNT = struct.Struct("=Q")


def kind() -> Kind:
    """Return what this machine can count: many virtual ones have no counter of instructions."""
    try:
        os.close(_counter(os.getpid()))
    except OSError:
        return "cpu"
    return "instructions"


def spent(kind: Kind, processes: Sequence[Process], work: Callable[[], object]) -> float:
    """Do some work; return what processes spend on it, with all threads, also in the kernel.

    That is the number of instructions, or milliseconds of processor time. Raises `OSError` if the
    instructions cannot be counted.
    """
    if kind == "cpu":
        before_s = sum(process.processor_s() for process in processes)
        work()
        return 1000 * (sum(process.processor_s() for process in processes) - before_s)
    with contextlib.ExitStack() as opened:
        counters = []
        for process in processes:
            for thread in Path(f"/proc/{process.pid}/task").iterdir():
                # It may have ended since.
                with contextlib.suppress(ProcessLookupError):
                    counters.append(_counter(int(thread.name)))
                    opened.callback(os.close, counters[-1])
        work()
        return sum(_read(counter) for counter in counters)


def _counter(thread: int) -> int:
    """Return the file of a new counter of a thread's instructions, which counts from now on."""
    if (number := _SYSCALL.get(platform.machine())) is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    flags = _INHERIT | _PINNED | _EXCLUDE_HYPERVISOR
    attributes = _ATTRIBUTES.pack(
        _HARDWARE, _ATTRIBUTES.size, _INSTRUCTIONS, 0, 0, 0, flags, 0, 0, 0
    )
    c = ctypes.CDLL(None, use_errno=True)
    any_processor = no_group = ctypes.c_int(-1)
    file: int = c.syscall(
        ctypes.c_long(number),
        attributes,
        ctypes.c_int(thread),
        any_processor,
        no_group,
        ctypes.c_ulong(_CLOSE_ON_EXEC),
    )
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return file


def _read(counter: int) -> int:
    value = os.read(counter, _COUNT.size)
    if len(value) < _COUNT.size:
        raise OSError(errno.EBUSY, "another program uses the processor's counters")
    return int(_COUNT.unpack(value)[0])
