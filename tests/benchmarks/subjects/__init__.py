"""The subjects of the benchmarks: Underpass and its peers."""

from __future__ import annotations

from tests.benchmarks.subjects.direct import NoProxy
from tests.benchmarks.subjects.kcptun import Kcptun
from tests.benchmarks.subjects.shadowsocks import Shadowsocks
from tests.benchmarks.subjects.subject import Access, Subject, Unavailable
from tests.benchmarks.subjects.underpass import SingleBox, Underpass

# Ours comes first: its first run limits the others' times. Its node also loads the BPF congestion
# controls that some of the others use.
_KINDS = {
    "underpass": lambda: Underpass("underpass", None),
    "underpass-hybla": lambda: Underpass("underpass-hybla", ["hybla_bpf"]),
    "underpass-quic": lambda: Underpass("underpass-quic", None, convergence_layer="quic"),
    "single-box": SingleBox,
    "no-proxy-cubic": lambda: NoProxy("cubic"),
    "no-proxy-bbr": lambda: NoProxy("bbr"),
    "no-proxy-hybla": lambda: NoProxy("hybla_bpf", "no-proxy-hybla"),
    "kcptun": Kcptun,
    "kcptun-fast3": lambda: Kcptun(eager=True),
    "shadowsocks": Shadowsocks,
}
NAMES = list(_KINDS)


def subject(name: str) -> Subject:
    """Make the subject of a name."""
    return _KINDS[name]()


__all__ = ["NAMES", "Access", "Subject", "Unavailable", "subject"]
