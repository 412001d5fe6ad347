"""In-process Kafka brokers for tests: sans-IO, with a test-controlled clock and injected faults.

Owner: the caller; only `server` has a thread, a lock and a real clock.
"""

from pykclient.testing.fake import faults

__all__ = ["faults"]
