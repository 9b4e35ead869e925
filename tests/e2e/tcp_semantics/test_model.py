"""The model of TCP, checked on scripts with well-known outcomes."""

from __future__ import annotations

import itertools

import pytest

from tests.e2e.tcp_semantics.drawing import drawn, scripts
from tests.e2e.tcp_semantics.model import UnfitError, allowed
from tests.e2e.tcp_semantics.script import Await, End, Script, Seen, Send, SendUntilReset, Shut


def _script(client: End, origin: End) -> Script:
    return Script("test", client, origin)


def _seen(received: int, end: str, *, wrote_all: bool = True) -> Seen:
    return Seen(received, end, wrote_all)  # type: ignore[arg-type]


def test_a_half_closed_download_has_one_outcome() -> None:
    script = _script(End((Send(10), Shut())), End((Await(None), Send(1000))))
    verdict = allowed(script)
    assert verdict.exact
    assert verdict.allows(_seen(1000, "eof"), _seen(10, "eof"))
    assert not verdict.allows(_seen(999, "eof"), _seen(10, "eof"))
    assert not verdict.allows(_seen(1000, "reset"), _seen(10, "eof"))


def test_an_abort_may_destroy_what_is_on_the_way_but_not_what_was_answered() -> None:
    aborts = End((Send(10), Await(1), Send(500)), limit=1, ending="abort")
    verdict = allowed(_script(aborts, End((Await(10), Send(1)))))
    for received in (10, 200, 510):
        assert verdict.allows(_seen(1, "open"), _seen(received, "reset"))
    assert not verdict.allows(_seen(1, "open"), _seen(9, "reset"))
    assert not verdict.allows(_seen(1, "open"), _seen(510, "eof"))


def test_an_aborted_connection_may_never_come_to_the_origin() -> None:
    verdict = allowed(_script(End(limit=0, ending="abort"), End()))
    assert verdict.allows(_seen(0, "open"), _seen(0, "none"))
    assert verdict.allows(_seen(0, "open"), _seen(0, "reset"))
    closing = allowed(_script(End(limit=0), End()))
    assert closing.exact
    assert not closing.allows(_seen(0, "open"), _seen(0, "none"))


def test_a_close_with_bytes_unread_may_be_a_reset_or_an_end_that_turns_into_one() -> None:
    verdict = allowed(_script(End((), limit=0), End((Send(9),))))
    assert verdict.allows(_seen(0, "open"), _seen(0, "eof"))
    assert verdict.allows(_seen(0, "open"), _seen(0, "reset"))
    assert verdict.allows(_seen(0, "open"), _seen(0, "reset", wrote_all=False))


def test_who_sends_to_one_that_has_gone_learns_of_it() -> None:
    verdict = allowed(_script(End((SendUntilReset(),)), End(limit=0, ending="abort")))
    assert all(not wrote_all for _, wrote_all, *_ in verdict.outcomes)


def test_bytes_that_are_wrong_are_never_allowed() -> None:
    verdict = allowed(_script(End((Send(5), Shut())), End()))
    right = _seen(0, "eof")
    assert verdict.allows(right, _seen(5, "eof"))
    assert not verdict.allows(right, Seen(5, "eof", wrote_all=True, wrong="byte 3"))


@pytest.mark.parametrize(
    ("client", "origin"),
    [
        (End((Await(None),)), End((Await(None),))),
        (End((Send(10**6), Await(None))), End((Send(10**6), Await(None)), limit=0)),
    ],
    ids=["both wait for the end", "one never reads"],
)
def test_ends_that_wait_for_each_other_are_unfit(client: End, origin: End) -> None:
    with pytest.raises(UnfitError):
        allowed(_script(client, origin))


def test_a_seed_gives_the_same_script_again() -> None:
    assert str(drawn(4)) == str(drawn(4))
    assert str(drawn(4)) != str(drawn(6))


def test_many_drawn_scripts_have_one_outcome_alone() -> None:
    verdicts = [verdict for _, verdict in itertools.islice(scripts(1), 100)]
    assert sum(verdict.exact for verdict in verdicts) > 33
    # A model that allowed everything would test nothing.
    assert sum(len(verdict.outcomes) for verdict in verdicts) < 300
