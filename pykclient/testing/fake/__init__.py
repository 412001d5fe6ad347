"""Kafka brokers inside the process: sans-IO, with a clock and faults that a test commands.

Owner: whoever calls; nothing here has a thread, a lock or a clock but `server`.
"""

from pykclient.testing.fake import faults

__all__ = ["faults"]
