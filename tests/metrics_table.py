"""The metrics listed in docs/metrics.md, for the tests of the clients that report them."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).parents[1] / "docs" / "metrics.md"
CLIENTS = ("producer", "consumer", "admin-client")


def documented(client: str) -> set[tuple[str, str]]:
    """Return group and name of each metric that a client reports."""
    rows = re.findall(r"^\| ([\w*-]+) \| `([\w-]+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)
    assert rows
    assert len(rows) == len(set(rows))
    assert {group.split("-")[0] for group, _ in rows} == {"*", "producer", "consumer"}
    return {
        (group.replace("*", client), name)
        for group, name in rows
        if group.startswith(("*", client))
    }
