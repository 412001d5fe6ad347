"""Two checkouts beside each other."""

from __future__ import annotations

from pathlib import Path

import pytest

import partitions
from measuring.client import PYKCLIENT, THIS_CHECKOUT
from measuring.measurement import Measurement, grouped, read_run

BEFORE = PYKCLIENT.of_checkout(Path("elsewhere"), "before")


def cost(case: str, client: str, cpu_s: float) -> Measurement:
    return Measurement("partitions", case, client, {"cpu_s_per_million": cpu_s})


def test_the_ratio_is_that_of_the_medians_and_of_the_smallest() -> None:
    measurements = [cost("poll", "before", value) for value in (0.2, 0.4, 0.8)]
    measurements += [cost("poll", PYKCLIENT.name, value) for value in (0.1, 0.3, 0.9)]
    assert list(partitions.ratio_rows(measurements, before=BEFORE, now=PYKCLIENT)) == [
        ("poll", "0.400 (0.200)", "0.300 (0.100)", "0.75x", "0.50x")
    ]


def test_another_checkout_is_the_same_client_from_another_folder() -> None:
    assert BEFORE.checkout == Path("elsewhere")
    assert (BEFORE.name, BEFORE.module) == ("before", PYKCLIENT.module)


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
