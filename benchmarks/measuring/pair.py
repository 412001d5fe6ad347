"""A pair: this checkout beside another one, in turns, and the ratios of what they cost.

Owner: the thread that measures.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from measuring.client import PYKCLIENT, THIS_CHECKOUT
from measuring.figures import FIGURES
from measuring.measurement import grouped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping

    from measuring.client import Client
    from measuring.measurement import Measurement, Series

BEFORE, NOW = "before", PYKCLIENT.name
CPU, INSTRUCTIONS = "cpu_s_per_million", "instructions_per_record"
RATIO_HEADINGS = ("case", "before", "now", "now / before, medians", "now / before, smallest")


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the other checkout, as `before`."""
    text = "the folder of another checkout, whose core was built there"
    parser.add_argument("--before", type=Path, required=True, help=text)


def checkouts(parser: argparse.ArgumentParser, options: argparse.Namespace) -> dict[str, Path]:
    """Return the folders of the checkouts to measure by the names that they have in results."""
    if not (options.before / "pykclient").is_dir():
        parser.error(f"--before {options.before}: there is no folder pykclient in it")
    return {NOW: THIS_CHECKOUT, BEFORE: options.before.resolve()}


def pair_of(client: Client, folders: Mapping[str, Path]) -> list[Client]:
    """Return a client as each of the checkouts has it."""
    return [client.of_checkout(folder, name) for name, folder in folders.items()]


def ratio_rows(measurements: Iterable[Measurement], figure: str) -> Iterator[tuple[str, ...]]:
    """For each case what it cost before and now, and the ratios."""
    costs: dict[str, dict[str, Series]] = {}
    for (_, case, client), figures in grouped(measurements).items():
        costs.setdefault(case, {})[client] = figures[figure]
    text = FIGURES[figure].text
    for case, of_clients in costs.items():
        old, new = of_clients[BEFORE], of_clients[NOW]
        yield (
            case,
            f"{text(old.median)} ({text(old.range[0])})",
            f"{text(new.median)} ({text(new.range[0])})",
            f"{new.median / old.median:.2f}x",
            f"{new.range[0] / old.range[0]:.2f}x",
        )


def print_ratios(measurements: Iterable[Measurement], figure: str) -> None:
    """Print the table of the ratios."""
    title = f"{FIGURES[figure].heading}: medians (smallest)"
    table = Table(*RATIO_HEADINGS, title=title)
    for row in ratio_rows(measurements, figure):
        table.add_row(*row)
    Console().print(table)
