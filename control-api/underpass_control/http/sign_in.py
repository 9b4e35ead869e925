"""Limits of failed sign-ins: without I/O and clock, times in seconds."""

from __future__ import annotations

from underpass_control.http.limits import Buckets

# Failures at once, and how fast they are forgotten: of an account from one address; of an account
# from all addresses; of an address with all accounts.
_OF_BOTH = (1 / 30, 8)
_OF_ACCOUNT = (1 / 10, 40)
_OF_ADDRESS = (1 / 5, 30)


class SignInLimits:
    """Counts failed attempts to sign in.

    An account that is attacked from many addresses is slowed for all that are not signed in yet;
    one that is attacked from one address, only from there.
    """

    def __init__(self) -> None:
        self._buckets = [Buckets(*of) for of in (_OF_BOTH, _OF_ACCOUNT, _OF_ADDRESS)]

    def take(self, account: str, address: str, now_s: float) -> float:
        """Count a try.

        Returns:
            0 if it may be made; otherwise the seconds until it may, and nothing is counted.
        """
        taken: list[tuple[Buckets, object]] = []
        for buckets, key in self._keyed(account, address):
            wait_s = buckets.take(key, now_s)
            if wait_s > 0:
                for before, its in taken:
                    before.give_back(its, now_s)
                return wait_s
            taken.append((buckets, key))
        return 0.0

    def take_back(self, account: str, address: str, now_s: float) -> None:
        """Take back the count of a try that succeeded, or that could not be checked."""
        for buckets, key in self._keyed(account, address):
            buckets.give_back(key, now_s)

    def _keyed(self, account: str, address: str) -> list[tuple[Buckets, object]]:
        keys: tuple[object, ...] = ((account, address), account, address)
        return list(zip(self._buckets, keys, strict=True))
