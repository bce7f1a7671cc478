"""A measured figure, and the table that shows many."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Figure:
    """One line of the report. `met` is None where there is no target: orientation only."""

    name: str
    figure: str
    ratio: float | None = None
    target: str = "-"
    met: bool | None = None

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def render(figures: list[Figure]) -> str:
    rows = [["NAME", "FIGURE", "RATIO", "TARGET", "MET"]]
    for figure in figures:
        ratio = "-" if figure.ratio is None else f"{figure.ratio:.3f}"
        met = {None: "-", True: "yes", False: "NO"}[figure.met]
        rows.append([figure.name, figure.figure, ratio, figure.target, met])
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
