"""Everything that is measured, once, with tiny sizes, at a real broker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import growth
import suite
from measuring.client import CLIENTS
from measuring.measurement import grouped, read_run
from measuring.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.promise("one command measures every target beside every rival, with the verdict")
@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_suite_measures_what_every_target_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(growth, "PARTITION_COUNTS", (1, 3))
    assert suite.main(["--records", "1000", "--runs", "1", "--output", str(tmp_path)]) == 0
    assert (tmp_path / "clients.png").is_file()
    groups = grouped(read_run(tmp_path / "results.json").measurements)
    if reasons := {reason for client in CLIENTS if (reason := client.missing("latency"))}:
        pytest.skip(f"not every rival can be measured here: {'; '.join(sorted(reasons))}")
    unjudged = [target.what for target in TARGETS if target.judge(groups) is None]
    assert unjudged == []
