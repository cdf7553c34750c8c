"""How many wrong keys an address may give: `keys_max` different ones in `window_seconds`, then none for as long.

The same wrong key over and over counts once: a client whose key was revoked guesses nothing. While an address is
refused, so are keys that may be right: otherwise the limit would not limit guessing. Keys that were right from the same
address before go on to work, so that one client does not lock out the others that stand behind the same proxy. Memory
is bounded: the oldest addresses and keys are forgotten first.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from math import ceil

WRONG_KEYS_MAX = 20
WINDOW_SECONDS = 60.0
ADDRESSES_MAX = 10_000
PROVEN_MAX = 10_000


class FailedAttempts:
    """Times are those of a clock that never goes back, in seconds."""

    def __init__(self, keys_max: int = WRONG_KEYS_MAX, window_seconds: float = WINDOW_SECONDS) -> None:
        self._keys_max = keys_max
        self._window_seconds = window_seconds
        self._failures: OrderedDict[str, tuple[set[str], float]] = OrderedDict()
        """Of an address: the digests of wrong keys, and when the time is over in which they count."""
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()

    def seconds_to_wait(self, address: str, digest: str, now: float) -> int:
        """0: the key may be looked at."""
        network = network_of(address)
        wrong, until = self._failures.get(network, _NOTHING)
        if len(wrong) < self._keys_max or now >= until or (network, digest) in self._proven:
            return 0
        return max(1, ceil(until - now))

    def note_wrong(self, address: str, digest: str, now: float) -> None:
        network = network_of(address)
        wrong, until = self._failures.pop(network, _NOTHING)
        if now >= until:
            wrong, until = set(), now + self._window_seconds
        if digest not in wrong and len(wrong) < self._keys_max:
            wrong.add(digest)
            if len(wrong) == self._keys_max:
                until = now + self._window_seconds
        self._failures[network] = wrong, until
        if len(self._failures) > ADDRESSES_MAX:
            self._failures.popitem(last=False)

    def note_right(self, address: str, digest: str) -> None:
        known = (network_of(address), digest)
        self._proven[known] = None
        self._proven.move_to_end(known)
        if len(self._proven) > PROVEN_MAX:
            self._proven.popitem(last=False)


_NOTHING: tuple[set[str], float] = (set(), 0.0)


def network_of(address: str) -> str:
    """An IPv6 client has a network of 2^64 addresses to choose from: they count as one."""
    if ":" not in address:
        return address
    try:
        found = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped
    return str(mapped) if mapped else str(ipaddress.IPv6Network((int(found) >> 64 << 64, 64)))
