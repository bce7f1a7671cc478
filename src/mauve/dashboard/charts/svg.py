"""Compute the SVG coordinates of charts. Templates draw them without inline styles."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

WIDTH: Final = 1000
HEIGHT: Final = 200
SPARK_WIDTH: Final = 120
SPARK_HEIGHT: Final = 32
_SPARK_MARGIN: Final = 2
_TICKS: Final = 4  # steps between zero and the top
_NICE_STEPS: Final = (Fraction(1), Fraction(2), Fraction(5, 2), Fraction(5), Fraction(10))


@dataclass(frozen=True, slots=True)
class Plot:
    """A chart's coordinates: this period as a line over an area, the previous period as a second line."""

    line: str
    area: str
    before: str
    ticks: tuple[int, ...]  # values of the horizontal grid lines, from the top down


def plot(numbers: Sequence[int], before: Sequence[int]) -> Plot:
    top = axis_max(max((*numbers, *before), default=0))
    line = _points(numbers, top, WIDTH, HEIGHT)
    return Plot(
        line=line,
        area=f"{line} {WIDTH},{HEIGHT} 0,{HEIGHT}" if line else "",
        before=_points(before, top, WIDTH, HEIGHT) if any(before) else "",  # A line of zeros says nothing.
        ticks=tuple(top * step // _TICKS for step in range(_TICKS, -1, -1)),
    )


def spark(numbers: Sequence[int]) -> str:
    """Return the points of a sparkline, scaled from zero to the highest number, with a margin for the stroke."""
    top = max((*numbers, 1))
    return _points(numbers, top, SPARK_WIDTH, SPARK_HEIGHT - 2 * _SPARK_MARGIN, _SPARK_MARGIN)


def axis_max(highest: int) -> int:
    """Return a round number at or above the highest that divides into whole steps."""
    if highest <= _TICKS:
        return _TICKS
    step = Fraction(highest, _TICKS)
    power = Fraction(10) ** (len(str(int(step))) - 1)
    nice = next(factor * power for factor in _NICE_STEPS if factor * power >= step)
    return -(-nice.numerator // nice.denominator) * _TICKS


def _points(numbers: Sequence[int], top: int, width: int, height: int, margin: int = 0) -> str:
    """Return `x,y x,y …`; a single number becomes a horizontal line."""
    drawn = list(numbers) * 2 if len(numbers) == 1 else list(numbers)
    last = len(drawn) - 1
    return " ".join(
        f"{_rounded(index * width, last)},{_rounded((top - number) * height, top, margin)}"
        for index, number in enumerate(drawn)
    )


def _rounded(numerator: int, denominator: int, offset: int = 0) -> str:
    """Return a quotient with at most one decimal. Amounts of money may be too large for a float."""
    tenths = (2 * 10 * numerator + denominator) // (2 * denominator) + 10 * offset
    whole, rest = divmod(tenths, 10)
    return f"{whole}.{rest}" if rest else str(whole)
