"""Every page's programs with the wrong thing in them: no broker, no topic, closed outputs.

A script raises an error that says what and where in one line, the last one of Python's traceback. A
service goes on, logs it, and ends well at SIGTERM. What it cannot go on from ends it with one line
and status 1, and so does an output that cannot be written. One script shows the same end.

README's examples, and those of docs/spark.md, are for a Python prompt: their errors are exceptions
(`tests/spark/test_readme.py` has those that need Spark).
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pykclient import Producer
from pykclient.errors import KafkaError, RecordDeserializationError
from pykclient.testing import FakeKafka
from pykclient.testing.port import PortReservation
from tests.integration.test_readme import example
from tests.pages.programs import DOCS, Program, programs

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TextIO


SERVICES = (
    *("service.py", "ship_orders.py", "measure.py", "bill_orders.py", "charge_orders.py"),
    "bill_async.py",
    "workers.py",
)
ENDING_WITH_A_LINE = "place_orders.py"
"""The script that shows how one ends with a line, as services do."""
SCRIPTS = (
    *("create_orders.py", "orders_table.py"),
    *("load_lines.py", "urgent_orders.py", "topic_settings.py"),
    *("set_up.py", "lag.py", "archive_orders.py", "send_csv.py", "keys_of_librdkafka.py"),
    *("mailer.py", "ledger.py", "archive.py", "watcher.py", "to_the_end.py"),
    *("versioned.py", "lags.py", "orders_of_an_hour.py", "keep_longer.py", "grow.py"),
)
WITH_AN_ARGUMENT = ("load_lines.py", "lag.py", "archive_orders.py", "send_csv.py")
WITHOUT_A_TOPIC = ("create_orders.py", "set_up.py", "lag.py", "lags.py")
"""Programs that create their topics, or need none."""
TESTED_ELSEWHERE = (
    *(
        "test_orders.py",
        "test_charges.py",
        "test_faults.py",
        "test_settings.py",
        "test_real_kafka.py",
    ),
    *("web.py", "gunicorn.conf.py", "price_orders.py"),
    "copy_orders.py",
)
"""Programs that bring their own brokers, that another program runs, or that test_producer.py runs
with a fault."""
PRINTING = tuple(
    name
    for name in (*SERVICES, ENDING_WITH_A_LINE)
    if re.search(r"\bprint\((?!.*file=sys\.stderr)", programs()[name].text)
)
NO_ROOM = Path("/dev/full")
RUN_TIMEOUT_S = 60
REASONS = {
    "closed pipe": "[Errno 32] Broken pipe",
    "full disk": "[Errno 28] No space left on device",
}


@pytest.fixture(scope="module")
def dead_address() -> Iterator[str]:
    """Provide an address at which no socket listens."""
    reservation = PortReservation()
    yield f"127.0.0.1:{reservation.port}"
    reservation.close()


@pytest.fixture(scope="module")
def empty_servers() -> Iterator[str]:
    """Provide a cluster without topics, which makes none by itself."""
    with FakeKafka(auto_create_topics=False) as fake:
        yield fake.bootstrap_servers


@pytest.fixture
def argument(tmp_path: Path) -> str:
    """Provide the argument of programs that want a file, a folder or a group."""
    file = tmp_path / "lines"
    file.write_bytes(b"first\nsecond\n")
    return str(file)


def impatient(program: Program) -> Program:
    """Return the program with a fifth of a second where it waits for ten."""
    return program.with_any_of(
        {
            "10_000": "200",
            "5_000": "200",
            "10.0": "0.2",
            "sleep(1.0)": "sleep(0.01)",
            "timeout=1.0": "timeout=0.2",
        }
    )


def test_each_program_is_tried() -> None:
    tried = {*SERVICES, *SCRIPTS, ENDING_WITH_A_LINE, *TESTED_ELSEWHERE}
    assert sorted(tried) == sorted(programs())


@pytest.mark.parametrize("name", WITH_AN_ARGUMENT)
def test_a_script_without_its_argument_says_how_it_is_used(name: str) -> None:
    ended = programs()[name].run()
    assert ended.status == 1
    assert ended.said.startswith(f"usage: python {name} ")


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_without_a_broker_raises_what_is_wrong(
    name: str, dead_address: str, argument: str
) -> None:
    program = impatient(programs()[name]).at(dead_address)
    with pytest.raises(
        KafkaError, match=f"cannot connect to {dead_address}: connection refused"
    ) as raised:
        program.run(argument)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", [name for name in SCRIPTS if name not in WITHOUT_A_TOPIC])
def test_a_script_without_its_topic_raises_what_to_do(
    name: str, empty_servers: str, argument: str
) -> None:
    with pytest.raises(KafkaError, match="create") as raised:
        impatient(programs()[name]).at(empty_servers).run(argument)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", SCRIPTS)
def test_an_interrupt_ends_a_script(name: str, dead_address: str, argument: str) -> None:
    program = programs()[name].at(dead_address)
    with pytest.raises(KeyboardInterrupt):
        program.run(argument, stop_when=lambda text: "connect" in text, by=signal.SIGINT)


def test_the_last_line_of_a_traceback_is_the_message(dead_address: str) -> None:
    program = impatient(programs()["create_orders.py"]).at(dead_address)
    ended = subprocess.run(
        [sys.executable, "-c", program.text],
        capture_output=True,
        env=ENVIRON,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert ended.returncode == 1
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("pykclient.errors.")
    assert f"cannot connect to {dead_address}: connection refused" in last


@pytest.mark.parametrize("is_there", [False, True], ids=["no broker", "no topic"])
def test_one_script_shows_an_end_of_one_line(
    is_there: bool, dead_address: str, empty_servers: str
) -> None:
    servers, reason = dead_address, f"cannot connect to {dead_address}: connection refused"
    if is_there:
        servers, reason = empty_servers, "create"
    ended = impatient(programs()[ENDING_WITH_A_LINE]).at(servers).run()
    assert ended.status == 1
    assert ended.said.startswith("place_orders: ")
    assert ended.said.count("\n") == 1
    assert reason in ended.said


def test_an_interrupt_ends_that_script_with_a_line(dead_address: str) -> None:
    program = programs()[ENDING_WITH_A_LINE].at(dead_address)
    ended = program.run(stop_when=lambda text: "connect" in text, by=signal.SIGINT)
    assert (ended.status, ended.said) == (1, "place_orders: interrupted\n")


@pytest.fixture
def servers_with_bad_json(fake_kafka: FakeKafka) -> str:
    """Provide a cluster with an order that is no JSON."""
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send("orders", b"{").result()
    return fake_kafka.bootstrap_servers


def test_a_record_that_is_no_json_ends_the_service_with_a_line(servers_with_bad_json: str) -> None:
    ended = programs()["ship_orders.py"].at(servers_with_bad_json).run()
    assert ended.status == 1
    assert ended.said.startswith("ship_orders: orders-0: value_deserializer failed")
    assert ended.said.count("\n") == 1


def test_a_script_raises_a_record_that_is_no_json(servers_with_bad_json: str) -> None:
    with pytest.raises(RecordDeserializationError, match="orders-0: value_deserializer failed"):
        programs()["versioned.py"].at(servers_with_bad_json).run()


@pytest.mark.parametrize("name", [*SERVICES, "price_orders.py"])
@pytest.mark.parametrize(
    ("is_there", "by"),
    [(False, signal.SIGTERM), (True, signal.SIGTERM), (False, signal.SIGINT)],
    ids=["no broker", "no topic", "no broker, Ctrl-C"],
)
def test_a_service_goes_on_and_ends_at_a_signal(
    name: str, is_there: bool, by: signal.Signals, dead_address: str, empty_servers: str
) -> None:
    servers, reason = dead_address, "connection refused"
    if is_there:
        servers, reason = empty_servers, "create"
    program = impatient(programs()[name]).at(servers)
    default = signal.getsignal(by)
    ended = program.run(
        stop_when=lambda text: reason in text and signal.getsignal(by) != default, by=by
    )
    assert (ended.status, ended.said) == (0, "")


@pytest.fixture
def ordered_servers(fake_kafka: FakeKafka) -> str:
    """Provide a cluster with an order, which is a valid JSON."""
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        producer.send("orders", b"1").result()
    return fake_kafka.bootstrap_servers


@pytest.fixture(params=REASONS)
def bad_output(request: pytest.FixtureRequest) -> Iterator[tuple[TextIO, str]]:
    """Provide an output that cannot be written, and why."""
    if request.param == "closed pipe":
        reader, writer = os.pipe()
        os.close(reader)
        output = open(writer, "w", encoding="utf-8")  # noqa: SIM115  # the program closes it
    elif NO_ROOM.exists():
        output = NO_ROOM.open("w", encoding="utf-8")
    else:
        pytest.skip(f"there is no {NO_ROOM}")
    yield output, REASONS[request.param]
    output.close()


@pytest.mark.parametrize("name", PRINTING)
def test_an_output_that_cannot_be_written_ends_a_program_with_a_line(
    name: str, bad_output: tuple[TextIO, str], ordered_servers: str
) -> None:
    output, reason = bad_output
    ended = programs()[name].at(ordered_servers).run(output=output)
    assert (ended.status, ended.said) == (1, f"{name.removesuffix('.py')}: {reason}\n")
    assert output.closed, "Python flushes an open one at its end, and complains"


def command(name: str, servers: str, folder: Path) -> list[str]:
    """Return the command line that runs a program in a process of its own."""
    (folder / name).write_text(programs()[name].at(servers).text, encoding="utf-8")
    return [sys.executable, str(folder / name)]


ENVIRON = {**os.environ, "PYTHONPATH": str(DOCS.parent)}


@pytest.mark.parametrize(
    "name",
    ["place_orders.py", "ship_orders.py", pytest.param("price_orders.py", marks=pytest.mark.soak)],
)
def test_python_adds_nothing_to_the_line(
    name: str, bad_output: tuple[TextIO, str], ordered_servers: str, tmp_path: Path
) -> None:
    """Covers a script, which prints into a buffer, and services, which flush."""
    output, reason = bad_output
    ended = subprocess.run(
        command(name, ordered_servers, tmp_path),
        stdout=output,
        stderr=subprocess.PIPE,
        env=ENVIRON,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    lines = [line for line in ended.stderr.splitlines() if not line.startswith("INFO:")]
    assert (ended.returncode, lines) == (1, [f"{name.removesuffix('.py')}: {reason}"])


@pytest.mark.skipif(not NO_ROOM.exists(), reason=f"there is no {NO_ROOM}")
def test_a_file_that_finds_no_room_is_an_error_of_the_script(
    ordered_servers: str, tmp_path: Path
) -> None:
    (tmp_path / f"orders-{0:012}.parquet").symlink_to(NO_ROOM)
    with pytest.raises(OSError, match="No space left on device"):
        programs()["archive_orders.py"].at(ordered_servers).run(str(tmp_path))


@pytest.mark.parametrize("name", ["place_orders.py", "to_the_end.py"])
def test_without_a_terminal_and_with_its_input_closed_a_script_does_the_same(
    name: str, ordered_servers: str, tmp_path: Path
) -> None:
    ended = subprocess.run(
        ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command(name, ordered_servers, tmp_path)],
        capture_output=True,
        env={key: value for key, value in ENVIRON.items() if key != "TERM"},
        start_new_session=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout != ""


def test_the_readmes_first_example_raises_what_a_script_would_print(dead_address: str) -> None:
    written = 'Admin(bootstrap_servers="localhost:9092"'
    impatient_one = f'Admin(bootstrap_servers="{dead_address}", default_api_timeout_ms=200'
    program = Program("README.md", "Produce", example("Produce"))
    with pytest.raises(KafkaError, match=f"cannot connect to {dead_address}: connection refused"):
        program.with_words({written: impatient_one}).run()


def test_the_readmes_service_goes_on_and_ends_at_sigterm(dead_address: str) -> None:
    text = example("Consume in a group")
    program = Program("README.md", "Consume in a group", text).at(dead_address)
    ended = program.run(stop_when=lambda text: "connection refused" in text)
    assert (ended.status, ended.said) == (0, "")
