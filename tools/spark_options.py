"""`python -m tools.spark_options [--check]`: write the options of docs/spark.md, or compare them.

They stand in a table between two marks; the rest of the page is written by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from spark_connector.client_settings import REFUSED_BY_READS, REFUSED_BY_WRITES
from spark_connector.options import OPTIONS, REFUSED, Use
from tools.generated_document import write_or_compare

PATH: Final = Path("docs/spark.md")
BEGINNING: Final = "<!-- Options, written by `python -m tools.spark_options`. Do not edit. -->\n"
END: Final = "<!-- End of the options. -->\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    return write_or_compare(arguments, "tools.spark_options", PATH, document)


def document(path: Path) -> str:
    """The document with the table of today."""
    head, _, rest = path.read_text(encoding="utf-8").partition(BEGINNING)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGINNING}{table()}{END}{tail}"


def table() -> str:
    """Return the table, a row for each option."""
    lines = ["", "| option | batch | stream | write | meaning |", "| --- | --- | --- | --- | --- |"]
    for option in OPTIONS:
        cells = ["yes" if use in option.uses else "-" for use in Use]
        meaning = option.meaning if option.uses else f"without effect: {option.meaning}"
        lines.append(f"| `{option.name}` | {' | '.join(cells)} | {meaning} |")
    for key, advice in REFUSED_BY_READS.items():
        lines.append(f"| `kafka.{key}` | refused | refused | - | {advice} |")
    for key, advice in REFUSED_BY_WRITES.items():
        lines.append(f"| `kafka.{key}` | - | - | refused | {advice} |")
    for name, advice in REFUSED.items():
        lines.append(f"| `{name}` | refused | refused | refused | {advice} |")
    lines.append("| `kafka.*` | yes | yes | yes | a setting of the consumer or the producer |")
    return "\n".join([*lines, "", ""])


if __name__ == "__main__":
    raise SystemExit(main())
