"""Users who fetch contents one after the other, with the sizes of Bouttier et al."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from tests.benchmarks.bench import Bench
from tests.benchmarks.experiments.several_paths import terrestrial_of
from tests.benchmarks.records import quantile
from tests.benchmarks.subjects import Access
from tests.benchmarks.subjects.underpass import Underpass
from tests.testbed.client.http2 import Http2Connection
from tests.testbed.client.transfer import Transfer
from tests.testbed.node import PathName
from tests.testbed.profile import Profile

# In the first seconds the nodes' estimates are still empty: these contents do not count.
SETTLED_S, RUN_S = 10.0, 30.0
PATIENCE_S = 120.0
_THINK_S = 1.0
_SEGMENT_BYTES = 1448
# A content has 7 segments, and a random number more by Zipf's law.
_LEAST_SEGMENTS, _ZIPF, _MOST_SEGMENTS = 7, 1.8, 10_000
# With HTTP/2 a content's name depends on its size, as for pages, pictures and films: each name
# has contents of up to so many segments.
_NAMES = {"pages.test": 16, "pictures.test": 64, "clips.test": 512, "films.test": 10**9}

Fetch = Callable[[int], Transfer]


@dataclass(frozen=True)
class Content:
    """One download; times are s since the run's beginning."""

    size: int
    began_s: float
    took_s: float
    complete: bool


@dataclass(frozen=True)
class UsersRun:
    """The results of one run with a number of users."""

    contents: list[Content]
    # By path: IP bytes to the terminal, and their part of the path's rate.
    carried: dict[str, int]
    occupancy: dict[str, float]
    # For flows in the time that counts: the path that the hub chose, and the size it expected.
    flows: list[tuple[str, int]] = field(default_factory=list)
    last_byte_s: float | None = RUN_S

    def times(self) -> list[float]:
        """Return the times of the contents that count.

        If none began in the time that counts, these are the ones that lasted into it.
        """
        began = [each.took_s for each in self.contents if each.began_s >= SETTLED_S]
        lasted = [each.took_s for each in self.contents if each.began_s + each.took_s > SETTLED_S]
        return began or lasted

    def broken(self) -> int:
        """Return how many contents never came."""
        return sum(not each.complete for each in self.contents)


def zipf_sums() -> list[float]:
    """Return the cumulative weights of 1 to the most segments."""
    weights = (rank**-_ZIPF for rank in range(1, _MOST_SEGMENTS + 1))
    return list(itertools.accumulate(weights))


def size_of(dice: random.Random, sums: list[float]) -> int:
    """Draw the size of a content, bytes."""
    more = dice.choices(range(1, _MOST_SEGMENTS + 1), cum_weights=sums)[0]
    return _SEGMENT_BYTES * (_LEAST_SEGMENTS + more)


def name_of(size: int) -> str:
    """Return the name of the contents of a size."""
    return next(name for name, most in _NAMES.items() if size <= most * _SEGMENT_BYTES)


@contextlib.contextmanager
def by_http1(access: Access, seed: int) -> Iterator[Fetch]:
    """Fetch each content by a new connection."""
    yield lambda size: access.download(size, seed, PATIENCE_S)


@contextlib.contextmanager
def by_http2(access: Access, seed: int) -> Iterator[Fetch]:
    """Fetch contents over TLS, with a lasting connection to each name.

    A connection that breaks is replaced for the next content.
    """
    with contextlib.ExitStack() as stack:
        open_ones: dict[str, Http2Connection] = {}

        def connected(name: str) -> Http2Connection:
            plain = access.route.connect(
                access.client, access.host, access.port, timeout_s=PATIENCE_S
            )
            return stack.enter_context(Http2Connection(plain, name))

        def fetch(size: int) -> Transfer:
            name, began = name_of(size), time.monotonic()
            try:
                if name not in open_ones:
                    open_ones[name] = connected(name)
                done = open_ones[name].download(size, seed, PATIENCE_S)
            except OSError as error:
                done = Transfer(size, error=str(error))
            if not done.complete:
                open_ones.pop(name, None)
            elif done.last_byte_s is not None:
                done.last_byte_s = time.monotonic() - began
            return done

        with contextlib.suppress(OSError):
            for name in _NAMES:
                open_ones[name] = connected(name)
        yield fetch


By = Callable[[Access, int], contextlib.AbstractContextManager[Fetch]]


def run_users(
    on: Bench, users: int, by: By, subject: Underpass | None, access: Access, seed: int
) -> UsersRun:
    """Have users fetch for some time; follow which path each flow of `subject` takes."""
    hops = {"satellite": on.testbed.satlink, "terrestrial": terrestrial_of(on)}
    for hop in hops.values():
        hop.reset_statistics()
    sums, began = zipf_sums(), time.monotonic()
    contents: list[Content] = []
    noted = threading.Lock()

    def browse(number: int) -> None:
        dice = random.Random(f"{seed}-{number}")
        with by(access, seed) as fetch:
            while True:
                time.sleep(dice.expovariate(1 / _THINK_S))
                at = time.monotonic() - began
                if at >= RUN_S:
                    return
                size = size_of(dice, sums)
                done = fetch(size)
                took = PATIENCE_S if done.last_byte_s is None else done.last_byte_s
                with noted:
                    contents.append(Content(size, at, took, done.complete))

    with _followed(subject, began) as flows, ThreadPoolExecutor(users) as pool:
        list(pool.map(browse, range(users)))
        lasted = time.monotonic() - began
    terminal = on.testbed.terminal.name
    profiles = {"satellite": on.testbed.profile, "terrestrial": _terrestrial_profile(on)}
    carried, occupancy = {}, {}
    for name, hop in hops.items():
        link = hop.statistics()["terminals"][terminal]["forward"]
        carried[name] = int(link["bytes_sent"])
        rate_bps = profiles[name].forward.rate_bps
        assert rate_bps is not None
        occupancy[name] = 8 * carried[name] / (lasted * rate_bps)
    return UsersRun(contents, carried, occupancy, flows)


def sizes_by_path(flows: list[tuple[str, int]]) -> dict[str, list[int]]:
    """Return the flow sizes by the path that was chosen."""
    sizes: dict[str, list[int]] = {}
    for path, size in flows:
        sizes.setdefault(path, []).append(size)
    return sizes


def satellite_by_size(flows: list[tuple[str, int]]) -> list[tuple[float, float]]:
    """Return the part of flows that goes by satellite, in %, over their sizes in kB.

    Sizes are grouped by octaves, each shown at its median.
    """
    by_octave: dict[int, list[tuple[str, int]]] = {}
    for flow in flows:
        by_octave.setdefault(flow[1].bit_length(), []).append(flow)
    points = []
    for _, ones in sorted(by_octave.items()):
        paths = Counter(path for path, _ in ones)
        kb = quantile([size / 1000 for _, size in ones], 0.5)
        points.append((round(kb, 1), round(100 * paths["satellite"] / len(ones), 1)))
    return points


def _terrestrial_profile(on: Bench) -> Profile:
    profile = on.testbed.terrestrial_profile
    assert profile is not None
    return profile


@contextlib.contextmanager
def _followed(subject: Underpass | None, began: float) -> Iterator[list[tuple[str, int]]]:
    """Follow the hub's path decisions about answers, until the context ends."""
    flows: list[tuple[str, int]] = []
    if subject is None:
        yield flows
        return
    paths: tuple[PathName, ...] = ("satellite", "terrestrial")
    names = {subject.pair.hub_path(path): path for path in paths}
    with subject.pair.hub.api.following("/v1/decisions?for_s=3600") as lines:

        def read() -> None:
            # Closing the connection from this end may cut a line.
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
                for told in lines:
                    at = time.monotonic() - began
                    counts = told["what"] == "flow" and told["cause"] == "begins"
                    if counts and told["chosen"] in names and SETTLED_S <= at < RUN_S:
                        flows.append((names[told["chosen"]], told["size_bytes"]))

        reader = threading.Thread(target=read)
        reader.start()
        yield flows
    reader.join()
