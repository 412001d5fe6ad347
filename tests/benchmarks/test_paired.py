"""This checkout beside another one, by CPU and by instructions."""

from __future__ import annotations

import shutil
from pathlib import Path

import paired
import pytest

from measuring import pair
from measuring.client import PURE, PYKCLIENT, THIS_CHECKOUT
from measuring.instructions import CountingError, Instructions
from measuring.measurement import Measurement, grouped, read_run


def cost(case: str, client: str, cpu_s: float) -> Measurement:
    return Measurement("paired", case, client, {pair.CPU: cpu_s})


def test_the_ratio_is_that_of_the_medians_and_of_the_smallest() -> None:
    measurements = [cost("poll", pair.BEFORE, value) for value in (0.2, 0.4, 0.8)]
    measurements += [cost("poll", pair.NOW, value) for value in (0.1, 0.3, 0.9)]
    assert list(pair.ratio_rows(measurements, pair.CPU)) == [
        ("poll", "0.400 (0.200)", "0.300 (0.100)", "0.75x", "0.50x")
    ]


def test_another_checkout_is_the_same_client_from_another_folder() -> None:
    now, before = pair.pair_of(PURE, {pair.NOW: THIS_CHECKOUT, pair.BEFORE: Path("elsewhere")})
    assert (now.name, before.name) == (PYKCLIENT.name, "before")
    assert (now.checkout, before.checkout) == (THIS_CHECKOUT, Path("elsewhere"))
    assert now.environment == before.environment == PURE.environment


@pytest.mark.parametrize(
    ("options", "reason"),
    [([], "--before"), (["--before", "."], "there is no folder pykclient in it")],
)
def test_without_another_checkout_nothing_is_measured(
    options: list[str],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        paired.main(options)
    assert reason in capsys.readouterr().err


def test_what_is_missing_for_counting_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CountingError, match="there is no valgrind here"):
        Instructions()


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.timeout(900)
def test_both_checkouts_do_every_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "run.json"
    options = ["--records", "1000", "--runs", "1", "--json", str(path)]
    assert paired.main([*options, "--before", str(THIS_CHECKOUT)]) == 0
    groups = grouped(read_run(path).measurements)
    assert {(case, client) for _, case, client in groups} == {
        (name, client) for name in paired.ROWS for client in (pair.NOW, pair.BEFORE)
    }
    assert "now / before" in capsys.readouterr().out


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="there is no valgrind here")
def test_instructions_grow_with_the_work_and_not_with_the_turns(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    options = ["--only", "send_batch", "--instructions", "--records", "100000", "--runs", "1"]
    assert paired.main([*options, "--json", str(path), "--before", str(THIS_CHECKOUT)]) == 0
    groups = grouped(read_run(path).measurements)
    now, before = (
        groups[paired.NAME, "send_batch", client][pair.INSTRUCTIONS].median
        for client in (pair.NOW, pair.BEFORE)
    )
    assert 100 < now < 10_000  # an import alone would be more
    assert now == pytest.approx(before, rel=0.05)
