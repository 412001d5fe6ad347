"""AWS_MSK_IAM: a request signed with AWS credentials, for clusters of Amazon MSK.

The same request, as a URL with its signature, is also a token for OAUTHBEARER. Nothing is sent to
AWS: the broker verifies the signature. The package botocore finds the credentials and may send
requests to an instance's metadata service or to a container's agent, so the mechanism may block.
The signature is computed here, since botocore would log it. The credentials are kept for all
connections of a client until a broker refuses them.

Owner: the authenticator owns the signer; a connection owns its mechanism, which runs on a
background thread.
Source: AWS Signature Version 4 (query parameters); the description of the mechanism in
``aws-msk-iam-auth``, whose classes for this are ``IAMSaslClient`` and
``IAMOAuthBearerLoginCallbackHandler``.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from pykclient.config.sasl import AWS_MSK_IAM
from pykclient.config.setting import Password
from pykclient.errors import AuthenticationError, ConfigError, KafkaError
from pykclient.errors.base import describe_cause
from pykclient.network.sasl.mechanism import SaslMechanism
from pykclient.network.sasl.token import OAuthToken
from pykclient.version import __version__

if TYPE_CHECKING:
    from pykclient.config.client import ClientConfig

VERSION: Final = "2020_10_22"
"""Version of the messages of client and broker."""

EXPIRES_S: Final = 900
"""Lifetime of a signature."""

REFUSALS_MAX: Final = 16
"""Maximum number of refusals between two lookups of credentials."""

ALGORITHM: Final = "AWS4-HMAC-SHA256"
_USER_AGENT: Final = f"pykclient/{__version__}"
_SERVICE: Final = "kafka-cluster"
_ACTION: Final = "kafka-cluster:Connect"
_REGION: Final = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


class AwsCredentials(NamedTuple):
    """The credentials that sign. The key's id is not secret."""

    key_id: str
    secret_key: Password
    session_token: Password | None
    region: str


class AwsSigner:
    """The AWS credentials of one client.

    Raises:
        ConfigError: the package botocore is missing.
    """

    def __init__(self, config: ClientConfig) -> None:
        try:
            import botocore.session as found
        except ImportError:
            raise ConfigError(
                "Authentication at Amazon MSK finds AWS credentials with the package botocore: "
                "pip install 'pykclient[msk-iam]'."
            ) from None
        self._botocore = found
        self._login = config.aws_login
        self._session: Any = None
        self._credentials: Any = None
        self._refusal_count = 0
        """Number of refusals since the last success."""

    def mechanism(self, host: str) -> MskIam:
        """Return a mechanism for one authentication at a broker."""
        return MskIam(self, host)

    def forget(self) -> None:
        """Look the credentials up again after a refusal, less often while refusals continue.

        The services that issue them limit requests, so this happens after refusals 1, 2, 4, 8 and
        then each multiple of `REFUSALS_MAX`.
        """
        self._refusal_count += 1
        count = self._refusal_count
        if count & (count - 1) == 0 or count % REFUSALS_MAX == 0:
            self.renew()

    def renew(self) -> None:
        """Look the credentials up again at the next authentication."""
        self._session = self._credentials = None

    def accept(self) -> None:
        """Record that a broker accepted the credentials."""
        self._refusal_count = 0

    def credentials(self, host: str) -> AwsCredentials:
        """Return the current credentials for a broker. May block.

        Raises:
            AuthenticationError: no credentials, or no region; the text says where botocore looked.
        """
        try:
            return self._found(host)
        except KafkaError:
            raise
        except Exception as error:  # noqa: BLE001  # of botocore, whose frames have secrets
            reason = describe_cause(error)
        raise AuthenticationError(f"botocore has no AWS credentials: {reason}")

    def _found(self, host: str) -> AwsCredentials:
        session = self._session
        if session is None:
            session = self._session = self._botocore.Session(profile=self._login.profile)
        credentials = self._credentials
        if credentials is None:
            credentials = self._credentials = self._of_role(session, host)
        if credentials is None:
            raise AuthenticationError(
                f"botocore found no AWS credentials: it looked in AWS_ACCESS_KEY_ID and "
                f"AWS_SECRET_ACCESS_KEY, in the profile {session.profile or 'default'!r} of "
                f"{session.get_config_variable('credentials_file')} and "
                f"{session.get_config_variable('config_file')}, and for a role of the container "
                f"or of the instance"
            )
        region = _region(session, host)
        if not region:
            raise AuthenticationError(
                f"the region is neither in the broker's name {host!r} nor in the environment; set "
                f"AWS_DEFAULT_REGION, or region in {session.get_config_variable('config_file')}"
            )
        frozen = credentials.get_frozen_credentials()
        token = None if frozen.token is None else Password(frozen.token)
        return AwsCredentials(frozen.access_key, Password(frozen.secret_key), token, region)

    def _of_role(self, session: Any, host: str) -> Any:
        """Return the credentials that sign: the session's, or those of the role to assume."""
        found = session.get_credentials()
        login = self._login
        if found is None or login.role_arn is None:
            return found
        from botocore.credentials import (
            AssumeRoleCredentialFetcher,
            DeferredRefreshableCredentials,
        )

        region = login.sts_region or _region(session, host)
        given = {"RoleSessionName": login.session_name, "ExternalId": login.external_id}
        fetcher = AssumeRoleCredentialFetcher(
            partial(session.create_client, region_name=region),
            found,
            login.role_arn,
            extra_args={name: value for name, value in given.items() if value is not None},
        )
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")


def _region(session: Any, host: str) -> str | None:
    # AWS_REGION is set in containers and read by Java's chain, but not by botocore.
    found: str | None = (
        region_of(host) or session.get_config_variable("region") or os.environ.get("AWS_REGION")
    )
    return found


class AwsTokens:
    """Tokens for OAUTHBEARER, made from AWS credentials.

    Raises:
        ConfigError: the package botocore is missing.
    """

    name = "AWS credentials"

    def __init__(self, config: ClientConfig) -> None:
        self._signer = AwsSigner(config)
        self._host = config.bootstrap_servers[0][0]

    def fetch(self) -> OAuthToken:
        # Each token is valid for 15 minutes; the next one uses the credentials of its time.
        self._signer.renew()
        return token(self._signer.credentials(self._host), datetime.now(UTC))


class MskIam(SaslMechanism):
    """The mechanism of one connection.

    It does not authenticate the broker. The only secret it sends is a session token.
    """

    name = AWS_MSK_IAM

    def __init__(self, signer: AwsSigner, host: str) -> None:
        self._signer = signer
        self._host = host

    def begin(self) -> bytes:
        credentials = self._signer.credentials(self._host)
        self.user = credentials.key_id
        return payload(credentials, self._host, datetime.now(UTC))

    def respond(self, challenge: bytes) -> None:
        """Check the response, which completes the authentication."""
        try:
            found = json.loads(challenge)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or found.get("version") != VERSION:
            raise AuthenticationError(
                f"the broker's response is not version {VERSION} of {AWS_MSK_IAM}; is it an "
                f"Amazon MSK cluster with IAM access control?"
            )


def payload(credentials: AwsCredentials, host: str, now: datetime) -> bytes:
    """Return the message of the client: a signed request to connect, as JSON."""
    signed = signed_parameters(credentials, host, now)
    return json.dumps(
        {
            "version": VERSION,
            "host": host,
            "user-agent": _USER_AGENT,
            **{name.lower(): value for name, value in signed.items()},
        }
    ).encode()


def token(credentials: AwsCredentials, now: datetime) -> OAuthToken:
    """Return a token for OAUTHBEARER: the URL of a signed request, in base64."""
    host = f"kafka.{credentials.region}.amazonaws.com"
    query = _query({**signed_parameters(credentials, host, now), "User-Agent": _USER_AGENT})
    text = Password(urlsafe_b64encode(f"https://{host}/?{query}".encode()).decode().rstrip("="))
    expires_ms = int((now.timestamp() + EXPIRES_S) * 1000)
    return OAuthToken(text, expires_ms, credentials.key_id)


def signed_parameters(credentials: AwsCredentials, host: str, now: datetime) -> dict[str, str]:
    """Return the parameters of a request to connect; the signature comes last."""
    signed = {
        "Action": _ACTION,
        "X-Amz-Algorithm": ALGORITHM,
        "X-Amz-Credential": f"{credentials.key_id}/{_scope(credentials.region, now)}",
        "X-Amz-Date": now.strftime("%Y%m%dT%H%M%SZ"),
        "X-Amz-Expires": str(EXPIRES_S),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session_token is not None:
        signed["X-Amz-Security-Token"] = credentials.session_token.value
    signed["X-Amz-Signature"] = signature(signed, host, credentials, now)
    return signed


def signature(
    parameters: dict[str, str], host: str, credentials: AwsCredentials, now: datetime
) -> str:
    """Return the signature of a request to `https://host/` with these parameters and no body."""
    query = _query(dict(sorted(parameters.items())))
    request = "\n".join(("GET", "/", query, f"host:{host}", "", "host", _sha256("")))
    scope = _scope(credentials.region, now)
    text = "\n".join((ALGORITHM, now.strftime("%Y%m%dT%H%M%SZ"), scope, _sha256(request)))
    key = b"AWS4" + credentials.secret_key.encoded()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    return key.hex()


def region_of(host: str) -> str:
    """Return the region in a broker's name, or "" if it has none."""
    found = _REGION.search(host)
    return found[1] if found else ""


def _query(parameters: dict[str, str]) -> str:
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in parameters.items()
    )


def _scope(region: str, now: datetime) -> str:
    return f"{now:%Y%m%d}/{region}/{_SERVICE}/aws4_request"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
