import subprocess
import sys

import pytest

from mauve.core.currencies import is_currency


@pytest.mark.parametrize("code", ["eur", "usd", "jpy", "bhd", "clf", "xau", "xts"])
def test_a_current_code_in_lowercase_is_a_currency(code):
    assert is_currency(code)


@pytest.mark.parametrize(
    "code", ["", "EUR", "Eur", "eu", "euro", " eur", "eur\n", "zzz", "dem", "978", "€", "none", "mro_"]
)
def test_anything_else_is_not(code):
    assert not is_currency(code)


def test_the_list_is_read_only_when_it_is_needed():
    program = "import sys, mauve.core.currencies; sys.exit('iso4217' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
