"""AdminCore: the admin client without the waiting: its engine, and what each call is made of.

Owner: the admin lock.
Source: Java class ``KafkaAdminClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from pykclient.admin.call import AdminCall, AdminCalls, Attempts
from pykclient.errors import AdminCallError, KafkaError, KafkaTimeoutError
from pykclient.network.broker.client import NetworkClient
from pykclient.network.cluster.metadata import Metadata
from pykclient.network.engine import Engine
from pykclient.network.log import ClientLog, LongWaits
from pykclient.network.retry import Backoff

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from pykclient.admin.call import AdminHandler
    from pykclient.admin.config import AdminConfig
    from pykclient.network.io.port import Port

__all__ = ["SPREAD_MS_MAX", "AdminCore"]

SPREAD_MS_MAX: Final = 5_000
"""How long the word of a change may take to reach all brokers before it is left to itself."""

KeyT = TypeVar("KeyT", bound="Hashable")
ValueT = TypeVar("ValueT")


class AdminCore:
    """Builds the engine and the calls that go through it."""

    def __init__(self, config: AdminConfig, port: Port) -> None:
        self._config = config
        self._port = port
        self._retry_backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._metadata = Metadata.from_config(config, allow_auto_topic_creation=False)
        self._metadata.set_topics(())
        self._client = NetworkClient(config, port, self._metadata)
        self._calls = AdminCalls()
        self._waits = LongWaits(ClientLog("pykclient.admin", config.client_id))
        self._engine = Engine(self._client, [self._metadata, self._calls])

    def _call(
        self, handler: AdminHandler[KeyT, ValueT], keys: Iterable[KeyT], deadline_ms: int
    ) -> AdminCall[KeyT, ValueT]:
        attempts = Attempts(
            retry_max=self._config.retries,
            backoff=self._retry_backoff,
            request_timeout_ms=self._config.request_timeout_ms,
            deadline_ms=deadline_ms,
        )
        return AdminCall(handler, keys, self._metadata, attempts)

    def _result(
        self, call: AdminCall[KeyT, ValueT], what: str, timeout_ms: int
    ) -> dict[KeyT, ValueT]:
        """Return what came of a call whose time is up, or raise what went wrong."""
        errors: dict[KeyT, KafkaError] = dict(call.errors)
        if call.unfinished:
            late = self._late(call, what, timeout_ms)
            errors.update(dict.fromkeys(call.unfinished, late))
        distinct = list({id(error): error for error in errors.values()}.values())
        if len(distinct) == 1:
            raise distinct[0]
        if distinct:
            told = "; ".join(f"{key}: {error}" for key, error in errors.items())
            raise AdminCallError(
                f"{what}: {len(errors)} of {len(errors) + len(call.values)} failed: {told}",
                errors={str(key): error for key, error in errors.items()},
            )
        return call.values

    def _late(self, call: AdminCall[KeyT, ValueT], what: str, timeout_ms: int) -> KafkaTimeoutError:
        why = self._why_unfinished(call) or "the brokers did not answer"
        keys: Sequence[object] = call.unfinished
        error = KafkaTimeoutError(
            f"waited {timeout_ms} ms for {what} {', '.join(map(str, keys))}: {why}"
        )
        error.__cause__ = call.last_error
        return error

    def _why_unfinished(self, call: AdminCall[KeyT, ValueT]) -> str:
        """Return what is known of why a call has not ended; empty if nothing is."""
        reasons = [] if call.last_error is None else [str(call.last_error)]
        return "; ".join(filter(None, [*reasons, self._client.describe_failures()]))
