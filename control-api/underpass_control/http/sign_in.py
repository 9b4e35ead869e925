"""How often somebody may try to sign in: without I/O and clock, times in seconds."""

from __future__ import annotations

from underpass_control.http.limits import Buckets

# Failures at once, and how fast they are forgotten: of an account from one address; of an account
# from anywhere; of an address, whatever it tries.
_OF_BOTH = (1 / 30, 8)
_OF_ACCOUNT = (1 / 10, 40)
_OF_ADDRESS = (1 / 5, 30)


class SignInLimits:
    """Counts tries to sign in that have failed.

    An account that is tried from many addresses is slowed for all who are not signed in already;
    one that is tried from one address, only from there.
    """

    def __init__(self) -> None:
        self._buckets = [Buckets(*of) for of in (_OF_BOTH, _OF_ACCOUNT, _OF_ADDRESS)]

    def take(self, account: str, address: str, now_s: float) -> float:
        """Count a try.

        Returns:
            0 if it may be made; else in how many seconds it may, and nothing is counted.
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
        """Take back the count of a try that was right, or that nobody has judged."""
        for buckets, key in self._keyed(account, address):
            buckets.give_back(key, now_s)

    def _keyed(self, account: str, address: str) -> list[tuple[Buckets, object]]:
        keys: tuple[object, ...] = ((account, address), account, address)
        return list(zip(self._buckets, keys, strict=True))
