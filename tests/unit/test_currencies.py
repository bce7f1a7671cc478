import subprocess
import sys

import pytest

from mauve.core.money import is_currency, minor_digits


@pytest.mark.parametrize("code", ["eur", "usd", "jpy", "bhd", "clf", "xau", "xts"])
def test_a_current_code_in_lowercase_is_a_currency(code):
    assert is_currency(code)


@pytest.mark.parametrize(
    ("code", "digits"), [("bgn", 2), ("hrk", 2), ("ang", 2), ("dem", 2), ("itl", 0), ("byr", 0), ("zwl", 2), ("sll", 2)]
)
def test_a_withdrawn_code_is_a_currency_with_the_digits_that_it_had(code, digits):
    assert is_currency(code)
    assert minor_digits(code) == digits


@pytest.mark.parametrize(("code", "digits"), [("usn", 2), ("clf", 4), ("isk", 0), ("mga", 2), ("xau", 0)])
def test_current_codes_have_the_digits_of_the_current_list(code, digits):
    assert minor_digits(code) == digits


@pytest.mark.parametrize(
    "code", ["", "EUR", "Eur", "eu", "euro", " eur", "eur\n", "zzz", "dm", "978", "€", "none", "mro_"]
)
def test_anything_else_is_not_a_currency(code):
    assert not is_currency(code)


def test_the_list_is_read_only_when_it_is_needed():
    program = "import sys, mauve.core.money; sys.exit('iso4217' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
