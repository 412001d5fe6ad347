"""From Java's error codes to classes."""

from __future__ import annotations

import pytest

from pykclient.errors import base
from tools.protogen.emit_errors import class_name, emit_errors
from tools.protogen.error_texts import FATAL, KIND, RENAMED, TEXTS
from tools.protogen.jar import ErrorFacts


@pytest.mark.parametrize(
    ("code_name", "expected"),
    [
        ("NOT_LEADER_OR_FOLLOWER", "NotLeaderOrFollowerError"),
        ("UNKNOWN_SERVER_ERROR", "UnknownServerError"),
        ("INVALID_TOPIC_EXCEPTION", "InvalidTopicError"),
        ("UNSUPPORTED_VERSION", "BrokerUnsupportedVersionError"),
    ],
)
def test_class_is_named_after_its_code(code_name: str, expected: str) -> None:
    assert class_name(code_name) == expected


def test_no_class_has_the_name_of_an_error_of_our_own() -> None:
    assert not {class_name(name) for name in TEXTS} & set(base.__all__)


def test_fatal_and_renamed_codes_exist() -> None:
    assert set(TEXTS) >= FATAL | RENAMED.keys() | KIND.keys()


def test_code_without_an_explanation_is_refused() -> None:
    fact = ErrorFacts(999, "BRAND_NEW", is_retriable=True, is_metadata_stale=False)
    with pytest.raises(KeyError, match="BRAND_NEW"):
        emit_errors([fact], "")
