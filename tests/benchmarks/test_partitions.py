"""Two checkouts beside each other."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import partitions
from measuring.client import PYKCLIENT, THIS_CHECKOUT
from measuring.measurement import grouped, read_run

if TYPE_CHECKING:
    from pathlib import Path


def test_a_folder_without_the_package_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        partitions.main(["--before", str(tmp_path)])
    assert "there is no folder pykclient in it" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.kafka
def test_both_checkouts_read_every_topic_in_every_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "run.json"
    options = ["--records", "1000", "--runs", "1", "--counts", "1", "3", "--json", str(path)]
    assert partitions.main([*options, "--before", str(THIS_CHECKOUT)]) == 0
    groups = grouped(read_run(path).measurements)
    assert {(case, client) for _, case, client in groups} == {
        (f"{way}, partitions: {count}", client)
        for way in partitions.WAYS
        for count in (1, 3)
        for client in (PYKCLIENT.name, "before")
    }
    assert "now / before" in capsys.readouterr().out
