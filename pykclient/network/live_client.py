"""LiveClient: the base of all clients. It cannot be pickled or copied, and explains foreign names.

A method of confluent-kafka, kafka-python or aiokafka that this client lacks or names differently
raises an AttributeError that names the replacement; an argument raises a TypeError.

Owner: none; it holds no state.
Source: ours.
"""

from __future__ import annotations

import re
from functools import wraps
from types import FunctionType
from typing import TYPE_CHECKING, Final, NoReturn, ParamSpec, TypeVar

from pykclient.config.other_clients import other_clients
from pykclient.errors import UsageError
from pykclient.network.foreign_names import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pykclient.config.client import ClientConfig

_UNEXPECTED: Final = re.compile(r"unexpected keyword argument '(\w+)'")
_PER_RECORD: Final = frozenset({"send", "store_offset"})
"""Methods that run once per record. They get no wrapper, so their errors are not explained."""

P = ParamSpec("P")
T = TypeVar("T")


class _Elsewhere:
    """A method of another client. Looking it up raises an error that names the replacement.

    A `__getattr__` would do the same, but would slow down every attribute lookup.
    """

    def __init__(self, owner: str, name: str) -> None:
        self._owner = owner
        self._name = name

    def __get__(self, client: object, kind: type) -> NoReturn:
        instead = other_clients().methods[self._owner][self._name]
        raise AttributeError(
            f"{kind.__name__} has no {self._name}(): {instead}", name=self._name, obj=client
        )


class _ClientType(type):
    """The metaclass of clients. It hides foreign names from `dir` and thus from completion."""

    def __dir__(cls) -> Iterable[str]:
        return [name for name in super().__dir__() if name not in _foreign_names(cls)]


class LiveClient(metaclass=_ClientType):
    """A client that can be neither pickled nor copied."""

    __slots__ = ()

    def __dir__(self) -> Iterable[str]:
        foreign = _foreign_names(type(self))
        return [name for name in super().__dir__() if name not in foreign]

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        kind = type(self).__name__
        raise UsageError(
            f"a {kind} cannot be pickled or copied: it has connections, locks and threads of this "
            f"process. Send its settings (a dict, or functools.partial({kind}, ...)) and make one "
            f"where it is used"
        )


def explain_keywords(error: BaseException, keywords: Iterable[str]) -> None:
    """Add the replacement of another client's argument to the TypeError of a call.

    Call it where the call was made. It ignores errors that were raised deeper.
    """
    traceback = error.__traceback__
    if type(error) is not TypeError or (traceback is not None and traceback.tb_next is not None):
        return
    found = _UNEXPECTED.search(str(error))
    if found is None or found[1] not in keywords:
        return
    if instead := other_clients().arguments.get(found[1]):
        error.args = (f"{error}: {instead}",)


def explain_names_of_others(kind: type[LiveClient]) -> None:
    """Make a client class explain the methods and arguments of other clients.

    Foreign methods are set at run time, where type checkers and editors do not see them. Methods
    that run once per record are not wrapped; `public_call` explains those of a consumer.
    """
    for each in kind.__mro__[: kind.__mro__.index(LiveClient)]:
        if issubclass(each, LiveClient):
            _explain_arguments(each)
    for name in METHODS[kind.__name__]:
        setattr(kind, name, _Elsewhere(kind.__name__, name))


def _explain_arguments(kind: type[LiveClient]) -> None:
    for name, member in list(vars(kind).items()):
        is_public = isinstance(member, FunctionType) and not name.startswith("_")
        if is_public and name not in _PER_RECORD and not hasattr(member, "__wrapped__"):
            setattr(kind, name, _explaining(member))


def _explaining(method: Callable[P, T]) -> Callable[P, T]:
    @wraps(method)
    def call(*args: P.args, **keywords: P.kwargs) -> T:
        try:
            return method(*args, **keywords)
        except TypeError as error:
            explain_keywords(error, keywords)
            raise

    return call


def _foreign_names(kind: type) -> set[str]:
    return {name for each in kind.__mro__ for name in METHODS.get(each.__name__, ())}


def describe_client(client: LiveClient, config: ClientConfig, state: str, about: str = "") -> str:
    """Return the `repr` of a client: its id, the addresses of its cluster, and its state."""
    addresses = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    name = config.client_id or "without client_id"
    return f"<{type(client).__name__} {name} at {addresses}{about}: {state}>"
