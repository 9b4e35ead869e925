"""The figures, with their targets and values from other sources."""

from __future__ import annotations

from tests.benchmarks.figures.beam import BEAM
from tests.benchmarks.figures.blockages import BLOCKAGES
from tests.benchmarks.figures.data import DATA
from tests.benchmarks.figures.dtn import DTN
from tests.benchmarks.figures.hub import HUB
from tests.benchmarks.figures.lending import LENDING
from tests.benchmarks.figures.links import LINKS
from tests.benchmarks.figures.paths import PATHS
from tests.benchmarks.figures.road import ROAD

FIGURES = {
    figure.id: figure
    for volume in (DATA, BLOCKAGES, HUB, LINKS, PATHS, LENDING, BEAM, ROAD, DTN)
    for figure in volume
}
