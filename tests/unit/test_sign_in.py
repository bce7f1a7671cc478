import pytest

from mauve.access.passwords import CHARACTERS_MIN, hash_of, hash_to_check, matches, password_from, password_problem
from mauve.access.sessions import IDLE_MS, LIFETIME_MS, is_expired
from mauve.access.sign_in_attempts import ACCOUNT_BURST, ADDRESS_BURST, PAIR_BURST, PasswordAttempts, client_address
from mauve.core.secret import Secret
from mauve.core.user import Session, email_from

NOW = 1_800_000_000_000


class TestPasswords:
    def test_a_hash_is_argon2id_with_the_chosen_costs_and_its_own_salt(self):
        one, two = hash_of(Secret("correct horse battery")), hash_of(Secret("correct horse battery"))
        assert one.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
        assert one != two

    def test_only_the_right_password_matches(self):
        stored = hash_of(Secret("correct horse battery"))
        assert matches(Secret("correct horse battery"), stored)
        assert not matches(Secret("correct horse batterY"), stored)
        assert not matches(Secret("correct horse battery"), "not a hash")

    def test_without_an_account_a_hash_of_the_same_cost_is_checked(self):
        assert hash_to_check(None).rpartition("$")[0].startswith("$argon2id$v=19$m=19456,t=2,p=1$")
        assert hash_to_check("$argon2id$one") == "$argon2id$one"
        assert not matches(Secret("whatever it is"), None)

    def test_one_password_in_two_unicode_forms_is_the_same(self):
        assert password_from("pa\u0308ssword one") == password_from("p\u00e4ssword one")

    @pytest.mark.parametrize(
        "text", ["", "x" * (CHARACTERS_MIN - 1), "x" * 1025, "a" * 20, "ann@example.com", "ANN@example.com"]
    )
    def test_a_bad_password_is_refused_with_a_reason(self, text):
        assert password_problem(Secret(text), "ann@example.com")

    def test_a_good_password_is_accepted(self):
        assert password_problem(Secret("correct horse"), "ann@example.com") is None


class TestAttempts:
    def test_an_address_allows_some_attempts_at_one_account_then_one_a_minute(self):
        attempts = PasswordAttempts()
        waits = [attempts.seconds_to_wait("ann", "10.0.0.1", NOW) for _ in range(PAIR_BURST + 1)]
        assert waits == [0] * PAIR_BURST + [60]
        assert attempts.seconds_to_wait("bo", "10.0.0.1", NOW) == 0
        assert attempts.seconds_to_wait("ann", "10.0.0.1", NOW + 60_000) == 0
        assert attempts.seconds_to_wait("ann", "10.0.0.1", NOW + 60_000) == 60

    def test_one_address_cannot_lock_an_account_for_others(self):
        attempts = PasswordAttempts()
        for second in range(3600):
            attempts.seconds_to_wait("ann", "2001:db8::1", NOW + second * 1000)
            attempts.seconds_to_wait("ann", f"2001:db8::{second % 100:x}", NOW + second * 1000)
        assert attempts.seconds_to_wait("ann", "10.0.0.2", NOW + 3_600_000) == 0

    def test_an_account_allows_many_more_attempts_from_many_addresses_but_not_forever(self):
        attempts = PasswordAttempts()
        waits = [attempts.seconds_to_wait("ann", f"10.0.{n // 256}.{n % 256}", NOW) for n in range(ACCOUNT_BURST + 1)]
        assert waits == [0] * ACCOUNT_BURST + [6]
        assert attempts.seconds_to_wait("bo", "10.0.0.1", NOW) == 0

    def test_an_address_has_a_limit_across_all_accounts(self):
        attempts = PasswordAttempts()
        waits = [attempts.seconds_to_wait(f"user-{number}", "10.0.0.1", NOW) for number in range(ADDRESS_BURST + 1)]
        assert waits == [0] * ADDRESS_BURST + [10]
        assert attempts.seconds_to_wait("user-x", "10.0.0.2", NOW) == 0

    def test_an_address_that_has_to_wait_does_not_use_up_the_accounts_attempts(self):
        attempts = PasswordAttempts()
        for number in range(ADDRESS_BURST):
            attempts.seconds_to_wait(f"user-{number}", "10.0.0.1", NOW)
        for _ in range(100):
            assert attempts.seconds_to_wait("ann", "10.0.0.1", NOW) > 0
        assert attempts.seconds_to_wait("ann", "10.0.0.2", NOW) == 0

    def test_addresses_in_one_ipv6_network_count_as_one(self):
        attempts = PasswordAttempts()
        for number in range(ADDRESS_BURST):
            assert attempts.seconds_to_wait(f"user-{number}", f"2001:db8:1:2::{number}", NOW) == 0
        assert attempts.seconds_to_wait("ann", "2001:db8:1:2:ffff::9", NOW) > 0
        assert attempts.seconds_to_wait("ann", "2001:db8:1:3::1", NOW) == 0

    def test_only_entries_from_our_own_proxies_are_trusted(self):
        claimed = "6.6.6.6, 1.2.3.4, 10.0.0.9"
        assert client_address("10.0.0.5", claimed, 0) == "10.0.0.5"
        assert client_address("10.0.0.5", claimed, 1) == "10.0.0.9"
        assert client_address("10.0.0.5", claimed, 2) == "1.2.3.4"
        assert client_address("10.0.0.5", "1.2.3.4", 2) == "1.2.3.4"
        assert client_address("10.0.0.5", None, 2) == "10.0.0.5"


class TestSessions:
    def a_session(self, seen_at=NOW):
        return Session("ses_1", "usr_1", "Browser/1", NOW, seen_at, NOW + LIFETIME_MS)

    def test_an_idle_session_expires(self):
        assert not is_expired(self.a_session(), NOW + IDLE_MS - 1)
        assert is_expired(self.a_session(), NOW + IDLE_MS)

    def test_a_session_expires_even_if_it_is_used(self):
        last_seen = NOW + LIFETIME_MS - 1
        assert not is_expired(self.a_session(last_seen), last_seen)
        assert is_expired(self.a_session(last_seen), NOW + LIFETIME_MS)


@pytest.mark.parametrize(("text", "stored"), [(" Ann@Example.com ", "ann@example.com"), ("a@b", "a@b")])
def test_an_email_address_is_normalized(text, stored):
    assert email_from(text) == stored


@pytest.mark.parametrize(
    "text", ["", "ann", "@example.com", "ann@", "a b@c", "a@b@c", "a\x00@b", "a\u202e@b", "x" * 255]
)
def test_an_invalid_email_address_is_refused(text):
    assert email_from(text) is None
