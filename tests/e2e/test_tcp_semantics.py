"""Both ends of a connection observe only what plain TCP allows, whatever they do."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

import pytest

from tests.e2e.leftovers import nothing_left
from tests.e2e.tcp_semantics.drawing import drawn, scripts
from tests.e2e.tcp_semantics.model import Allowed, allowed
from tests.e2e.tcp_semantics.script import Script
from tests.e2e.tcp_semantics.stage import Play, Stage
from tests.testbed import addresses
from tests.testbed.client.route import DIRECT, Route
from tests.testbed.client.transfer import download, upload
from tests.testbed.namespace import Namespace
from tests.testbed.node import Options, Pair, all_listeners
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_FAST = symmetric("fast", Link(rate_bps=50_000_000, delay_ms=50.0, queue_ms=500.0))
_FIRST_SEED = 1
_IN_A_PHASE = 75
_OVER_S = 3.0
_WITHIN_S = 45.0
_BLOCKED_S = 4.0


def _pair(testbed: Testbed, durability: str) -> Pair[Testbed]:
    custody = {"custody": {"durability": durability}}
    terminal = {"edge": all_listeners(0), **custody}
    return Pair(testbed, Options(terminal=terminal, hub=custody))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair[Testbed]]:
    with Testbed(_FAST) as testbed:
        yield _pair(testbed, "memory")


@pytest.fixture(scope="module")
def durable_pair() -> Iterator[Pair[Testbed]]:
    with Testbed(_FAST) as testbed:
        yield _pair(testbed, "disk")


@dataclass(frozen=True)
class _Case:
    script: Script
    allowed: Allowed


def _cases(first: int, count: int) -> list[_Case]:
    """Return `count` drawn scripts from `first` on, or those that the environment names."""
    named = os.environ.get("UNDERPASS_TCP_SCRIPTS")
    if named:
        chosen = [drawn(int(seed)) for seed in named.split(",")]
        return [_Case(script, allowed(script)) for script in chosen]
    drawn_ = itertools.islice(scripts(_FIRST_SEED), first, first + count)
    return [_Case(*each) for each in drawn_]


def _play(
    pair: Pair[Testbed],
    cases: Sequence[_Case],
    client: Namespace,
    routes: Sequence[Route],
) -> list[str]:
    """Play all within the same seconds; return the observations that TCP does not allow."""
    random_ = random.Random(_FIRST_SEED)
    plays = [
        Play(
            case.script,
            client,
            routes[place % len(routes)],
            after_s=random_.uniform(0, _OVER_S),
            may_vanish=any(key[2] == "none" for key in case.allowed.outcomes),
        )
        for place, case in enumerate(cases)
    ]
    with Stage(pair.testbed.origin, len(plays)) as stage:
        seen = stage.play(plays, within_s=_WITHIN_S)
    return [
        f"script {play.script}\n  by {play.route.kind}, {play.after_s:.2f} s after the first\n"
        f"  seen: client {client_saw}; origin {origin_saw}\n  TCP allows: {case.allowed}"
        for play, case, (client_saw, origin_saw) in zip(plays, cases, seen, strict=True)
        if not case.allowed.allows(client_saw, origin_saw)
    ]


def _through(pair: Pair[Testbed], cases: Sequence[_Case]) -> list[str]:
    """Play by each kind of listener in turn."""
    return _play(pair, cases, pair.client, [pair.socks5(), pair.http_connect(), DIRECT])


def _report(wrong: list[str]) -> str:
    return f"{len(wrong)} scripts:\n" + "\n".join(wrong)


def test_the_drawn_scripts_say_what_tcp_does(pair: Pair[Testbed]) -> None:
    # Plain IP over the same hop: the terminal intercepts only connections of its clients.
    cases = _cases(0, 4 * _IN_A_PHASE)
    wrong = _play(pair, cases, pair.testbed.terminal.node, [DIRECT])
    assert not wrong, _report(wrong)


@contextmanager
def _saturated(pair: Pair[Testbed]) -> Iterator[None]:
    """Keep both directions busy by other streams of the same class."""
    stop, client, route = threading.Event(), pair.client, pair.socks5()

    def up() -> bool:
        done = True
        while done and not stop.is_set():
            done = upload(client, addresses.ORIGIN, 4_000_000, route=route).complete
        return done

    with ThreadPoolExecutor(2) as pool:
        downloaded = pool.submit(download, client, addresses.ORIGIN, 10**12, route=route, stop=stop)
        uploaded = pool.submit(up)
        try:
            yield
            assert not downloaded.done()
        finally:
            stop.set()
        assert uploaded.result()


@contextmanager
def _lossy(pair: Pair[Testbed]) -> Iterator[None]:
    pair.testbed.satlink.set_loss(0.01)
    try:
        yield
    finally:
        pair.testbed.satlink.set_loss(0.0)


@contextmanager
def _blocked(pair: Pair[Testbed]) -> Iterator[None]:
    """Block while scripts begin, until most of them would have ended."""
    name = pair.testbed.terminal.name
    timer = threading.Timer(_OVER_S / 2, pair.testbed.satlink.block, [name], {"for_s": _BLOCKED_S})
    timer.start()
    try:
        yield
    finally:
        timer.join()


def _idle(_: Pair[Testbed]) -> AbstractContextManager[None]:
    return nullcontext()


_PHASES: list[Callable[[Pair[Testbed]], AbstractContextManager[None]]] = [
    _idle,
    _saturated,
    _lossy,
    _blocked,
]


@pytest.mark.parametrize("phase", range(len(_PHASES)), ids=[p.__name__[1:] for p in _PHASES])
def test_both_ends_observe_what_plain_tcp_lets_them(pair: Pair[Testbed], phase: int) -> None:
    cases = _cases(phase * _IN_A_PHASE, _IN_A_PHASE)
    with _PHASES[phase](pair):
        wrong = _through(pair, cases)
    assert not wrong, _report(wrong)
    nothing_left(pair)


def test_ends_amid_a_blockage_are_kept_on_disk_like_all_else(durable_pair: Pair[Testbed]) -> None:
    cases = _cases(len(_PHASES) * _IN_A_PHASE, _IN_A_PHASE)
    with _blocked(durable_pair):
        wrong = _through(durable_pair, cases)
    assert not wrong, _report(wrong)
    nothing_left(durable_pair)
