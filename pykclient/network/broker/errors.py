"""Errors of failed connections and requests: each names the place, the failure and the cure."""

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
"""Maximum number of failures in one message, however many brokers are down."""

HUNG_UP = "closed the connection"
"""The port's text for a connection that the peer closed normally."""

NAMED_MAX = 3
"""Maximum number of nodes named if several have the same failure."""

UNREACHED = "cannot connect to "
UNREACHED_CURE = "check that the brokers run, and that bootstrap_servers has their addresses"

_IS_IT_KAFKA = (
    "is it a Kafka listener, of this security_protocol, and Kafka 2.1 or newer? Check "
    "bootstrap_servers, or the broker's advertised.listeners"
)


def not_accepted(node: Node, waited_ms: int) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"{node} did not accept a connection within {waited_ms} ms; check the address and the "
        f"network, or raise socket_connection_setup_timeout_ms"
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
        f"{node} hung up on the first request after the Kafka handshake; does its listener require "
        f"SASL? Check security_protocol, and the port"
    )
    error.__cause__ = cause
    return error


def unreadable(node: Node, cause: DecodeError, *, is_known_broker: bool) -> DecodeError:
    cure = "" if is_known_broker else f"; {_IS_IT_KAFKA}"
    error = DecodeError(f"{node} sent malformed data: {cause}{cure}")
    error.__cause__ = cause
    return error


def given_up(node: Node, cause: KafkaError) -> KafkaError:
    """Return the error for the requests on a lost connection.

    They may succeed on a new connection even if the cause is not retriable: malformed bytes are not
    their fault, and a fatal error concerns one address, while the broker may get another one.
    """
    if cause.retriable:
        return cause
    error = DisconnectedError(f"the connection to {node} was closed: {cause}")
    error.__cause__ = cause
    return error


def without_response(request: Request, node: Node, timeout_ms: int) -> KafkaTimeoutError:
    return KafkaTimeoutError(
        f"{node} did not respond to {request.message.api_key.name} within {timeout_ms} ms; it is "
        f"overloaded or unreachable; if it needs longer, raise request_timeout_ms"
    )


def silent(waits_for: str, silent_ms: int) -> str:
    """Return the log line for a node that keeps its connection and sends nothing."""
    return (
        f"no response for {silent_ms} ms: {waits_for}; it is overloaded, hangs or cannot be "
        f"reached, and the client keeps trying"
    )


def untaken(request: Request, timeout_ms: int, troubles: str) -> KafkaTimeoutError:
    node_id = request.node_id
    taker = "no broker accepted" if node_id is None else f"{broker_label(node_id)} did not accept"
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
    meant = broker_label(node.id).removesuffix(",")
    return ClusterMismatchError(
        f"{node} says that it is not {meant} of cluster {printable(expected_id)!r}, which this "
        f"client has used (REBOOTSTRAP_REQUIRED); nothing is sent to it. Correct the address, or "
        f"what routes it (DNS, a proxy, advertised.listeners); to use another cluster, make a new "
        f"client. If it is that broker all the same, restart it, or set "
        f"metadata_cluster_check_enable to False, which names no broker and checks no cluster",
        expected_cluster_id=expected_id,
    )


def unverified(node: Node) -> DisconnectedError:
    return DisconnectedError(
        f"{node}: the client reconnects, since it has learned its cluster id meanwhile"
    )


def suspect_and_gone(node: Node) -> DisconnectedError:
    return DisconnectedError(f"{node} does not respond, and the cluster continues without it")


def suspect_and_moved(node: Node) -> DisconnectedError:
    return DisconnectedError(f"{node} does not respond, and the broker has another address now")


def unknown_node(node_id: int) -> ConnectionFailedError:
    return ConnectionFailedError(
        f"broker {node_id} is not in the metadata; it left the cluster, or is not known yet"
    )


def without_place(node: Node, error: KafkaError) -> str:
    """Return the text of an error without the node at its start."""
    text = str(error)
    address = f"{node.host}:{node.port}"
    places = (f"cannot connect to {address}: ", f"{node}: ", f"{node} ", f"{address}: ")
    for place in (*places, f"{address} "):
        text = text.removeprefix(place)
    return text


def with_cure(troubles: str) -> str:
    """Add the cure to a system error about a refused connection.

    The other errors here contain their cure.
    """
    return f"{troubles}; {UNREACHED_CURE}" if UNREACHED in troubles else troubles


def both(reason: str, troubles: str) -> str:
    """Combine the reason of a failed call with the failures of nodes, without repeating it."""
    return troubles if reason in troubles else "; ".join(filter(None, (reason, troubles)))


def grouped(described: Iterable[tuple[Node, str]]) -> list[str]:
    """Group the texts of nodes; equal texts are shown once, with the names of their nodes.

    If every broker refuses a password, one copy of the reason is enough.
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
