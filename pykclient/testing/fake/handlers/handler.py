"""What the cluster needs of an API's handler, whatever its request's class.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from pykclient.protocol.message import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.protocol.message import Message
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.cluster import FakeCluster

__all__ = ["Handler", "TypedHandler"]

R = TypeVar("R", bound=Request)


class Handler(Protocol):
    """How an API is served; `versions` are those that a broker names in ApiVersions."""

    versions: tuple[int, int]

    def handle(self, cluster: FakeCluster, call: Call, request: Request) -> Message | None:
        """Act; return the answer, or None when the call was, or will be, ended otherwise."""
        ...

    def refuse(self, cluster: FakeCluster, request: Request, error_code: int) -> Message:
        """Return the answer that refuses everything that was asked."""
        ...


class TypedHandler(Generic[R]):
    """A handler made of two functions for requests of one class."""

    def __init__(
        self,
        kind: type[R],
        handle: Callable[[FakeCluster, Call, R], Message | None],
        refuse: Callable[[FakeCluster, R, int], Message],
        *,
        versions: tuple[int, int] | None = None,
    ) -> None:
        self.versions = versions or (kind.min_version, kind.max_version)
        self._kind = kind
        self._handle = handle
        self._refuse = refuse

    def handle(self, cluster: FakeCluster, call: Call, request: Request) -> Message | None:
        """Act, as `Handler` says."""
        assert isinstance(request, self._kind)
        return self._handle(cluster, call, request)

    def refuse(self, cluster: FakeCluster, request: Request, error_code: int) -> Message:
        """Refuse, as `Handler` says."""
        assert isinstance(request, self._kind)
        return self._refuse(cluster, request, error_code)
