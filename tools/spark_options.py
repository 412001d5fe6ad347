"""`python -m tools.spark_options [--check]`: write the options of docs/spark.md, or compare them.

They stand in a table between two marks; the rest of the page is written by hand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from spark_connector.client_settings import REFUSED_BY_READS, REFUSED_BY_WRITES
from spark_connector.options import OPTIONS, REFUSED, Option, Use
from tools.generated_document import write_or_compare

PATH: Final = Path("docs/spark.md")
BEGINNING: Final = "<!-- Options, written by `python -m tools.spark_options`. Do not edit. -->\n"
END: Final = "<!-- End of the options. -->\n"


def main(arguments: list[str] | None = None) -> int:
    """Run the tool; the result is the exit status."""
    return write_or_compare(arguments, "tools.spark_options", PATH, document)


def document(path: Path) -> str:
    """Return the document with the table of today."""
    head, _, rest = path.read_text(encoding="utf-8").partition(BEGINNING)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGINNING}{table()}{END}{tail}"


def table() -> str:
    """Return the table, a row for each option."""
    rows = [
        (option.name, *(_effect(option, use) for use in Use), option.meaning) for option in OPTIONS
    ]
    refused, idle = "refused", "no effect"
    rows += [(f"kafka.{key}", refused, refused, idle, why) for key, why in REFUSED_BY_READS.items()]
    rows += [(f"kafka.{key}", idle, idle, refused, why) for key, why in REFUSED_BY_WRITES.items()]
    rows += [(name, refused, refused, refused, why) for name, why in REFUSED.items()]
    rows.append(("kafka.*", *["yes"] * len(Use), "a setting of the consumer or the producer"))
    lines = ["", "| option | batch | stream | write | meaning, or why |", "| --- " * 5 + "|"]
    lines += [f"| `{name}` | {' | '.join(cells)} |" for name, *cells in rows]
    return "\n".join([*lines, "", ""])


def _effect(option: Option, use: Use) -> str:
    if use in option.uses:
        return "yes"
    return "refused" if option.is_refused_in(use) else "no effect"


if __name__ == "__main__":
    raise SystemExit(main())
