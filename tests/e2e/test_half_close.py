"""Connections whose directions end at different times, as with `nc -N` and many servers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.e2e.conftest import StartPair
from tests.e2e.leftovers import nothing_left
from tests.e2e.tcp_semantics.model import allowed
from tests.e2e.tcp_semantics.script import Await, End, Meet, Pause, Script, Seen, Send, Shut
from tests.e2e.tcp_semantics.stage import Play, Stage
from tests.testbed import addresses
from tests.testbed.client.route import Route
from tests.testbed.client.transfer import download, upload
from tests.testbed.node import Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_REQUEST = 100
_ENDS_AT_ONCE = 4000


def _routes(pair: Pair[Testbed]) -> list[Route]:
    return [pair.socks5(), pair.http_connect()]


def _seen(
    pair: Pair[Testbed], script: Script, *, within_s: float = 30.0
) -> list[tuple[Seen, Seen]]:
    """Play a script by each proxy; return the observations of its ends."""
    plays = [Play(script, pair.client, route) for route in _routes(pair)]
    with Stage(pair.testbed.origin, len(plays)) as stage:
        return stage.play(plays, within_s=within_s)


def _whole(count: int) -> Seen:
    return Seen(count, "eof", wrote_all=True)


def test_a_client_that_has_shut_down_its_sending_gets_all_of_a_download(
    underpass_pair: Pair[Testbed],
) -> None:
    script = Script("nc -N", End((Send(_REQUEST), Shut())), End((Await(_REQUEST), Send(1_000_000))))
    for seen in _seen(underpass_pair, script):
        assert seen == (_whole(1_000_000), _whole(_REQUEST))
    nothing_left(underpass_pair)


def test_an_origin_that_has_finished_gets_all_of_an_upload_that_goes_on(
    underpass_pair: Pair[Testbed],
) -> None:
    script = Script(
        "upload",
        End((Send(150_000), Await(None), Pause(500), Send(50_000), Shut())),
        End((Await(150_000), Send(300), Shut())),
    )
    for seen in _seen(underpass_pair, script):
        assert seen == (_whole(300), _whole(200_000))
    nothing_left(underpass_pair)


def test_a_small_half_closed_upload_is_answered_beside_a_download(
    underpass_pair: Pair[Testbed],
) -> None:
    pair, stop = underpass_pair, threading.Event()
    script = Script("upload", End((Send(2000), Shut())), End((Await(None), Send(200))))
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, 10**10, route=pair.socks5(), stop=stop
        )
        try:
            for _ in range(3):
                for seen in _seen(pair, script):
                    assert seen == (_whole(200), _whole(2000))
            assert not running.done()
        finally:
            stop.set()
    nothing_left(pair)


@pytest.mark.parametrize("beside", [0, 20_000_000], ids=["idle", "beside-an-upload"])
def test_an_origin_sees_the_orderly_end_of_a_client_that_has_all_it_wanted(
    underpass_pair: Pair[Testbed], beside: int
) -> None:
    pair = underpass_pair
    with ThreadPoolExecutor(1) as pool:
        if beside:
            running = pool.submit(
                upload, pair.client, addresses.ORIGIN, beside, route=pair.socks5()
            )
            time.sleep(0.5)
            assert not running.done()
        # The client waits for the origin's end, or goes by the announced length.
        for ops, limit, end in (
            ((Send(500_000), Shut()), None, "eof"),
            ((Send(500_000), Shut()), 500_000, "open"),
            ((Send(500_000),), 500_000, "open"),
        ):
            client = End((Send(_REQUEST),), limit=limit)
            script = Script("download", client, End((Await(_REQUEST), *ops)))
            for at_client, at_origin in _seen(pair, script):
                assert (at_client.received, at_client.end) == (500_000, end)
                assert at_origin == _whole(_REQUEST)
    nothing_left(pair)


def test_an_early_answer_comes_although_its_origin_leaves_the_upload_unread(
    underpass_pair: Pair[Testbed],
) -> None:
    # Such an origin ends with a RST soon after its answer; by then the hub has the answer.
    script = Script(
        "early answer",
        End((Send(1_000_000),)),
        # A pacing kernel would drop its unsent bytes with the connection.
        End((Await(_REQUEST), Send(5000), Pause(20)), limit=_REQUEST),
    )
    pair, routes = underpass_pair, _routes(underpass_pair)
    plays = [
        Play(script, pair.client, routes[place % 2], after_s=0.03 * place) for place in range(90)
    ]
    with Stage(pair.testbed.origin, len(plays)) as stage:
        seen = stage.play(plays, within_s=30.0)
    assert Counter((client.received, client.end) for client, _ in seen) == {(5000, "reset"): 90}
    nothing_left(pair)


def _burst() -> Sequence[Script]:
    """Return scripts that all end at one moment, each in a different way."""
    client = End((Send(200), Await(300), Meet()))
    origin = End((Await(200), Send(300), Meet()))
    closes = replace(client, limit=300), replace(origin, limit=200)
    aborts = replace(closes[0], ending="abort"), replace(closes[1], ending="abort")
    more = (Send(5000), Shut())
    return [
        Script("both close", closes[0], closes[1]),
        Script("both abort", aborts[0], aborts[1]),
        Script("the client closes", closes[0], origin),
        Script("the client aborts", aborts[0], origin),
        Script("the origin closes", client, closes[1]),
        Script("the origin aborts", client, aborts[1]),
        Script(
            "both finish",
            replace(client, ops=(*client.ops, *more)),
            replace(origin, ops=(*origin.ops, *more)),
        ),
        Script("the client closes, the origin goes on", closes[0], _going_on(origin)),
    ]


def _going_on(end: End) -> End:
    return replace(end, ops=(*end.ops, Pause(100), Send(5000), Pause(300), Send(5000)))


def test_thousands_of_ends_at_once_are_each_what_they_were(start_pair: StartPair) -> None:
    pair = start_pair()
    scripts = _burst()
    verdicts = {script.name: allowed(script) for script in scripts}
    plays = [
        Play(scripts[place % len(scripts)], pair.client, _routes(pair)[place // 8 % 2])
        for place in range(_ENDS_AT_ONCE // 2)
    ]
    with Stage(pair.testbed.origin, len(plays)) as stage:
        seen = stage.play(plays, within_s=60.0)
    wrong = [
        f"{play.script} by {play.route.kind}: client {client}; origin {origin}; "
        f"TCP allows: {verdicts[play.script.name]}"
        for play, (client, origin) in zip(plays, seen, strict=True)
        if not verdicts[play.script.name].allows(client, origin)
    ]
    assert not wrong, f"{len(wrong)} of {len(plays)}:\n" + "\n".join(wrong[:10])
    nothing_left(pair)
