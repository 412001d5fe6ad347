"""A process of an application: threads that use real clients, and their connections.

`Producer`, `Consumer` and `Admin` are complete, including their blocking calls. Only sockets,
clocks and threads are simulated. A thread that waits for a producer drives it, as `drive_until`
does in the sender thread. A consumer's heartbeat thread is a thread of the process, which runs when
it is due. No two threads of a run run at once.

A process may die between any two steps, while bytes in flight still arrive. A thread may be
*stopped* for a while, as by a signal or a long garbage collection.

Owner: the simulation.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Final
from unittest.mock import patch

from pykclient.accel import Gate
from pykclient.admin import admin
from pykclient.consumer import core as consumer_core
from pykclient.consumer import heartbeat_thread
from pykclient.consumer.group.kip848 import membership
from pykclient.errors import ClosedError
from pykclient.network.drive import drive_until, now_ms
from pykclient.network.manager import NEVER_MS
from pykclient.producer import producer
from tests.simulation.simulated_clients import seed_all
from tests.simulation.simulated_network import SimulatedNetwork, WaitingPort
from tests.simulation.simulated_thread import SimulatedThread

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pykclient.errors import KafkaError
    from pykclient.network.engine import Engine
    from pykclient.network.io.port import Stream
    from pykclient.producer.delivery import Awaited
    from pykclient.producer.sender.lifecycle import Lifecycle
    from tests.simulation.simulated_world import SimulatedTime

_PROCESS: Final[ContextVar[SimulatedProcess]] = ContextVar("_PROCESS")
"""Process of the current thread."""


class SimulatedProcess:
    """A process that lives until `kill`; see the module."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self.network = network
        self.is_dead = False
        self.running: ProcessThread | None = None
        self.lifecycles: list[Lifecycle] = []
        self.background: list[ProcessThread] = []
        """Threads started by its clients, for the simulation to run."""
        self._ports: list[ProcessPort] = []

    def port(self) -> ProcessPort:
        """Return a port for another client."""
        self._ports.append(ProcessPort(self))
        return self._ports[-1]

    def kill(self) -> None:
        """Kill the process: the system closes its connections after sending written bytes."""
        self.is_dead = True
        for thread in self.background:
            thread.kill()
        for lifecycle in self.lifecycles:
            lifecycle.refuse(ClosedError("the process is gone"))
        for port in self._ports:
            port.shutdown()


class ProcessThread(SimulatedThread):
    """A thread of a process. `sleep` is for its program."""

    def __init__(self, process: SimulatedProcess, program: Callable[[], None]) -> None:
        super().__init__(self._run_in_process)
        self.process = process
        self.stopped_until_ms = 0
        self._program_of_process = program
        self._wakes_ms = 0
        self._port: ProcessPort | None = None
        """Port that it waits for; None while it sleeps."""

    def turn(self, now_ms: int) -> int:
        """Continue the thread if that is due; return when to call again."""
        if not self.is_done and self._due_ms <= now_ms:
            self.resume()
        return NEVER_MS if self.is_done else self._due_ms

    @property
    def _due_ms(self) -> int:
        due_ms = self._wakes_ms if self._port is None else self._port.due_ms
        return max(due_ms, self.stopped_until_ms)

    def sleep(self, duration_ms: int) -> None:
        """Sleep in simulated time."""
        self._port = None
        self._wakes_ms = self.process.network.clock.now_ms + duration_ms
        self.pause()

    def wake(self, wait_ms: int) -> None:
        """Shorten the thread's sleep to `wait_ms` from now, if it sleeps."""
        if self._port is None:
            now_ms = self.process.network.clock.now_ms
            self._wakes_ms = min(self._wakes_ms, now_ms + wait_ms)

    def wait_for(self, port: ProcessPort) -> None:
        """Pause until a port has news or its timeout is over."""
        self._port = port
        self.pause()

    def _run_in_process(self) -> None:
        _PROCESS.set(self.process)
        self._program_of_process()

    def resume(self) -> None:
        """Continue until it pauses or ends."""
        self.process.running = self
        super().resume()


def present_thread() -> ProcessThread:
    """Return the running thread of the current process."""
    thread = _PROCESS.get().running
    assert thread is not None
    return thread


class ProcessPort(WaitingPort):
    """The port of a client, usable by any thread of its process. A dead process sends nothing."""

    def __init__(self, process: SimulatedProcess) -> None:
        super().__init__(process.network, self._pause_thread)
        self._process = process

    @staticmethod
    def of_present_process(_: object) -> ProcessPort:
        """Return a port for a client created in the current process."""
        return _PROCESS.get().port()

    def open(self, stream: Stream, host: str, port: int, *, attempt: int) -> None:
        """Connect."""
        if not self._process.is_dead:
            super().open(stream, host, port, attempt=attempt)

    def write(self, stream: Stream, data: Sequence[bytes | bytearray | memoryview]) -> None:
        """Send bytes."""
        if not self._process.is_dead:
            super().write(stream, data)

    def close(self, stream: Stream) -> None:
        """Close a stream."""
        if not self._process.is_dead:
            super().close(stream)

    def wakeup(self) -> None:
        """Wake a waiting thread."""
        self.wakes_ms = min(self.wakes_ms, self._network.clock.now_ms)

    def warn_if_dropped(
        self, owner: object, message: str, close_when_unused: object = None
    ) -> None:
        """Seed a new client's random numbers; never warn."""
        del message, close_when_unused
        seed_client(self, owner)

    def _pause_thread(self) -> None:
        assert self._process.running is not None
        self._process.running.wait_for(self)


def sleep_in_process(duration_s: float) -> None:
    """Replace `time.sleep` in a thread of a process."""
    present_thread().sleep(round(duration_s * 1_000))


class _Sockets:
    """Replaces the class `SelectorPort`."""

    from_config = ProcessPort.of_present_process


class DrivenByWaiters:
    """Replaces `SenderThread`: a thread that waits for the producer drives it."""

    def __init__(self, name: str) -> None:
        del name
        self._is_over = False

    def start(
        self,
        engine: Engine,
        port: ProcessPort,
        lifecycle: Lifecycle,
        *,
        inside: Collection[int],
    ) -> None:
        """Store the engine; nothing runs yet."""
        del inside
        self._engine, self._port, self._lifecycle = engine, port, lifecycle
        _PROCESS.get().lifecycles.append(lifecycle)
        seed_client(port, [engine, lifecycle])

    def is_current(self) -> bool:
        """Return False: nothing runs in delivery callbacks here."""
        return False

    def needs_caller(self) -> bool:
        """Return False: nothing interrupts here."""
        return False

    def failures(self) -> tuple[str, KafkaError | None]:
        """Return nothing: simulated calls wait without a limit of their own."""
        return "", None

    def check_may_wait(self, what: str) -> None:
        """Allow every wait."""

    def await_gate(self, gate: Gate, timeout_s: float, what: str) -> bool:
        """Drive until a gate is open or the timeout is over; negative means no limit."""
        del what
        is_open = False

        def is_opened() -> bool:
            nonlocal is_open
            is_open = is_open or gate.wait(0)
            return is_open

        deadline_ms = NEVER_MS if timeout_s < 0 else now_ms() + round(timeout_s * 1_000)
        return drive_until(self._engine, self._port, until=is_opened, deadline_ms=deadline_ms)

    def wait(self, result: Awaited, index: int, timeout: float | None) -> bool:
        """Drive until a delivery has a result or the timeout is over; None means no limit."""
        gate = Gate()
        waker = gate.open
        try:
            result.add_waker(index, waker)
            self.await_gate(gate, -1 if timeout is None else timeout, "")
        finally:
            result.remove_waker(index, waker)
        return result.is_done(index)

    def join(self, timeout_s: float, notice: object = None) -> bool:
        """Drive to the end or the timeout; return whether the end was reached."""
        del notice  # for long waits
        if not self._is_over:
            deadline_ms = now_ms() + round(timeout_s * 1_000)
            self._is_over = drive_until(
                self._engine,
                self._port,
                until=self._lifecycle.is_finished,
                deadline_ms=deadline_ms,
            )
            if self._is_over:
                self._engine.client.close()
                self._port.shutdown()
                self._lifecycle.on_end()
        return self._is_over


class _BackgroundThread:
    """Replaces `threading.Thread`: its process runs it when it is due."""

    def __init__(self, target: Callable[[], None], name: str, *, daemon: bool) -> None:
        del name, daemon
        self._process = _PROCESS.get()
        self.thread = ProcessThread(self._process, target)

    def start(self) -> None:
        """Begin in one of the next steps."""
        self._process.background.append(self.thread)

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        return not self.thread.is_done

    def join(self, timeout_s: float) -> None:
        """Wait for its end, up to the timeout."""
        deadline_ms = now_ms() + round(timeout_s * 1_000)
        while self.is_alive() and now_ms() < deadline_ms:
            present_thread().sleep(1)


class _Threading:
    """Replaces the module `threading` in the heartbeat thread's module."""

    Thread = _BackgroundThread
    TIMEOUT_MAX = TIMEOUT_MAX

    @staticmethod
    def current_thread() -> None:
        """Return no thread of a client: none closes its consumer."""


class _BackgroundGate:
    """Replaces `Gate`, for a thread of a process."""

    def __init__(self) -> None:
        self._is_open = False
        self._waiting: ProcessThread | None = None

    def open(self) -> None:
        """Open the gate and wake the thread."""
        self._is_open = True
        if self._waiting is not None:
            self._waiting.wake(0)

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is open or the timeout is over; return whether it is open."""
        if not self._is_open and timeout_s > 0:
            self._waiting = present_thread()
            self._waiting.sleep(round(timeout_s * 1_000))
        return self._is_open


def _drawn_member_id(drawn: bytes) -> bytes:
    """Replace the encoding of a member id, which is drawn before a client can be seeded."""
    return urlsafe_b64encode(_PROCESS.get().network.random.randbytes(len(drawn)))


@contextmanager
def simulated_clients(time: SimulatedTime) -> Iterator[None]:
    """Make clients created by threads of simulated processes simulated ones."""
    with ExitStack() as stack:
        stack.enter_context(time.installed())
        for module, stand_ins in (
            (producer, {"SelectorPort": _Sockets, "SenderThread": DrivenByWaiters, "time": time}),
            (admin, {"SelectorPort": _Sockets}),
            (consumer_core, {"SelectorPort": _Sockets}),
            (heartbeat_thread, {"threading": _Threading, "Gate": _BackgroundGate}),
            (membership, {"urlsafe_b64encode": _drawn_member_id}),
        ):
            stack.enter_context(patch.multiple(module, **stand_ins))
        yield


def seed_client(port: ProcessPort, client: object) -> None:
    """Seed a new client's random numbers."""
    seed_all(client, port._network.random.getrandbits(32))
