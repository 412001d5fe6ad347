"""How much a member says in the log while its coordinator cannot be reached."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from pykclient.network.log import REPEAT_MS
from tests.simulation.living_group import JOIN_MS, LivingGroup

TROUBLE_MS = 2 * REPEAT_MS
ALIKE_MAX = 2 * (1 + TROUBLE_MS // REPEAT_MS)
"""Of one line; who is found is said again after each time that it was said to be gone, of which
there are two reasons."""


@pytest.mark.promise("repeated failures are logged once for each reason, then now and then")
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("has_joined", [True, False])
def test_a_coordinator_out_of_reach_is_told_now_and_then(
    protocol: str, has_joined: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with LivingGroup(protocol) as scene:
        if has_joined:
            scene.run(JOIN_MS)
            assert scene.member.owned
        caplog.clear()
        caplog.set_level(logging.INFO, "pykclient")
        scene.refuse_coordinator()
        scene.run(TROUBLE_MS)
        told = Counter(record.msg for record in caplog.records)
        assert any("could not connect" in each for each in told)
        assert any("is not asked any more" in each for each in told)
        assert {each: count for each, count in told.items() if count > ALIKE_MAX} == {}
        brief = [record for record in caplog.records if "times since" in record.getMessage()]
        assert brief, "that it goes on is told, too"
