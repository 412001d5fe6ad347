"""The growth of resident memory."""

from __future__ import annotations

import sys

import pytest

from contestants.resident import ResidentGrowth

MIB = 2**20


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it reads Linux's /proc")
def test_a_peak_that_has_gone_again_is_seen() -> None:
    growth = ResidentGrowth()
    taken = bytearray(b"x") * (64 * MIB)
    del taken
    assert 60 < growth.peak_mib() < 100
