"""How often an address may give wrong keys."""

from __future__ import annotations

import pytest

from forebay.access.failed_attempts import ADDRESSES_MAX, PROVEN_MAX, FailedAttempts, network_of


def wrong(attempts: FailedAttempts, address: str, times: int, now: float) -> None:
    for number in range(times):
        attempts.note_wrong(address, f"wrong {now} {number}", now)


def test_address_is_refused_after_so_many_wrong_keys_and_until_its_time_is_over() -> None:
    attempts = FailedAttempts(3, 60.0)
    wrong(attempts, "10.0.0.1", 2, now=100.0)
    assert attempts.seconds_to_wait("10.0.0.1", "d", 100.0) == 0
    wrong(attempts, "10.0.0.1", 1, now=130.0)
    assert attempts.seconds_to_wait("10.0.0.1", "d", 130.0) == 60
    assert attempts.seconds_to_wait("10.0.0.1", "d", 189.5) == 1
    assert attempts.seconds_to_wait("10.0.0.1", "d", 190.0) == 0
    assert attempts.seconds_to_wait("10.0.0.2", "d", 130.0) == 0


def test_wrong_keys_of_long_ago_do_not_count() -> None:
    attempts = FailedAttempts(3, 60.0)
    for minute in range(20):
        wrong(attempts, "10.0.0.1", 2, now=minute * 60.0)
        assert attempts.seconds_to_wait("10.0.0.1", "d", minute * 60.0) == 0


def test_key_that_was_right_from_there_before_goes_on_to_work() -> None:
    attempts = FailedAttempts(3, 60.0)
    attempts.note_right("10.0.0.1", "known")
    wrong(attempts, "10.0.0.1", 5, now=0.0)
    assert attempts.seconds_to_wait("10.0.0.1", "known", 1.0) == 0
    assert attempts.seconds_to_wait("10.0.0.1", "a guess", 1.0) > 0
    wrong(attempts, "10.0.0.2", 5, now=0.0)
    assert attempts.seconds_to_wait("10.0.0.2", "known", 1.0) > 0


def test_same_wrong_key_over_and_over_counts_once() -> None:
    attempts = FailedAttempts(3, 60.0)
    for second in range(50):
        attempts.note_wrong("10.0.0.1", "revoked", second)
        assert attempts.seconds_to_wait("10.0.0.1", "revoked", second) == 0
    wrong(attempts, "10.0.0.1", 2, now=50.0)
    assert attempts.seconds_to_wait("10.0.0.1", "d", 50.0) == 60


def test_memory_is_bounded() -> None:
    attempts = FailedAttempts(1, 60.0)
    addresses = [f"10.0.{number >> 8}.{number & 255}" for number in range(ADDRESSES_MAX + PROVEN_MAX)]
    for address in addresses:
        attempts.note_wrong(address, "w", 0.0)
        attempts.note_right(address, "d")
    assert (len(attempts._failures), len(attempts._proven)) == (ADDRESSES_MAX, PROVEN_MAX)
    assert attempts.seconds_to_wait(addresses[-1], "e", 0.0) > 0


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("no:address", "no:address"),
        ("", ""),
    ],
)
def test_addresses_of_one_ipv6_network_count_together(address: str, network: str) -> None:
    assert network_of(address) == network
