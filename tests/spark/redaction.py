"""The pattern of Spark's redaction that docs/spark.md advises, read out of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "spark.md"
SETTING: Final = "spark.redaction.regex"


def advised_pattern() -> str:
    """Return the pattern as it stands in the page."""
    page = PAGE.read_text("utf-8")
    (found,) = re.finditer(rf"^{re.escape(SETTING)} +(\S+)$", page, re.MULTILINE)
    return found[1]
