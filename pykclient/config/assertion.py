"""Settings for assertions: JWTs that authenticate a client without a secret.

An assertion is the grant (KIP-1139), or authenticates the client for the client credentials grant
(KIP-1258). `pykclient.network.sasl.assertion` reads the files when a client is made, never this
module.

Owner: none, everything is immutable.
Source: KIP-1139, KIP-1258; RFC 7521, RFC 7523; Java class ``AssertionSupplierFactory``;
librdkafka's CONFIGURATION.md.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pykclient.config.policy import Reach
from pykclient.config.setting import (
    Password,
    Setting,
    boolean,
    choice,
    integer,
    optional,
    password,
    path,
    string,
)
from pykclient.errors.base import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


class Assertion(NamedTuple):
    """The source of assertions: a file, a key that signs them, or the text of one.

    Exactly one of `file`, `key_file`, `key_pem` and `text` is set.
    """

    file: str | None
    key_file: str | None
    key_pem: Password | None
    passphrase: Password | None
    algorithm: str
    claims: Mapping[str, str]
    """Claims with values from settings."""
    lifetime_s: int
    not_before_s: int
    """Seconds before the present from which an assertion is valid, to allow for clock
    differences."""
    has_id: bool
    template_file: str | None
    text: Password | None = None


class AssertionConfig:
    """The file with an assertion, or the key that signs assertions and their claims."""

    sasl_oauthbearer_assertion_file = Setting(
        optional(path(Reach.FILE)),
        None,
        "File with an assertion that another program renews; it is read for each token.",
    )
    sasl_oauthbearer_assertion_private_key_file = Setting(
        optional(path(Reach.FILE)), None, "File with the key in PEM that signs assertions."
    )
    sasl_oauthbearer_assertion_private_key_pem = Setting(
        optional(password()),
        None,
        "The key that signs assertions, in PEM. Only librdkafka has this setting.",
        key="sasl.oauthbearer.assertion.private.key.pem",
        is_ours=True,
    )
    sasl_oauthbearer_assertion_private_key_passphrase = Setting(
        optional(password()), None, "Password of that key, if it is encrypted."
    )
    sasl_oauthbearer_assertion_algorithm = Setting(
        choice({name: name for name in ("RS256", "ES256")}, is_case_kept=False),
        "RS256",
        "Algorithm that signs assertions: RS256 needs an RSA key, ES256 a key of the curve P-256.",
    )
    sasl_oauthbearer_assertion_claim_aud = Setting(
        optional(string()), None, "Audience of an assertion, its claim aud."
    )
    sasl_oauthbearer_assertion_claim_iss = Setting(
        optional(string()), None, "Issuer of an assertion, its claim iss."
    )
    sasl_oauthbearer_assertion_claim_sub = Setting(
        optional(string()), None, "User of an assertion, its claim sub."
    )
    sasl_oauthbearer_assertion_claim_exp_seconds = Setting(
        integer(0, 86_400), 300, "Lifetime of an assertion in seconds, for its claim exp."
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds = Setting(
        integer(0, 3_600), 60, "Seconds before its creation from which it is valid: claim nbf."
    )
    sasl_oauthbearer_assertion_claim_jti_include = Setting(
        boolean(), False, "True gives each assertion a unique id, its claim jti."
    )
    sasl_oauthbearer_assertion_template_file = Setting(
        optional(path(Reach.FILE)),
        None,
        "File with further parts of an assertion, in JSON with header and payload.",
        aliases=("sasl.oauthbearer.assertion.jwt.template.file",),
    )

    @property
    def has_assertion_key(self) -> bool:
        """True if a key that signs assertions is set."""
        keys = (
            self.sasl_oauthbearer_assertion_private_key_file,
            self.sasl_oauthbearer_assertion_private_key_pem,
        )
        return keys != (None, None)

    def read_assertion(self) -> Assertion:
        """Return the source of assertions. As in Java, a file takes precedence over a key.

        Raises:
            ConfigError: there is neither a file nor a key, or there are two keys.
        """
        file = self.sasl_oauthbearer_assertion_file
        key_file = self.sasl_oauthbearer_assertion_private_key_file
        key_pem = self.sasl_oauthbearer_assertion_private_key_pem
        if key_file is not None and key_pem is not None:
            raise ConfigError(
                "sasl.oauthbearer.assertion.private.key.file and "
                "sasl.oauthbearer.assertion.private.key.pem are two sources of one key; give one."
            )
        if file is None and not self.has_assertion_key:
            raise ConfigError(
                "An assertion needs one of sasl.oauthbearer.assertion.file, "
                "sasl.oauthbearer.assertion.private.key.file and "
                "sasl.oauthbearer.assertion.private.key.pem; none is set."
            )
        claims = {
            "aud": self.sasl_oauthbearer_assertion_claim_aud,
            "iss": self.sasl_oauthbearer_assertion_claim_iss,
            "sub": self.sasl_oauthbearer_assertion_claim_sub,
        }
        return Assertion(
            file,
            key_file if file is None else None,
            key_pem if file is None else None,
            self.sasl_oauthbearer_assertion_private_key_passphrase,
            self.sasl_oauthbearer_assertion_algorithm,
            {name: value for name, value in claims.items() if value is not None},
            self.sasl_oauthbearer_assertion_claim_exp_seconds,
            self.sasl_oauthbearer_assertion_claim_nbf_seconds,
            self.sasl_oauthbearer_assertion_claim_jti_include,
            self.sasl_oauthbearer_assertion_template_file,
        )


def given_assertion(text: Password | None, file: str | None) -> Assertion:
    """Return an assertion given as a text, or as a file that holds one."""
    return Assertion(file, None, None, None, "RS256", {}, 0, 0, False, None, text)
