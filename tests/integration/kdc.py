"""A KDC of Kerberos for tests, of Debian's packages; and why there is none, where they are missing.

It *runs* from the start until it is closed. Its realm is of its own, in files of a folder.

Owner: the test that made it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from pathlib import Path

REALM: Final = "PYKCLIENT.TEST"
START_TIMEOUT_S: Final = 20.0
PROGRAMS: Final = ("krb5kdc", "kadmin.local", "kdb5_util", "kinit")
_PLACES: Final = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin", "/usr/bin"))

CONFIG: Final = """\
[libdefaults]
    default_realm = {realm}
    dns_lookup_kdc = false
    dns_lookup_realm = false
    dns_canonicalize_hostname = false
    rdns = false
    udp_preference_limit = 1
    default_ccache_name = FILE:{folder}/cache
[realms]
    {realm} = {{
        kdc = 127.0.0.1:{port}
    }}
"""
KDC_CONFIG: Final = """\
[kdcdefaults]
    kdc_listen = ""
    kdc_tcp_listen = 127.0.0.1:{port}
[realms]
    {realm} = {{
        database_name = {folder}/principal
        key_stash_file = {folder}/stash
        acl_file = {folder}/acl
        max_life = 10h
    }}
[logging]
    kdc = FILE:{folder}/kdc.log
"""


def why_none() -> str:
    """Why there can be no KDC here; empty where there can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_PLACES) is None]
    if missing:
        return f"no {', '.join(missing)}: apt-get install krb5-kdc krb5-admin-server krb5-user"
    if importlib.util.find_spec("gssapi") is None:
        return "no package gssapi: apt-get install libkrb5-dev, pip install gssapi"
    return ""


class Kdc:
    """A realm with the principals that tests add. A context manager."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        fields = {"realm": REALM, "folder": folder, "port": self.port}
        self.config = folder / "krb5.conf"
        self.config.write_text(CONFIG.format(**fields))
        (folder / "kdc.conf").write_text(KDC_CONFIG.format(**fields))
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        self._process = subprocess.Popen(
            [_program("krb5kdc"), "-n", "-r", REALM],
            env={**os.environ, **self.environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._await()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(START_TIMEOUT_S)

    def keytab(self, principal: str) -> Path:
        """Add a principal, and return the file with its key."""
        path = self._folder / f"{principal.replace('/', '_')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        assert path.exists(), principal
        return path

    def kinit(self, principal: str, cache: Path, *options: str) -> None:
        """Fetch a ticket of a principal by its keytab into a file."""
        keytab = self._folder / f"{principal}.keytab"
        self._run("kinit", *options, "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [_program(program), *arguments],
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            timeout=START_TIMEOUT_S,
        )

    def _await(self) -> None:
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline_s:
            assert self._process.poll() is None, "the KDC has ended"
            try:
                socket.create_connection(("127.0.0.1", self.port), 1.0).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise TimeoutError("the KDC does not listen")


def _program(name: str) -> str:
    found = shutil.which(name, path=_PLACES)
    assert found is not None, name
    return found


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        return int(bound.getsockname()[1])
