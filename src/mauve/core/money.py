"""The accepted currencies: all of ISO 4217, current and withdrawn.

Withdrawn ones matter for history: a 2022 invoice in kuna is still revenue.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final

import msgspec

# ISO 4217 does not list the minor units of withdrawn currencies. Nearly all had hundredths; the ones below ended in
# whole units, or have no smaller unit at all.
_WITHDRAWN_WHOLE: Final = "adp bef byb byr esp grd itl luf mgf pte tpe trl xeu xfo xfu xre"
_WITHDRAWN_IN_HUNDREDTHS: Final = (
    "afa alk ang aok aon aor ara arp ary ats aym azm bad bec bel bgj bgk bgl bgn bop brb brc bre brn brr buk chc chw "
    "csd csj csk cuc cyp ddm dem ecs ecv eek esa esb fim frf gek ghc ghp gne gns gqe gwe gwp hrd hrk iep ilp ilr isj "
    "laj lsm ltl ltt luc lul lvl lvr maf mlf mro mtl mtp mvq mxp mze mzm nic nlg peh pei pes plz rhd rok rol rur sdd "
    "sdp sit skk sll srg std sur tjr tmm uak ugs ugw usn uss uyn uyp veb vef vnc ydd yud yum yun zal zmk zrn zrz zwc "
    "zwd zwl zwn zwr"
)


class Money(msgspec.Struct, frozen=True, gc=False):
    minor: int  # minor units, as ISO 4217 defines them
    currency: str  # ISO 4217, lowercase


def is_currency(code: str) -> bool:
    """Return whether this is an ISO 4217 code, current or withdrawn, in lowercase letters, such as `eur`."""
    return code in currency_codes()


@cache
def currency_codes() -> frozenset[str]:
    return frozenset(_digits_by_code())


def minor_digits(code: str) -> int:
    """Return the number of decimal places of an amount in minor units: 2 for `eur`, 0 for `jpy`.

    Metals and other codes without a minor unit have 0, as have unknown codes.
    """
    return _digits_by_code().get(code) or 0


@cache
def _digits_by_code() -> Mapping[str, int | None]:
    from iso4217 import Currency  # noqa: PLC0415 - it parses XML, so only processes that handle money should pay for it

    withdrawn = dict.fromkeys(_WITHDRAWN_WHOLE.split(), 0) | dict.fromkeys(_WITHDRAWN_IN_HUNDREDTHS.split(), 2)
    return withdrawn | {currency.value.lower(): currency.exponent for currency in Currency}
