"""The public names are complete, documented, typed and light to import."""

from __future__ import annotations

import ast
import builtins
import collections.abc
import importlib
import inspect
import re
import rlcompleter
import subprocess
import sys
import typing
from typing import TYPE_CHECKING

import pytest

import pykclient
import pykclient.testing
from pykclient import errors
from pykclient.config.other_clients import other_clients
from pykclient.errors import base, broker
from pykclient.network.foreign_names import METHODS
from pykclient.network.live_client import _Elsewhere, explain_keywords
from tools.peer_settings import peers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

PUBLIC_MODULES = ("pykclient", "pykclient.errors", "pykclient.serialization", "pykclient.testing")
CLIENT_NAMES = {
    *("Admin", "Consumer", "Producer", "errors", "__version__"),
    *("ConsumerRecord", "ConsumerRecords", "Delivery", "ProducerRecord"),
    *("RecordMetadata", "RecordMetadataRange", "ConsumerInterceptor", "ProducerInterceptor"),
    *("Assignment", "Assignor", "GroupMember", "RebalanceProtocol", "TopicRacks"),
    *("PartitionReplicas", "TopicReplicas"),
    *("GroupMetadata", "Rebalance", "RebalanceListener"),
    *("GroupDescription", "GroupListing", "MemberDescription"),
    *("AlterConfigOp", "AlterConfigOpType", "ConfigEntry", "ConfigResource", "ConfigResourceType"),
    *("ConfigSource", "ConfigSynonym", "ConfigType"),
    *("ExactlyOnce", "ExactlyOnceBatch"),
    *("AbortTransactionSpec", "PreparedTransaction", "ProducerState"),
    *("TransactionDescription", "TransactionListing"),
    *("CreatedTopic", "NewPartitions", "NewTopic", "TopicDescription", "TopicListing"),
    *("Node", "PartitionInfo", "TopicPartition", "OffsetAndMetadata", "OffsetAndTimestamp"),
    *("MetricName", "TimestampType"),
    *("OAuthToken", "SaslMechanism", "register_sasl_mechanism"),
    *("AdminSettings", "ConsumerSettings", "ProducerSettings", "from_properties"),
}
# What a user may not have, or what would make the import slow.
OPTIONAL_MODULES = {
    "asyncio",
    "confluent_kafka",
    "cramjam",
    "crc32c",
    "docker",
    "lz4",
    "numpy",
    "pyarrow",
    "pyspark",
    "pytest",
    "rich",
    "ssl",
    "zstandard",
}


def public_functions() -> Iterator[tuple[str, object]]:
    """Every function, method and property that a user reaches through an exported name."""
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        for name in module.__all__:
            exported = getattr(module, name)
            if inspect.isfunction(exported):
                yield f"{module_name}.{name}", exported
            if not inspect.isclass(exported):
                continue
            for member_name, member in inspect.getmembers(exported):
                if isinstance(member, _Elsewhere):
                    continue
                is_ours = str(getattr(member, "__module__", "")).startswith("pykclient")
                is_callable = inspect.isroutine(member) and is_ours
                if not member_name.startswith("_") and (
                    is_callable or isinstance(member, property)
                ):
                    yield f"{module_name}.{name}.{member_name}", member


def annotations_of(function: object) -> dict[str, object]:
    target = function.fget if isinstance(function, property) else function
    return dict(getattr(target, "__annotations__", {}))


def test_the_clients_and_what_they_take_are_exported() -> None:
    assert set(pykclient.__all__) == CLIENT_NAMES


def test_what_the_package_offers_is_listed_and_nothing_else_is_found() -> None:
    assert set(pykclient.__all__) <= set(dir(pykclient))
    with pytest.raises(AttributeError, match="no attribute 'Producers'"):
        pykclient.Producers  # type: ignore[attr-defined] # noqa: B018


@pytest.mark.promise("names and methods of other clients raise errors that name the replacement")
@pytest.mark.parametrize(
    ("name", "instead"),
    [("KafkaConsumer", "Consumer"), ("AdminClient", "Admin"), ("KafkaError", "errors.KafkaError")],
)
def test_a_name_of_another_client_is_an_error_with_the_one_here(name: str, instead: str) -> None:
    reason = rf"pykclient has no {name}; use pykclient\.{instead}"
    with pytest.raises(ImportError, match=reason):
        exec(f"from pykclient import {name}")
    assert name not in dir(pykclient)


@pytest.mark.promise("names and methods of other clients raise errors that name the replacement")
@pytest.mark.parametrize("kind", [pykclient.Producer, pykclient.Consumer, pykclient.Admin])
def test_a_method_of_another_client_is_an_error_with_the_one_here(kind: type) -> None:
    with kind(bootstrap_servers="localhost:1") as client:
        for name, instead in other_clients().methods[kind.__name__].items():
            reason = re.escape(f"{kind.__name__} has no {name}(): {instead}")
            for owner in (client, kind):
                with pytest.raises(AttributeError, match=f"^{reason}$"):
                    getattr(owner, name)
            assert name not in dir(client)
            assert name not in dir(kind)
            for called in re.findall(r"^use (\w+)\(", instead):
                assert callable(getattr(client, called, getattr(pykclient.Consumer, called, None)))


PEER_CLASSES = [
    (peer, name)
    for peer in ("confluent-kafka", "kafka-python", "aiokafka")
    for name in peers()[peer]
    if name[0].isupper()
]


@pytest.mark.promise("names and methods of other clients raise errors that name the replacement")
@pytest.mark.parametrize(("peer", "name"), PEER_CLASSES)
def test_each_method_of_another_client_is_here_or_is_explained(peer: str, name: str) -> None:
    (kind,) = [kind for kind in ("Producer", "Consumer", "Admin") if kind in name]
    here = {*dir(getattr(pykclient, kind)), *METHODS[kind]}
    assert set(peers()[peer][name]) - here == set()


@pytest.mark.promise("names and methods of other clients raise errors that name the replacement")
@pytest.mark.parametrize("kind", [pykclient.Producer, pykclient.Consumer, pykclient.Admin])
def test_completion_offers_no_method_that_is_not_here(kind: type) -> None:
    with kind(bootstrap_servers="localhost:1") as client:
        for name in METHODS[kind.__name__]:
            for text in (f"client.{name}", f"kind.{name}"):
                completer = rlcompleter.Completer({"client": client, "kind": kind})
                assert name not in [each.partition(".")[2] for each in completer.attr_matches(text)]


@pytest.mark.promise("names and methods of other clients raise errors that name the replacement")
@pytest.mark.parametrize(
    ("call", "keyword"),
    [
        (pykclient.Producer.flush, "timeout_ms"),
        (pykclient.Producer.close, "null_logger"),
        (pykclient.Producer.purge, "in_queue"),
        (pykclient.Producer.send_batch, "messages"),
        (pykclient.Admin.create_topics, "operation_timeout"),
        (pykclient.Admin.delete_topics, "timeout_ms"),
        (pykclient.Admin.list_groups, "states_filter"),
        (pykclient.Consumer.poll, "timeout_ms"),
        (pykclient.Consumer.subscribe, "on_assign"),
        (pykclient.Consumer.commit, "asynchronous"),
        (pykclient.Consumer.close, "autocommit"),
    ],
)
def test_an_argument_of_another_client_is_an_error_with_the_one_here(
    call: Callable[..., object], keyword: str
) -> None:
    kind = getattr(pykclient, call.__module__.split(".")[1].capitalize())
    reason = re.escape(
        f"unexpected keyword argument '{keyword}': {other_clients().arguments[keyword]}"
    )
    with (
        kind(bootstrap_servers="localhost:1") as client,
        pytest.raises(TypeError, match=f"{reason}$"),
    ):
        call(client, **{keyword: None})


def test_an_error_from_inside_a_call_is_left_as_it_is() -> None:
    def inside() -> None:
        bytes(callback=None)  # type: ignore[call-overload]

    with pytest.raises(TypeError) as caught:
        inside()
    before = str(caught.value)
    explain_keywords(caught.value, ["callback"])
    assert str(caught.value) == before


def test_each_method_of_another_client_has_its_replacement() -> None:
    found = other_clients().methods
    assert {kind: tuple(names) for kind, names in found.items()} == METHODS


def test_methods_of_other_clients_slow_no_look_up() -> None:
    """`__getattr__` and `__getattribute__` do, of whatever is looked up."""
    for kind in (pykclient.Producer, pykclient.Consumer, pykclient.Admin):
        assert not hasattr(kind, "__getattr__")
        assert kind.__getattribute__ is object.__getattribute__
        bases = [vars(each) for each in kind.__mro__]
        for name in METHODS[kind.__name__]:
            (added,) = [members[name] for members in bases if name in members]
            assert isinstance(added, _Elsewhere), "it takes no method's place"


def test_names_that_are_loaded_at_first_use_are_listed_before() -> None:
    modules = "pykclient, pykclient.testing, spark_connector"
    program = (
        f"import {modules}\n"
        f"print([name for each in ({modules}) for name in each.__all__ if name not in dir(each)])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    ).stdout
    assert printed == "[]\n"


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_all_holds_what_is_there_and_nothing_twice(name: str) -> None:
    module: ModuleType = importlib.import_module(name)
    assert len(module.__all__) == len(set(module.__all__))
    assert [export for export in module.__all__ if not hasattr(module, export)] == []


def test_the_one_place_for_errors_has_every_error() -> None:
    assert {*base.__all__, *broker.__all__} <= set(errors.__all__)
    classes = [getattr(errors, name) for name in (*base.__all__, *broker.__all__)]
    strangers = [
        cls for cls in classes if inspect.isclass(cls) and not issubclass(cls, errors.KafkaError)
    ]
    assert strangers == []


def test_everything_that_users_reach_is_documented() -> None:
    reached = dict(public_functions())
    for module_name in PUBLIC_MODULES:
        module = importlib.import_module(module_name)
        exports = {name: getattr(module, name) for name in module.__all__}
        reached |= {f"{module_name}.{n}": e for n, e in exports.items() if inspect.isclass(e)}
    assert {"pykclient.Consumer", "pykclient.Consumer.poll"} <= reached.keys()
    assert [name for name, found in reached.items() if not _own_docstring(found)] == []


def _own_docstring(found: object) -> str | None:
    # Of a class, `inspect.getdoc` would take the one of its base.
    return found.__doc__ if inspect.isclass(found) else inspect.getdoc(found)


def test_no_public_signature_has_any() -> None:
    loose = [
        f"{name}: {argument}"
        for name, function in public_functions()
        for argument, annotation in annotations_of(function).items()
        if re.search(r"\bAny\b", str(annotation))
    ]
    # What JSON may be, as of `json.loads`.
    assert loose == ["pykclient.serialization.JsonDeserializer.deserialize: return"]


def test_what_the_signatures_of_an_assignor_have_is_exported() -> None:
    tree = ast.parse(inspect.getsource(pykclient.Assignor))
    named = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    foreign = {*vars(builtins), *vars(collections.abc), *vars(typing)}
    assert {"Assignment", "GroupMember", "TopicReplicas"} <= named
    assert named - foreign <= set(pykclient.__all__)


def test_every_public_function_declares_what_it_returns() -> None:
    silent = [name for name, function in public_functions() if not annotations_of(function)]
    assert silent == []


@pytest.mark.parametrize(
    "statement",
    [
        "import pykclient",
        "from pykclient import Admin, Consumer, Producer",
        "import pykclient.errors",
        "import pykclient.testing",
        "import pykclient.testing.fixtures",
    ],
)
def test_an_import_loads_nothing_optional(statement: str) -> None:
    allowed = {"pytest"} if "fixtures" in statement else set()
    printed = subprocess.run(
        [sys.executable, "-c", f"{statement}\nimport sys\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    loaded = {module.split(".")[0] for module in printed.split()}
    assert loaded & OPTIONAL_MODULES - allowed == set()
    assert "tomllib" not in loaded, "the names of other clients are for mistakes"
