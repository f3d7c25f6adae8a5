"""A result in the terminal: sentences, tables, and plots by plotext."""

from __future__ import annotations

from collections.abc import Iterator

from kvscope.amounts import amount
from kvscope.result.result import Cell, Plot, Result, Table

LINE = "braille"
MARKERS = (LINE, "●", "+", "x", "o")
HEIGHT = 15


def render(result: Result, width: int = 80, colour: bool = False) -> str:
    """Return the whole result as text of ``width`` columns."""
    lines = [result.title, *(f"  {key}: {value}" for key, value in sorted(result.tags.items())), ""]
    for table in result.tables:
        lines += [*table_lines(table), ""]
    for plot in result.plots:
        lines += [plot_text(plot, width, colour), ""]
    lines += [f"! {warning}" for warning in result.warns]
    lines += list(result.says)
    return "\n".join(lines).rstrip()


def cell_text(cell: Cell, unit: str) -> str:
    """Return one cell as it is read: numbers in their unit, a dash for what was not measured."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    return amount(cell, unit) if unit or isinstance(cell, float) else str(cell)


def table_lines(table: Table) -> Iterator[str]:
    """Return heading, columns and rows; numbers stand right, words left."""
    cells = [[cell_text(cell, unit) for cell, unit in zip(row, table.units, strict=True)] for row in table.rows]
    words = [all(isinstance(row[i], str) for row in table.rows) for i in range(len(table.columns))]
    widths = [max([len(column), *(len(row[i]) for row in cells)]) for i, column in enumerate(table.columns)]
    yield table.title
    for row in [list(table.columns), *cells]:
        padded = (f"{text:<{w}}" if left else f"{text:>{w}}" for text, w, left in zip(row, widths, words, strict=True))
        yield ("  " + "  ".join(padded)).rstrip()


def plot_text(plot: Plot, width: int, colour: bool) -> str:
    """Return a plot drawn with characters, its legend below it."""
    try:
        import plotext
    except ModuleNotFoundError:
        return f"{plot.title}: not drawn here (pip install plotext); -o FILE.html draws it without"
    factor, unit = _drawn_in(plot)
    figure = plotext.figure
    figure.clear()
    figure.theme("default" if colour else "colorless")
    figure.plot_size(min(width, 100), HEIGHT)
    xs = sorted({x for series in plot.series for x in series.xs})
    place = {x: float(index) for index, x in enumerate(xs)} if plot.even else {x: x for x in xs}
    legend = []
    for series, marker in zip(plot.series, MARKERS * 3, strict=False):
        points = [(place[x], y * factor) for x, y in zip(series.xs, series.ys, strict=True) if y is not None]
        if points:
            signal = figure.signal([x for x, _ in points], [y for _, y in points], marker=marker)
            figure.draw(signal.lines(marker == LINE))
            legend.append(f"{'─' if marker == LINE else marker} {series.name}")
    if plot.even:
        figure.ruler("x").ticks([place[x] for x in xs], [f"{x:g}" for x in xs])
    figure.title(f"{plot.title} ({unit})" if unit else plot.title)
    figure.label(plot.x, axis="x")
    text = str(figure.build().string(colorless=not colour))
    figure.clear()
    return f"{text.rstrip()}\n  {'   '.join(legend)}"


def _drawn_in(plot: Plot) -> tuple[float, str]:
    """Return factor and unit: shares in per cent, times in milliseconds while they are short."""
    if plot.unit == "ratio":
        return 100.0, "%"
    highest = max((y for series in plot.series for y in series.ys if y is not None), default=0.0)
    return (1e3, "ms") if plot.unit == "s" and highest < 1 else (1.0, plot.unit)
