"""The errors of connections and requests that failed: what, where, and how to cure it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pykclient.errors import (
    ClusterMismatchError,
    ConnectionFailedError,
    DecodeError,
    DisconnectedError,
    KafkaError,
    KafkaTimeoutError,
)
from pykclient.errors.text import printable
from pykclient.network.cluster.node import broker_label

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pykclient.network.manager import Request
    from pykclient.types import Node

LISTED_MAX = 8
"""Failures in one message, however large the cluster that is down."""

HUNG_UP = "closed the connection"
"""The plain way to do it, as the port words it."""

NAMED_MAX = 3
"""Nodes that are named where several have the same failure."""

UNREACHED = "cannot connect to "
UNREACHED_CURE = "check that the brokers run, and that bootstrap_servers has their addresses"

_IS_IT_KAFKA = (
    "is it a Kafka listener, of this security_protocol, and Kafka 2.1 or newer? Check "
    "bootstrap_servers, or the broker's advertised.listeners"
)


def not_accepted(node: Node, waited_ms: int) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{node} did not accept a connection within {waited_ms} ms; check the address and the way "
        f"there, or raise socket_connection_setup_timeout_ms"
    )


def not_begun(node: Node, cause: Exception) -> ConnectionFailedError:
    error = ConnectionFailedError(f"no connection to {node} could be opened: {cause!r}")
    error.__cause__ = cause
    return error


def handshake_wait(node: Node) -> str:
    return (
        f"{node} accepted the connection but has not responded to the Kafka handshake yet; "
        f"{_IS_IT_KAFKA}"
    )


def handshake_timed_out(node: Node, timeout_ms: int) -> DisconnectedError:
    return DisconnectedError(
        f"{node} accepted the connection but did not respond to the Kafka handshake within "
        f"{timeout_ms} ms; {_IS_IT_KAFKA}"
    )


def handshake_hung_up(node: Node, cause: KafkaError) -> DisconnectedError:
    how = without_place(node, cause)
    error = DisconnectedError(
        f"{node} accepted the connection but hung up during the Kafka handshake"
        f"{'' if how == HUNG_UP else f' ({how})'}; {_IS_IT_KAFKA}"
    )
    error.__cause__ = cause
    return error


def authentication_hung_up(node: Node, cause: KafkaError) -> DisconnectedError:
    error = DisconnectedError(
        f"{node} hung up while the client authenticated; it gives no reason: see the broker's log, "
        f"and check sasl_mechanism, and the port"
    )
    error.__cause__ = cause
    return error


def first_request_hung_up(node: Node, cause: KafkaError) -> DisconnectedError:
    error = DisconnectedError(
        f"{node} hung up on the first request after the Kafka handshake; does its listener want "
        f"SASL? Check security_protocol, and the port"
    )
    error.__cause__ = cause
    return error


def unreadable(node: Node, cause: DecodeError, *, is_known_broker: bool) -> DecodeError:
    cure = "" if is_known_broker else f"; {_IS_IT_KAFKA}"
    error = DecodeError(f"{node} sent what cannot be read: {cause}{cure}")
    error.__cause__ = cause
    return error


def given_up(node: Node, cause: KafkaError) -> KafkaError:
    """Return the error of the requests on a connection that was lost.

    Bytes that cannot be read are no fault of theirs: on a new connection they may succeed. Nor does
    what is fatal end them: it came from one address, and the broker may get another one.
    """
    if cause.retriable:
        return cause
    error = DisconnectedError(f"the connection to {node} was given up: {cause}")
    error.__cause__ = cause
    return error


def without_response(request: Request, node: Node, timeout_ms: int) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"{node} did not respond to {request.message.api_key.name} within {timeout_ms} ms; it is "
        f"overloaded or out of reach; if it needs longer, raise request_timeout_ms"
    )


def untaken(request: Request, timeout_ms: int, troubles: str) -> KafkaTimeoutError:
    node_id = request.node_id
    taker = "no broker took" if node_id is None else f"{broker_label(node_id)} did not take"
    return KafkaTimeoutError(
        f"{taker} the {request.message.api_key.name} request within {timeout_ms} ms: "
        f"{troubles or 'the connection is busy or throttled'}"
    )


def other_cluster(node: Node, expected_id: str, found_id: str) -> ClusterMismatchError:
    error = ClusterMismatchError(
        f"{node} belongs to another cluster: its cluster id is {printable(found_id)!r}, and this "
        f"client has used cluster {printable(expected_id)!r}; nothing is sent to it. Correct the "
        f"address, or, to use the other cluster, make a new client",
        expected_cluster_id=expected_id,
        found_cluster_id=found_id,
    )
    return error


def misrouted(node: Node, expected_id: str) -> ClusterMismatchError:
    return ClusterMismatchError(
        f"{node} belongs to another cluster than {printable(expected_id)!r}, which this client "
        f"has used, or is another broker of it; nothing is sent to it. Correct the address, or "
        f"what routes it (DNS, a proxy, advertised.listeners), or, to use another cluster, make a "
        f"new client",
        expected_cluster_id=expected_id,
    )


def unverified(node: Node) -> DisconnectedError:
    return DisconnectedError(
        f"{node}: the client connects again, since it has learned its cluster id meanwhile"
    )


def suspect_and_gone(node: Node) -> DisconnectedError:
    return DisconnectedError(f"{node} does not respond, and the cluster has gone on without it")


def suspect_and_moved(node: Node) -> DisconnectedError:
    return DisconnectedError(f"{node} does not respond, and the broker has another address now")


def unknown_node(node_id: int) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"broker {node_id} is not in the metadata; it left the cluster, or is not known yet"
    )


def without_place(node: Node, error: KafkaError) -> str:
    """Return the text of an error, without the node that it begins with."""
    text = str(error)
    address = f"{node.host}:{node.port}"
    places = (f"cannot connect to {address}: ", f"{node}: ", f"{node} ", f"{address}: ")
    for place in (*places, f"{address} "):
        text = text.removeprefix(place)
    return text


def with_cure(troubles: str) -> str:
    """Return troubles with what to do where a connection was refused: the system's error has none.

    The other errors here say it themselves.
    """
    return f"{troubles}; {UNREACHED_CURE}" if UNREACHED in troubles else troubles


def both(reason: str, troubles: str) -> str:
    """Return why a call failed, with what keeps nodes from responding; what is in both once."""
    return troubles if reason in troubles else "; ".join(filter(None, (reason, troubles)))


def grouped(described: Iterable[tuple[Node, str]]) -> list[str]:
    """Return the texts of nodes; those that say the same of several nodes are one text.

    Where every broker refuses a password, its reason is long enough once.
    """
    nodes_by_text: dict[str, list[str]] = {}
    for node, text in described:
        places = (f"{node}: ", f"{node.host}:{node.port}: ")
        place = next((each for each in places if text.startswith(each)), "")
        names = nodes_by_text.setdefault(text.removeprefix(place), [])
        if place:
            names.append(place.removesuffix(": "))
    return [_of_nodes(names, text) for text, names in nodes_by_text.items()]


def _of_nodes(names: list[str], text: str) -> str:
    if not names:
        return text
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return f"{', '.join(names[:NAMED_MAX])}{more}: {text}"


def listed(troubles: Iterable[str]) -> str:
    distinct = list(dict.fromkeys(troubles))
    if len(distinct) > LISTED_MAX:
        distinct[LISTED_MAX:] = [f"and {len(distinct) - LISTED_MAX} more"]
    return "; ".join(distinct)
