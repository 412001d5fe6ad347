"""What the cluster needs of an API's handler, whatever its request's class.

Owner: none; it holds no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from pykclient.protocol.message import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from pykclient.protocol.message import Message
    from pykclient.testing.fake.call import Call
    from pykclient.testing.fake.state import ClusterState

R_co = TypeVar("R_co", bound=Request, covariant=True)


class Handler(Generic[R_co]):
    """How an API is served, by two functions; `versions` are those that ApiVersions names.

    `unstable_version` is the one after them which it names where brokers have unstable ones.
    """

    def __init__(
        self,
        kind: type[R_co],
        handle: Callable[[ClusterState, Call, R_co], Message | None],
        refuse: Callable[[ClusterState, R_co, int], Message],
        *,
        versions: tuple[int, int] | None = None,
    ) -> None:
        self.versions = versions or (kind.min_version, kind.max_version)
        self.unstable_version = kind.unstable_version
        self._kind = kind
        self._handle = handle
        self._refuse = refuse

    def handle(self, cluster: ClusterState, call: Call, request: Request) -> Message | None:
        """Act; the response, or None when the call was, or will be, ended otherwise."""
        assert isinstance(request, self._kind)
        return self._handle(cluster, call, request)

    def refuse(self, cluster: ClusterState, request: Request, error_code: int) -> Message:
        """Give the response that refuses everything that was requested."""
        assert isinstance(request, self._kind)
        return self._refuse(cluster, request, error_code)
