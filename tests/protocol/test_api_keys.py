"""The table of APIs says the same as the classes that it leads to."""

from __future__ import annotations

import subprocess
import sys

import pytest

from pykclient.errors.base import UnsupportedVersionError
from pykclient.protocol.api_keys import APIS, ApiKey, request_type, response_type


@pytest.mark.parametrize("key", APIS)
def test_table_and_classes_agree(key: ApiKey) -> None:
    api, request, response = APIS[key], request_type(key), response_type(key)
    assert request.response_type is response
    for message, name in ((request, api.request), (response, api.response)):
        assert message.__name__ == name
        assert message.api_key is key
        assert (message.min_version, message.max_version) == (api.min_version, api.max_version)
        assert message.flexible_from == api.flexible_from


@pytest.mark.parametrize("number", [ApiKey.LEADER_AND_ISR, 4, -1, 999])
def test_api_that_is_not_spoken_is_refused(number: int) -> None:
    with pytest.raises(UnsupportedVersionError, match=f"API {int(number)}"):
        request_type(number)
    with pytest.raises(UnsupportedVersionError, match=f"API {int(number)}"):
        response_type(number)


def test_importing_the_table_loads_no_message() -> None:
    code = (
        "import sys, pykclient.protocol.message;"
        "print([name for name in sys.modules if 'protocol.messages' in name])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
