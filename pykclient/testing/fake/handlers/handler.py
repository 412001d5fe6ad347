"""The interface between the cluster and an API's handler, for any request class.

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
    """The handler of an API: two functions, and the `versions` announced in ApiVersions.

    `unstable_version` is announced as well if brokers enable unstable versions.
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
        """Handle a request; return the response, or None if the call ends otherwise."""
        assert isinstance(request, self._kind)
        return self._handle(cluster, call, request)

    def refuse(self, cluster: ClusterState, request: Request, error_code: int) -> Message:
        """Return a response that refuses everything in the request."""
        assert isinstance(request, self._kind)
        return self._refuse(cluster, request, error_code)
