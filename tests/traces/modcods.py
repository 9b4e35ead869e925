"""The modulations and codes of DVB-S2X, and what a signal-to-noise ratio leaves of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Modcod:
    """Modulation and code with its spectral efficiency, bit/symbol, and least Es/N0, dB."""

    name: str
    efficiency: float
    threshold_db: float


# Ideal Es/N0 at quasi-error-free reception of normal FECFRAMEs over AWGN: ETSI EN 302 307-1
# V1.4.1, table 13 (DVB-S2), and ETSI EN 302 307-2 V1.1.1, table 20a (DVB-S2X). Those of 64APSK
# and more are left out.
MODCODS = tuple(
    Modcod(*entry)
    for entry in (
        ("QPSK 2/9", 0.434841, -2.85),
        ("QPSK 1/4", 0.490243, -2.35),
        ("QPSK 13/45", 0.567805, -2.03),
        ("QPSK 1/3", 0.656448, -1.24),
        ("QPSK 2/5", 0.789412, -0.30),
        ("QPSK 9/20", 0.889135, 0.22),
        ("QPSK 1/2", 0.988858, 1.00),
        ("QPSK 11/20", 1.088581, 1.45),
        ("QPSK 3/5", 1.188304, 2.23),
        ("QPSK 2/3", 1.322253, 3.10),
        ("QPSK 3/4", 1.487473, 4.03),
        ("8APSK 5/9-L", 1.647211, 4.73),
        ("8APSK 26/45-L", 1.713601, 5.13),
        ("8PSK 3/5", 1.779991, 5.50),
        ("16APSK 1/2-L", 1.972253, 5.97),
        ("16APSK 8/15-L", 2.104850, 6.55),
        ("16APSK 5/9-L", 2.193247, 6.84),
        ("16APSK 3/5-L", 2.370043, 7.41),
        ("16APSK 28/45", 2.458441, 8.10),
        ("16APSK 23/36", 2.524739, 8.38),
        ("16APSK 2/3-L", 2.635236, 8.43),
        ("16APSK 25/36", 2.745734, 9.27),
        ("16APSK 13/18", 2.856231, 9.71),
        ("16APSK 3/4", 2.966728, 10.21),
        ("16APSK 7/9", 3.077225, 10.65),
        ("16APSK 4/5", 3.165623, 11.03),
        ("32APSK 2/3-L", 3.291954, 11.10),
        ("32APSK 32/45", 3.510192, 11.75),
        ("32APSK 11/15", 3.620536, 12.17),
        ("32APSK 3/4", 3.703295, 12.73),
        ("32APSK 7/9", 3.841226, 13.05),
        ("32APSK 4/5", 3.951571, 13.64),
    )
)


def best(es_n0_db: float) -> Modcod:
    """Return the most efficient one that an Es/N0 allows; the sturdiest where none is."""
    allowed = [modcod for modcod in MODCODS if modcod.threshold_db <= es_n0_db]
    return max(allowed, key=lambda modcod: modcod.efficiency, default=MODCODS[0])
