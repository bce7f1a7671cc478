"""A measured figure, the targets it is held against, and the table that shows many.

A figure below its floor has regressed and fails the run. An aim is where the figure should go: it is only shown.
"""

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True)
class Target:
    """A measured value and its bound."""

    value: float
    direction: Direction
    bound: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.value >= self.bound if self.direction is Direction.AT_LEAST else self.value <= self.bound

    def __str__(self) -> str:
        return f"{self.direction} {self.bound:,.12g} {self.unit}".rstrip()


def at_least(value: float, bound: float, unit: str = "") -> Target:
    return Target(value, Direction.AT_LEAST, bound, unit)


def at_most(value: float, bound: float, unit: str = "") -> Target:
    return Target(value, Direction.AT_MOST, bound, unit)


@dataclass(frozen=True)
class Figure:
    """One line of the report. Without a floor and an aim it is shown for orientation."""

    name: str
    figure: str
    ratio: float | None = None
    floor: Target | None = None
    aim: Target | None = None

    @property
    def is_regression(self) -> bool:
        return self.floor is not None and not self.floor.is_met

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "figure": self.figure,
            "ratio": self.ratio,
            "floor": _as_dict(self.floor),
            "aim": _as_dict(self.aim),
        }


def render(figures: list[Figure]) -> str:
    rows = [["NAME", "FIGURE", "RATIO", "FLOOR", "HELD", "AIM", "REACHED"]]
    rows += [_row(figure) for figure in figures]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(figure: Figure) -> list[str]:
    ratio = "-" if figure.ratio is None else f"{figure.ratio:.3f}"
    return [figure.name, figure.figure, ratio, *_cells(figure.floor, "NO"), *_cells(figure.aim, "not yet")]


def _cells(target: Target | None, missed: str) -> list[str]:
    return ["-", "-"] if target is None else [str(target), "yes" if target.is_met else missed]


def _as_dict(target: Target | None) -> dict[str, object] | None:
    return None if target is None else {"target": str(target), "value": target.value, "met": target.is_met}
