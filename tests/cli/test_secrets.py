"""Secrets at the command line: the ways to give one, and that no message repeats one."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from typing import IO, TYPE_CHECKING

import pytest

from pykclient.cli.echo import Echo
from pykclient.testing import ClusterSecurity, FakeKafka
from tests.cli.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CANARY = "canary-5d11"
LOGIN = ("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=PLAIN")
USER = (*LOGIN, "-X", "sasl.username=alice")
FOR_FILE = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=alice\n"


@pytest.fixture(scope="module")
def secured() -> Iterator[FakeKafka]:
    """Provide a broker that lets alice in by her password."""
    security = ClusterSecurity(
        listeners=("SASL_PLAINTEXT",), mechanisms=("PLAIN",), users={"alice": CANARY}
    )
    with FakeKafka(security=security) as fake:
        yield fake


@pytest.fixture
def run(
    secured: FakeKafka, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> Commands:
    return Commands(secured.bootstrap_servers, capfdbinary, monkeypatch)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Provide a properties file in a folder that everybody may enter."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.getuid() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o011)
    made = tmp_path / "client.properties"
    made.touch(0o600)
    return made


def test_a_password_comes_from_a_variable(run: Commands, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", CANARY)
    result = run("topics", "list", *USER)
    assert (result.status, result.output) == (0, b"")
    monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", "wrong")
    assert run("topics", "list", *USER).status == 1


def test_a_password_comes_by_reference_as_far_as_the_environment_allows(
    run: Commands, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KAFKA_PASSWORD", CANARY)
    reference = ("-X", "sasl.password=${env:KAFKA_PASSWORD}")
    result = run("topics", "list", *USER, *reference)
    assert result.status == 1
    assert (
        "add EnvVarConfigProvider to PYKCLIENT_ALLOWED_CONFIG_PROVIDERS and KAFKA_PASSWORD to "
        "PYKCLIENT_ALLOWED_VARIABLES"
    ) in result.complaint
    monkeypatch.setenv(
        "PYKCLIENT_ALLOWED_CONFIG_PROVIDERS", "EnvVarConfigProvider,FileConfigProvider"
    )
    monkeypatch.setenv("PYKCLIENT_ALLOWED_VARIABLES", "KAFKA_*")
    assert run("topics", "list", *USER, *reference).status == 0
    file.write_text(f"password={CANARY}\n")
    monkeypatch.setenv("PYKCLIENT_ALLOWED_FILES", str(file.parent))
    assert (
        run("topics", "list", *USER, "-X", f"sasl.password=${{file:{file}:password}}").status == 0
    )
    # A file that defines no provider may refer to one, too.
    other = file.parent / "other.properties"
    other.write_text(f"{FOR_FILE}sasl.password=${{env:KAFKA_PASSWORD}}\n")
    result = run("topics", "list", "-F", other)
    assert result.status == 0
    assert "may read it" not in result.complaint


def test_a_password_is_asked_for_at_the_terminal_once_and_not_shown(secured: FakeKafka) -> None:
    shown, typed = pty.openpty()
    servers = {"PYKCLIENT_BOOTSTRAP_SERVERS": secured.bootstrap_servers}
    command = [sys.executable, "-m", "pykclient", "groups", "offsets", "g", *USER]
    with subprocess.Popen(
        [*command, "-X", "sasl.password"],
        stdin=typed,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **servers},
        start_new_session=True,
        preexec_fn=lambda: os.close(os.open(os.ttyname(0), os.O_RDWR)),  # its own terminal
    ) as process:
        os.close(typed)
        with open(shown, "r+b", buffering=0) as terminal:
            prompt = b""
            while not prompt.endswith(b"sasl.password: "):
                prompt += terminal.read(1)
            terminal.write(f"{CANARY}\n".encode())
            output, complaint = process.communicate()
            rest = read_all(terminal)
    assert b"password" not in complaint.replace(b"the password is sent in plain text", b"")
    assert process.returncode == 1, "there is no group g"
    assert b"g" in complaint
    assert CANARY.encode() not in prompt + rest + output + complaint
    assert (prompt + rest).count(b"sasl.password") == 1, "two clients, one question"


def read_all(terminal: IO[bytes]) -> bytes:
    """Read the rest from a terminal whose program has closed it."""
    found = b""
    with suppress(OSError):  # the other side is closed
        while more := terminal.read(1024):
            found += more
    return found


def test_without_a_terminal_a_password_that_is_asked_for_is_an_error(run: Commands) -> None:
    given = f"{CANARY}\n".encode()
    environment = {**os.environ, "PYKCLIENT_BOOTSTRAP_SERVERS": "localhost:1"}
    ended = subprocess.run(
        [sys.executable, "-m", "pykclient", "produce", "-t", "t", *USER, "-X", "sasl.password"],
        input=given,
        capture_output=True,
        check=False,
        env=environment,
        start_new_session=True,
    )
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert ended.stderr.decode().splitlines()[-1] == (
        "pykclient: sasl.password has no value: there is no terminal to ask for it; set the "
        "variable PYKCLIENT_SASL_PASSWORD"
    )


def test_what_is_less_safe_than_it_looks_is_a_line_at_the_command_line(
    run: Commands, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKCLIENT_SASL_PASSWORD", CANARY)
    lines = run("groups", "offsets", "g", *USER).complaint.splitlines()
    assert len([line for line in lines if "the password is sent in plain text" in line]) == 1
    monkeypatch.delenv("PYKCLIENT_SASL_PASSWORD")
    complaint = run("topics", "list", *USER, "-X", f"sasl.password={CANARY}").complaint
    assert complaint.splitlines()[0] == (
        "pykclient: sasl.password is on the command line, which other users of this machine "
        "may see; give -X sasl.password alone to be asked for it, or set the variable "
        "PYKCLIENT_SASL_PASSWORD"
    )
    file.write_text(f"{FOR_FILE}sasl.password={CANARY}\n")
    assert "may read it" not in run("topics", "list", "-F", file).complaint
    file.chmod(0o644)
    complaint = run("topics", "list", "-F", file).complaint
    assert f"pykclient: {file} holds sasl.password, and all users of this machine may" in complaint
    file.parent.chmod(0o700)
    assert "may read it" not in run("topics", "list", "-F", file).complaint


WRONG: list[tuple[str, ...]] = [
    ("topics", "list", "-X", f"sasl.password:{CANARY}"),
    ("topics", "list", "-X", f"sasl.password:{CANARY}=="),
    ("topics", "list", "-X", f"sasl.password {CANARY}="),
    ("topics", "list", "-X", "sasl.password", CANARY),
    ("topics", "list", "-X", "sasl.password", "=", CANARY),
    ("topics", "list", "-X", "sasl.password=", CANARY),
    ("topics", "list", "-X", "sasl.pasword", CANARY),
    ("topics", "list", "-X", f"sasl.pasword:{CANARY}"),
    ("topics", "list", "-X", f"sasl.pasword={CANARY}"),
    ("topics", "list", "-X", CANARY),
    ("topics", "list", f"-Xsasl.password:{CANARY}"),
    ("topics", "list", f"--config=sasl.password:{CANARY}"),
    ("topics", "list", "-x", f"sasl.password={CANARY}"),
    ("topics", "list", "-x", f"sasl.pasword:{CANARY}"),
    ("topics", "list", f"-xsasl.password={CANARY}"),
    ("topics", "list", f"--sasl.password={CANARY}"),
    ("topics", "list", "--sasl.password", CANARY),
    ("topics", "list", f"sasl.password={CANARY}"),
    ("topics", "-X", f"sasl.password={CANARY}", "list"),
    ("topics", "-X", "sasl.password", CANARY, "list"),
    ("-X", f"sasl.password={CANARY}", "topics", "list"),
    ("topics", "list", "-b", f"alice:{CANARY}@localhost:9092"),
    ("topics", "list", "-b", f"alice:{CANARY}@localhost"),
    ("topics", "list", "-b", f"SASL_SSL://alice:{CANARY}@localhost:9092"),
    ("topics", "list", f"alice:{CANARY}@localhost:9092"),
    ("topics", "list", "-F", f"sasl.password={CANARY}"),
    ("topics", "list", "-X", "sasl.jaas.config=a.B", "required", f"password={CANARY}"),
    ("topics", "list", *LOGIN, "-X", f'sasl.jaas.config=a.B required password="{CANARY}"'),
    ("topics", "list", *LOGIN, "-X", f"sasl.jaas.config={CANARY}"),
    ("topics", "list", "--timeout", f"sasl.password={CANARY}"),
    ("topics", "describe", "-X", "sasl.password=x", f"password={CANARY}"),
    ("produce", "-t", "t", "-l", f"sasl.password={CANARY}"),
    ("produce", "-t", "t", "-p", f"sasl.password={CANARY}"),
    ("topics", "list", "-v", *USER, "-X", f"sasl.password={CANARY}x"),
]


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_no_message_repeats_a_secret(run: Commands, words: tuple[str, ...]) -> None:
    result = run(*words, given=b"")
    assert result.status in (1, 2)
    assert CANARY not in result.complaint + result.output.decode()


def test_an_address_with_a_user_in_a_variable_is_not_repeated(
    run: Commands, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKCLIENT_BOOTSTRAP_SERVERS", f"alice:{CANARY}@localhost:9092")
    result = run("topics", "list")
    assert result.status == 1
    assert CANARY not in result.complaint
    assert "'<hidden>@localhost:9092'" in result.complaint
    assert "An address has no user; set user and password in" in result.complaint


def test_what_is_no_secret_is_repeated() -> None:
    words = (
        *("describe", "-b", "localhost:9092", "user-tokens", "other", "flush.ms=5"),
        *("s@2023-11-01T00:00", "C:\\file", "client.id=me", "-X", "client.id=you"),
    )
    said = " ".join(words)
    assert Echo(words).masked(said) == said.replace("flush.ms=5", "flush.ms=<hidden>")


def test_a_short_secret_hides_no_part_of_other_words() -> None:
    echo = Echo(["list", "-X", "sasl.password", "is"])
    assert echo.masked("this is 'is'") == "this <hidden> '<hidden>'"


def test_a_long_word_that_a_message_cuts_shows_none_of_its_secret() -> None:
    word = f'sasl.jaas.config=a.B required password="{CANARY}" {"x" * 100}'
    echo = Echo(["-b", word])
    for cut in (repr(word)[:100], repr(word[:100]), word[:100]):
        assert CANARY in f"bootstrap.servers={cut}..."
        assert CANARY not in echo.masked(f"bootstrap.servers={cut}...")


def test_a_wrong_separator_is_named_and_so_is_the_right_one(run: Commands) -> None:
    result = run("topics", "list", "-X", f"sasl.password:{CANARY}")
    assert re.search("-X/--config: write it as sasl.password=VALUE", result.complaint)
    result = run("topics", "list", "-X", "client.id")
    assert "write it as client.id=VALUE" in result.complaint
