"""Measured figures, their targets, and the table that shows them.

A figure below its floor has regressed and fails the run. An aim is a goal, and is only shown.
"""

from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True)
class Target:
    """A measured value and its limit."""

    value: float
    direction: Direction
    limit: float
    unit: str = ""

    @property
    def is_met(self) -> bool:
        return self.value >= self.limit if self.direction is Direction.AT_LEAST else self.value <= self.limit

    def __str__(self) -> str:
        return f"{self.direction} {self.limit:,.12g} {self.unit}".rstrip()


def at_least(value: float, limit: float, unit: str = "") -> Target:
    return Target(value, Direction.AT_LEAST, limit, unit)


def at_most(value: float, limit: float, unit: str = "") -> Target:
    return Target(value, Direction.AT_MOST, limit, unit)


@dataclass(frozen=True)
class Figure:
    """One row of the report. Without a floor or an aim it is for information only."""

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
