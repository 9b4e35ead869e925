from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.ledger import Entry, Kind, Ledger, LedgerError, Lot, Posting, Rule, Usage, settle

_NAMES = ("A", "B", "C", "D")


def _periods() -> st.SearchStrategy[list[list[Usage]]]:
    bits = st.one_of(st.just(0), st.integers(0, 10**7))
    return st.lists(
        st.tuples(
            *(st.builds(Usage, st.just(name), bits, bits, bits, st.booleans()) for name in _NAMES)
        ).map(list),
        max_size=12,
    )


@given(_periods())
def test_balances_always_sum_to_zero(periods: list[list[Usage]]) -> None:
    ledger = Ledger()
    for second, usages in enumerate(periods):
        for entry in settle(ledger, 1000 * second, 1000 * second + 1000, usages):
            assert sum(posting.bits for posting in entry.postings) == 0
        assert sum(ledger.balances().values()) == 0


@given(_periods())
def test_the_entries_alone_make_the_ledger_again(periods: list[list[Usage]]) -> None:
    ledger, again = Ledger(), Ledger()
    for second, usages in enumerate(periods):
        for entry in settle(ledger, 1000 * second, 1000 * second + 1000, usages):
            again.apply(entry)
    assert again.lots() == ledger.lots() == Ledger(ledger.lots()).lots()


@given(_periods())
def test_settling_repays_no_more_than_is_owed_when_nothing_is_planned(
    periods: list[list[Usage]],
) -> None:
    """No terminal earns a claim beyond its plan: idle capacity is shared at once."""
    ledger = Ledger()
    ledger.apply(Entry(0, 0, Kind.SETTLED, (Posting("A", 500_000), Posting("B", -500_000))))
    for second, usages in enumerate(periods):
        as_fair = [
            Usage(usage.terminal, usage.fair_bits, usage.fair_bits, usage.sent_bits, usage.blocked)
            for usage in usages
        ]
        before = ledger.balances()
        settle(ledger, 1000 * second, 1000 * second + 1000, as_fair)
        for name, bits in ledger.balances().items():
            assert abs(bits) <= abs(before.get(name, 0))
            assert bits * before.get(name, 0) > 0


@given(st.lists(st.tuples(st.sampled_from(_NAMES), st.integers(-(10**9), 10**9)), min_size=1))
def test_every_borrow_is_matched_by_its_repayment(moves: list[tuple[str, int]]) -> None:
    """Every posting either closes older lots or opens new ones."""
    ledger = Ledger()
    for at, (name, bits) in enumerate(moves):
        before = sum(abs(balance) for balance in ledger.balances().values())
        other = "beam" if name != "beam" else "A"
        entry = Entry(at, at, Kind.SETTLED, (Posting(name, bits), Posting(other, -bits)))
        closed = sum(abs(lot.bits) for lots in ledger.apply(entry).values() for lot in lots)
        after = sum(abs(balance) for balance in ledger.balances().values())
        assert after == before + 2 * abs(bits) - 2 * closed


def test_lent_and_repaid_as_planned_leaves_nothing() -> None:
    ledger = Ledger()
    lend = [Usage("A", 2000, 3000, 3000), *(Usage(name, 2000, 1667, 1667) for name in "BC")]
    lend.append(Usage("D", 2000, 1666, 1666))
    settle(ledger, 0, 1000, lend)
    assert ledger.balances() == {"A": -1000, "B": 333, "C": 333, "D": 334}
    repay = [Usage("A", 2000, 0, 0, blocked=True)]
    repay += [
        Usage(name, 2000, 2000 + ledger.balance(name), 2000 + ledger.balance(name))
        for name in "BCD"
    ]
    # A gave its whole share, but only the amount that it owed was taken.
    settle(ledger, 1000, 2000, repay)
    assert ledger.balances() == {}


def test_a_debtor_that_never_entered_still_owes() -> None:
    ledger = Ledger()
    settle(ledger, 0, 1000, [Usage("A", 2000, 3000, 3000), Usage("B", 2000, 1000, 1000)])
    # Inside the planned blockage it was heard, and kept its guaranteed rate.
    settle(ledger, 1000, 2000, [Usage("A", 2000, 0, 1500), Usage("B", 2000, 3000, 2500)])
    assert ledger.balances() == {"A": -500, "B": 500}


def test_a_debtor_blocked_earlier_than_planned_repays_with_what_it_leaves() -> None:
    ledger = Ledger()
    settle(ledger, 0, 1000, [Usage("A", 2000, 2600, 2600), Usage("B", 2000, 1400, 1400)])
    early = [Usage("A", 2000, 2600, 0, blocked=True), Usage("B", 2000, 1400, 4000)]
    settle(ledger, 1000, 2000, early)
    assert ledger.balances() == {}


def test_an_unplanned_blockage_earns_no_claim() -> None:
    ledger = Ledger()
    usages = [Usage("A", 2000, 2000, 0, blocked=True), Usage("B", 2000, 2000, 4000)]
    assert settle(ledger, 0, 1000, usages) == []


def test_what_a_borrower_did_not_use_is_no_debt() -> None:
    ledger = Ledger()
    settle(ledger, 0, 1000, [Usage("A", 2000, 3000, 2100), Usage("B", 2000, 1000, 1900)])
    assert ledger.balances() == {"A": -100, "B": 100}


def test_a_repayment_that_the_creditor_leaves_unused_is_forgiven_by_rule() -> None:
    ledger = Ledger()
    settle(ledger, 0, 1000, [Usage("A", 2000, 3000, 3000), Usage("B", 2000, 1000, 1000)])
    offer = [Usage("A", 2000, 0, 0, blocked=True), Usage("B", 2000, 3000, 2200)]
    entries = settle(ledger, 1000, 2000, offer)
    assert [(entry.kind, entry.rule) for entry in entries] == [
        (Kind.SETTLED, None),
        (Kind.FORGIVEN, Rule.UNUSED),
    ]
    assert entries[1].postings == (Posting("A", 800), Posting("B", -800))
    assert ledger.balances() == {}


@given(
    owed=st.integers(1, 10**6),
    strays=st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8),
)
def test_a_sender_that_strays_from_its_plan_and_comes_back_has_repaid_to_the_bit(
    owed: int, strays: list[int]
) -> None:
    """Bundles are not split, so a sender is ahead of its plan or behind it by some of them."""
    ledger = Ledger({"A": [Lot(0, -owed)], "B": [Lot(0, owed)]})
    fair, before = 10**7, 0
    # The first period's plan has the debt repaid; after that each has its fair share.
    for second, stray in enumerate([*strays, 0]):
        repaid, ahead = (0 if second else owed), stray - before
        before = stray
        usages = [
            Usage("A", fair, fair - repaid, fair - repaid + ahead),
            Usage("B", fair, fair + repaid, fair + repaid - ahead),
        ]
        entries = settle(ledger, 1000 * second, 1000 * second + 1000, usages)
        assert all(entry.kind is Kind.SETTLED for entry in entries)
    assert ledger.balances() == {}


def test_idle_capacity_that_a_debtor_gets_does_not_undo_what_its_creditor_was_repaid() -> None:
    ledger = Ledger({"A": [Lot(0, -500)], "B": [Lot(0, 500)]})
    # C leaves 600 of what the plan gives it, which the others share.
    usages = [
        Usage("A", 2000, 1600, 1900),
        Usage("B", 2000, 2400, 2700),
        Usage("C", 2000, 2000, 1400),
    ]
    settle(ledger, 0, 1000, usages)
    assert ledger.balances() == {"A": -100, "B": 100}
    # At its creditor's expense, it repays nothing.
    settle(ledger, 1000, 2000, [Usage("A", 2000, 1900, 2000), Usage("B", 2000, 2100, 2000)])
    assert ledger.balances() == {"A": -100, "B": 100}


def test_what_a_debtor_leaves_repays_its_creditors_and_nobody_else() -> None:
    ledger = Ledger({"A": [Lot(0, -500)], "B": [Lot(0, 500)]})
    usages = [
        Usage("A", 2000, 2000, 1000),
        Usage("B", 2000, 2000, 2000),
        Usage("C", 2000, 2600, 2600),
        Usage("D", 2000, 1400, 1400),
    ]
    # C borrows from D alone, though A leaves as much.
    settle(ledger, 0, 1000, usages)
    assert ledger.balances() == {"A": -500, "B": 500, "C": -600, "D": 600}


@given(st.permutations(["give", "take"]), st.integers(1, 2))
def test_a_bit_that_is_taken_in_another_period_than_it_is_given_is_repaid(
    order: list[str], owed: int
) -> None:
    """A plan's rates are constant, so rounding decides in which period a bit falls."""
    ledger = Ledger({"A": [Lot(0, -owed)], "B": [Lot(0, owed)]})
    for second, which in enumerate(order):
        given, taken = (owed, 0) if which == "give" else (0, owed)
        usages = [
            Usage("A", 2000, 2000 - given, 2000 - given),
            Usage("B", 2000, 2000 + taken, 2000 + taken),
        ]
        settle(ledger, 1000 * second, 1000 * second + 1000, usages)
    assert ledger.balances() == {}


@given(_periods())
def test_what_is_settled_beyond_the_plan_only_brings_balances_nearer_to_zero(
    periods: list[list[Usage]],
) -> None:
    """Who gives less, or takes less, than its plan had it do is never credited or charged more."""
    ledger = Ledger()
    for second, usages in enumerate(periods):
        before = ledger.balances()
        settle(ledger, 1000 * second, 1000 * second + 1000, usages)
        for usage in usages:
            owed, now = before.get(usage.terminal, 0), ledger.balance(usage.terminal)
            planned = usage.fair_bits - usage.planned_bits
            # By plan it gives or takes up to this; beyond that, only debts are repaid.
            low, high = min(owed, 0, owed + planned), max(owed, 0, owed + planned)
            assert low <= now <= high


def test_who_leaves_the_beam_is_forgiven_and_its_creditors_bear_it() -> None:
    ledger = Ledger({"A": [Lot(0, -300)], "B": [Lot(0, 200)], "C": [Lot(0, 100)]})
    entry = ledger.forgive("A", Rule.LEFT, 5000)
    ledger.apply(entry)
    assert entry.rule is Rule.LEFT
    assert ledger.balances() == {}


def test_debts_expire_by_age_and_younger_ones_stay() -> None:
    ledger = Ledger({"A": [Lot(0, -300), Lot(100_000, -50)], "B": [Lot(0, 300), Lot(100_000, 50)]})
    entries = ledger.expire(50_000, 200_000)
    assert [entry.rule for entry in entries] == [Rule.EXPIRED]
    assert ledger.lots() == {"A": (Lot(100_000, -50),), "B": (Lot(100_000, 50),)}


def test_when_all_is_old_all_expires() -> None:
    ledger = Ledger({"A": [Lot(0, -300)], "B": [Lot(0, 200)], "C": [Lot(0, 100)]})
    ledger.expire(1, 200_000)
    assert ledger.lots() == {}


def test_debts_of_a_whole_fleet_expire_in_one_entry_of_a_posting_for_each() -> None:
    lots = {str(node): [Lot(0, 100)] for node in range(900)}
    lots |= {str(node): [Lot(0, -600), Lot(100_000, -300)] for node in range(900, 1_000)}
    ledger = Ledger(lots)
    entries = ledger.expire(50_000, 200_000)
    assert [len(entry.postings) for entry in entries] == [1_000]
    assert ledger.lots() == {}


@given(
    lots=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), max_size=6), data=st.data()
)
def test_what_expires_is_all_that_is_old_and_no_more_than_that_of_the_side_with_more(
    lots: list[tuple[int, int]], data: st.DataObject
) -> None:
    sums = [old + young for old, young in lots]
    debts = data.draw(st.permutations(sums))
    split = [(data.draw(st.integers(0, bits)), bits) for bits in debts]
    ledger = Ledger(
        {f"C{n}": [Lot(0, old), Lot(100_000, young)] for n, (old, young) in enumerate(lots)}
        | {
            f"D{n}": [Lot(at, -bits) for at, bits in ((0, old), (100_000, whole - old)) if bits]
            for n, (old, whole) in enumerate(split)
        }
    )
    entries = ledger.expire(50_000, 200_000)
    assert all(lot.since_ms == 100_000 for of in ledger.lots().values() for lot in of)
    forgiven = sum(one.bits for entry in entries for one in entry.postings if one.bits > 0)
    assert forgiven == max(sum(old for old, _ in lots), sum(old for old, _ in split))


def test_what_does_not_balance_is_refused() -> None:
    with pytest.raises(LedgerError, match="sum to zero"):
        Entry(0, 1, Kind.SETTLED, (Posting("A", 1),))
    with pytest.raises(LedgerError, match="twice"):
        Entry(0, 1, Kind.SETTLED, (Posting("A", 1), Posting("A", -1)))
    with pytest.raises(LedgerError, match="rule"):
        Entry(0, 1, Kind.FORGIVEN, ())
    with pytest.raises(LedgerError, match="before it begins"):
        Entry(1, 0, Kind.SETTLED, ())
    with pytest.raises(LedgerError, match="sum to zero"):
        Ledger({"A": [Lot(0, 1)]})
    with pytest.raises(LedgerError, match="both signs"):
        Ledger({"A": [Lot(0, 1), Lot(1, -1)]})
    with pytest.raises(LedgerError, match="cannot be forgiven"):
        Ledger().forgive("A", Rule.OPERATOR, 0, 1)
    with pytest.raises(LedgerError, match="twice"):
        settle(Ledger(), 0, 1, [Usage("A", 0, 0, 0)] * 2)
    with pytest.raises(LedgerError, match="below 0"):
        settle(Ledger(), 0, 1, [Usage("A", 0, 0, -1)])
