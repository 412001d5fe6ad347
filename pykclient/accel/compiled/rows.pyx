"""Many records at once, as columns: assigns them to partitions and appends them to open batches.

It behaves like `accel.pure.rows`. One loop encodes rows. It holds the GIL if other threads
may see the batch, and releases it otherwise.

Owner: a block never changes; a run belongs to the thread that sends it.
Source: as the pure twin.
"""

cimport cython
from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.limits cimport INT_MAX
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t
from libc.string cimport memcpy

from pykclient.accel.compiled.byte_column cimport ByteColumn, Field, Items, field_at
from pykclient.accel.compiled.hashes cimport HASHES, NULL_IS_HASHED, is_hashed, partition_of
from pykclient.accel.compiled.lock cimport give_core_lock, take_core_lock
from pykclient.accel.compiled.send cimport RecordAppender
from pykclient.accel.compiled.varint cimport put_varint, varint_size

from pykclient.accel.pure.rows import (
    ROW_OVERHEAD_BYTES_MAX, ROW_OVERHEAD_EXCESS_BYTES, RowGroup, columns_differ,
)
from pykclient.errors.base import SerializationError

__all__ = ["RowBlock", "RowRun", "largest_partitions"]

cdef enum:
    STRETCH_BYTES = 262_144  # encoded under one lock: some tens of microseconds

cdef Py_ssize_t OVERHEAD_BYTES = ROW_OVERHEAD_BYTES_MAX
cdef Py_ssize_t OVERHEAD_EXCESS_BYTES = ROW_OVERHEAD_EXCESS_BYTES
cdef array NUMBERS = array("q")
cdef array INDEXES = array("i")


cdef enum Stop:
    ALL_DONE
    BATCH_FULL
    NO_ROOM


@cython.final
cdef class RowBlock:
    """Records as columns of the same length.

    `keys` and `headers` None mean that all are null, or have none; `headers` are encoded.
    `timestamps_ms` is one number for all, or one for each, and not negative. `first_row` is the
    number of the block's first row in the whole that it is part of.
    """

    cdef readonly Py_ssize_t first_row
    cdef Py_ssize_t count
    cdef ByteColumn values, keys, headers
    cdef const int64_t[::1] times
    # NULL if all have `time_ms`.
    cdef const int64_t* times_ms
    cdef int64_t time_ms
    cdef Py_ssize_t largest_row, largest_bytes, total_bytes

    def __init__(
        self, ByteColumn values not None, *, ByteColumn keys, ByteColumn headers, timestamps_ms,
        Py_ssize_t first_row,
    ):
        cdef Py_ssize_t row, size
        self.first_row = first_row
        self.count = values.count
        self.values, self.keys, self.headers = values, keys, headers
        if keys is not None and keys.count != self.count:
            raise SerializationError(columns_differ("keys", keys.count, self.count))
        if headers is not None and headers.count != self.count:
            raise SerializationError(columns_differ("headers", headers.count, self.count))
        self.time_ms = -1
        if isinstance(timestamps_ms, int):
            self.time_ms = timestamps_ms
        else:
            self.times = timestamps_ms
            if self.times.shape[0] != self.count:
                raise SerializationError(
                    columns_differ("timestamps", self.times.shape[0], self.count)
                )
            if self.count:
                self.times_ms = &self.times[0]
        with nogil:
            for row in range(self.count):
                size = self.size_bytes(row)
                self.total_bytes += size
                if size > self.largest_bytes:
                    self.largest_row, self.largest_bytes = row, size

    def __len__(self):
        return self.count

    def key_and_value(self, Py_ssize_t row):
        """Return the key and the value of a row, by its index in the block."""
        if not 0 <= row < self.count:
            raise IndexError("there is no such row")
        return (None if self.keys is None else bytes_at(self.keys, row)), bytes_at(self.values, row)

    def largest(self):
        """Return the first row with the largest possible size in a batch, and that size.

        The block must not be empty.
        """
        return self.first_row + self.largest_row, self.largest_bytes

    def all_rows(self):
        """Return all rows as one run."""
        return run_of(self, None, 0, self.count, self.total_bytes)

    def by_partition(
        self, partition_counts, *, int key_rule, take_turn, topics=None, partitions=None
    ):
        """Return the runs for each partition, each in the block's order.

        `partition_counts` has the topics' partition counts, `topics` each row's index into it
        (None: a single topic); `partitions` has each row's partition, -1 or None to leave it to the
        key. A row whose key `key_rule` hashes goes to the partition of the hash. All others go to
        the sticky partition: as a separate run with partition None if no row of their topic has a
        fixed partition, otherwise merged in order with those that have.

        ``take_turn(topic, size_bytes)`` counts the bytes that the sticky partition took since the
        last call, and returns the next sticky partition and the minimum number of bytes it takes.
        """
        cdef Grouping grouping = Grouping(partition_counts, topics, partitions)
        grouping.check(self)  # before memory is allocated for it
        are_keys_hashed = key_rule & HASHES and (
            self.keys is not None or key_rule & NULL_IS_HASHED
        )
        if self.count and topics is None and partitions is None and not are_keys_hashed:
            return [RowGroup(0, None, self.all_rows())]
        return grouping.groups(self, key_rule, take_turn)

    cdef inline Py_ssize_t size_bytes(self, Py_ssize_t row) noexcept nogil:
        """Return the maximum size of a row in a batch."""
        cdef Py_ssize_t size = OVERHEAD_BYTES + max(field_at(&self.values.items, row).size, 0)
        if self.keys is not None:
            size += max(field_at(&self.keys.items, row).size, 0)
        if self.headers is not None:
            size += max(field_at(&self.headers.items, row).size, 0)
        return size


@cython.final
cdef class RowRun:
    """The rows of a block for one destination, in order, without those already taken."""

    cdef RowBlock block
    # The rows' numbers in the block; None for all rows.
    cdef array numbers
    cdef Py_ssize_t position, stop, bytes_per_row

    def __len__(self):
        return self.stop - self.position

    @property
    def size_bytes_estimate(self):
        """Estimated size of the remaining rows; enough for the first one, if there is one."""
        return self.estimate()

    @property
    def next_size_bytes_max(self):
        """Maximum size of the next row; 0 if there is none."""
        return self.block.size_bytes(self.row_at(self.position)) if len(self) else 0

    def append_to(self, RecordAppender appender not None):
        """Append as many rows as fit, or some of them; return the first index and their number.

        No row is appended only if none fits. Take the appended rows afterwards.
        """
        cdef Py_ssize_t first, count
        take_core_lock(&appender.lock)
        try:
            first = appender.count
            count = self.encode(appender, STRETCH_BYTES)
        finally:
            give_core_lock(&appender.lock)
        return first, count

    def fill(self, RecordAppender appender not None):
        """Append as many rows as fit to an appender of this thread only; return their number."""
        return self.encode(appender, 0)

    def take(self, Py_ssize_t count):
        """Remove the next `count` rows; return their indexes, as a range if they are contiguous."""
        cdef Py_ssize_t start = self.position, first = self.block.first_row, index
        cdef array taken
        count = max(0, min(count, self.stop - start))
        self.position = start + count
        if not count:
            return range(first, first)
        start, stop = self.row_at(start), self.row_at(start + count - 1)
        if stop - start == count - 1:
            return range(first + start, first + start + count)
        taken = clone(NUMBERS, count, zero=False)
        for index in range(count):
            taken.data.as_longlongs[index] = (
                first + self.numbers.data.as_longlongs[self.position - count + index]
            )
        return taken

    cdef inline Py_ssize_t row_at(self, Py_ssize_t position) noexcept nogil:
        return position if self.numbers is None else self.numbers.data.as_longlongs[position]

    cdef Py_ssize_t estimate(self) noexcept nogil:
        if self.position == self.stop:
            return 0
        return max(
            self.bytes_per_row * (self.stop - self.position),
            self.block.size_bytes(self.row_at(self.position)),
        )

    cdef Py_ssize_t encode(self, RecordAppender appender, Py_ssize_t stretch_bytes) except -1:
        """Append rows until one does not fit, or `stretch_bytes` are written (0: no limit)."""
        cdef Cursor cursor
        cdef bint is_private = not stretch_bytes
        cdef Py_ssize_t end_bytes = appender.size + stretch_bytes, estimate = self.estimate()
        cdef Stop stop = ALL_DONE
        if self.position == self.stop:
            return 0
        if stretch_bytes:
            estimate = min(estimate, stretch_bytes)
        cursor.position = self.position
        cursor.end_bytes = <Py_ssize_t>INT64_MAX if is_private else end_bytes
        cursor.wanted_bytes = min(appender.size + estimate, appender.capacity_bytes)
        while True:
            if cursor.wanted_bytes > appender.allocated:
                appender.make_room(cursor.wanted_bytes)
            begin(&cursor, self, appender)
            if is_private:
                with nogil:
                    stop = put_rows(&cursor, self, self.block)
            else:
                stop = put_rows(&cursor, self, self.block)
            commit(&cursor, appender)
            if stop != NO_ROOM:
                return cursor.position - self.position


cdef struct Cursor:
    # The progress of a span of rows; the appender is updated when the span is written.
    unsigned char* out
    Py_ssize_t size
    Py_ssize_t allocated
    Py_ssize_t capacity
    Py_ssize_t end_bytes
    Py_ssize_t wanted_bytes
    Py_ssize_t position
    Py_ssize_t index
    bint is_sealed
    int64_t base_ms
    int64_t first_ms
    int64_t max_ms


cdef void begin(Cursor* cursor, RowRun run, RecordAppender appender) noexcept:
    cdef Py_ssize_t row = run.row_at(cursor.position)
    cursor.out = appender.buffer
    cursor.size = appender.size
    cursor.allocated = appender.allocated
    cursor.capacity = appender.capacity_bytes
    cursor.index = appender.count
    cursor.is_sealed = appender.is_sealed
    cursor.first_ms = run.block.time_ms if run.block.times_ms is NULL else run.block.times_ms[row]
    cursor.base_ms = appender.base_timestamp_ms if appender.count else cursor.first_ms
    cursor.max_ms = appender.max_timestamp_ms


cdef int commit(Cursor* cursor, RecordAppender appender) except -1:
    """Commit the written rows to the appender."""
    if cursor.index > appender.count:
        if cursor.first_ms != appender.last_timestamp_ms:
            appender.note_timestamp(cursor.first_ms)
        appender.max_timestamp_ms = cursor.max_ms
        appender.size = cursor.size
        appender.count = cursor.index
    return 0


cdef Stop put_rows(Cursor* cursor, RowRun run, RowBlock block) noexcept nogil:
    """Write rows from the cursor on, and advance it."""
    cdef const int64_t* numbers = NULL
    cdef const int64_t* times_ms = block.times_ms
    cdef const Items* values = &block.values.items
    cdef const Items* keys = NULL if block.keys is None else &block.keys.items
    cdef const Items* headers = NULL if block.headers is None else &block.headers.items
    cdef Py_ssize_t row, body_size, end
    cdef int64_t time_ms = block.time_ms, delta_ms = time_ms - cursor.base_ms
    cdef unsigned char* out
    cdef Field key, value, header
    if run.numbers is not None:
        numbers = <const int64_t*>run.numbers.data.as_longlongs
    key.data, key.size = NULL, -1
    header.data, header.size = NULL, 0
    while cursor.position < run.stop:
        if cursor.size >= cursor.end_bytes:
            return ALL_DONE
        row = cursor.position if numbers is NULL else <Py_ssize_t>numbers[cursor.position]
        value = field_at(values, row)
        body_size = 1 + varint_size(cursor.index) + varint_size(value.size) + max(value.size, 0)
        if keys is not NULL:
            key = field_at(keys, row)
        body_size += varint_size(key.size) + max(key.size, 0)
        if headers is not NULL:
            header = field_at(headers, row)
        body_size += max(header.size, 1)
        if times_ms is not NULL:
            time_ms = times_ms[row]
            delta_ms = time_ms - cursor.base_ms
        body_size += varint_size(delta_ms)
        end = cursor.size + varint_size(body_size) + body_size
        if end > cursor.capacity and (cursor.index or cursor.is_sealed):
            return BATCH_FULL
        if end > cursor.allocated:
            cursor.wanted_bytes = end
            return NO_ROOM
        out = put_varint(cursor.out + cursor.size, body_size)
        out[0] = 0  # the attributes, which nothing uses in this version
        out = put_varint(out + 1, delta_ms)
        out = put_varint(out, cursor.index)
        out = put_field(out, key)
        out = put_field(out, value)
        if header.size > 0:
            memcpy(out, header.data, header.size)
        else:
            out[0] = 0
        if time_ms > cursor.max_ms:
            cursor.max_ms = time_ms
        cursor.size = end
        cursor.index += 1
        cursor.position += 1
    return ALL_DONE


cdef inline unsigned char* put_field(unsigned char* out, Field field) noexcept nogil:
    out = put_varint(out, field.size)
    if field.size <= 0:
        return out
    memcpy(out, field.data, field.size)
    return out + field.size


cdef bytes bytes_at(ByteColumn column, Py_ssize_t row):
    cdef Field field = field_at(&column.items, row)
    if field.size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>field.data, field.size)


cdef RowRun run_of(
    RowBlock block, array numbers, Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size_bytes
):
    cdef RowRun run = RowRun.__new__(RowRun)
    run.block = block
    run.numbers = numbers
    run.position, run.stop = start, stop
    if stop > start:
        run.bytes_per_row = (size_bytes + stop - start - 1) // (stop - start)
    return run


cdef enum:
    # The kinds of rows that a topic has.
    SOMEWHERE = 1
    ANYWHERE = 2
    MIXED = 3


cdef struct Turn:
    # The group for rows that may go anywhere, until they have used all its room.
    int64_t kinds
    int64_t group
    int64_t room_bytes
    int64_t taken_bytes


@cython.final
cdef class Grouping:
    """The assignment of rows to groups.

    Each topic has a group for each of its partitions, and one behind them for what may go anywhere.
    """

    cdef list partition_counts
    cdef const int32_t[::1] topic_view, partition_view
    # NULL if there is one topic, or if no row names its partition.
    cdef const int32_t* topics
    cdef const int32_t* partitions
    cdef array bases
    cdef int32_t group_count

    def __init__(self, partition_counts, topics, partitions):
        cdef Py_ssize_t topic_count = len(partition_counts)
        self.partition_counts = list(partition_counts)
        self.topic_view, self.partition_view = topics, partitions
        if topics is not None and len(topics):
            self.topics = &self.topic_view[0]
        if partitions is not None and len(partitions):
            self.partitions = &self.partition_view[0]
        self.bases = clone(INDEXES, topic_count + 1, zero=True)
        # A topic may have fewer partitions than when they were looked up; each needs a group.
        named = [-1] * topic_count
        if partitions is not None:
            named = largest_partitions(partitions, topics, topic_count)
        total = 0
        for topic, (count, largest) in enumerate(zip(partition_counts, named)):
            total += max(count, largest + 1) + 1
            if total > INT_MAX:
                raise OverflowError("there are more partitions than numbers for them")
            self.bases[topic + 1] = total
        self.group_count = total

    cdef list groups(self, RowBlock block, int key_rule, object take_turn):
        cdef array group_of = clone(INDEXES, block.count, zero=False)
        cdef array counts = clone(NUMBERS, self.group_count + 1, zero=True)
        cdef array sizes = clone(NUMBERS, self.group_count, zero=True)
        cdef array numbers = clone(NUMBERS, block.count, zero=False)
        cdef int32_t* groups = <int32_t*>group_of.data.as_ints
        cdef int64_t* ends = <int64_t*>counts.data.as_longlongs
        cdef int64_t* size_bytes = <int64_t*>sizes.data.as_longlongs
        cdef int64_t* rows = <int64_t*>numbers.data.as_longlongs
        cdef Py_ssize_t row, group
        cdef array partition_counts = array("i", self.partition_counts)
        cdef array turns = clone(NUMBERS, 4 * len(self.partition_counts), zero=True)
        cdef Turn* turn_of = <Turn*>turns.data.as_longlongs
        with nogil:
            self.choose(
                block, groups, <const int32_t*>partition_counts.data.as_ints, key_rule, turn_of
            )
        self.count(block, groups, ends + 1, size_bytes, turn_of, take_turn)
        with nogil:
            for group in range(self.group_count):
                ends[group + 1] += ends[group]
            # Each group's start moves to its end as its rows are added.
            for row in range(block.count):
                rows[ends[groups[row]]] = row
                ends[groups[row]] += 1
        found = []
        start = 0
        for topic in range(len(self.partition_counts)):
            sticky = self.bases[topic + 1] - 1
            for group in range(self.bases[topic], sticky + 1):
                if ends[group] > start:
                    run = run_of(block, numbers, start, ends[group], size_bytes[group])
                    partition = None if group == sticky else group - self.bases[topic]
                    found.append(RowGroup(topic, partition, run))
                    start = ends[group]
        return found

    cdef int check(self, RowBlock block) except -1:
        """Check the arguments: invalid values must not be used as addresses."""
        cdef Py_ssize_t row, topic_count = len(self.partition_counts)
        if self.topic_view is not None and self.topic_view.shape[0] != block.count:
            raise SerializationError(
                columns_differ("topics", self.topic_view.shape[0], block.count)
            )
        if self.partition_view is not None and self.partition_view.shape[0] != block.count:
            raise SerializationError(
                columns_differ("partitions", self.partition_view.shape[0], block.count)
            )
        if not topic_count or min(self.partition_counts) < 1:
            raise IndexError("a topic has no partition")
        if self.topics is not NULL:
            for row in range(block.count):
                if not 0 <= self.topics[row] < topic_count:
                    raise IndexError("a row has a topic that there is not")
        return 0

    cdef int count(
        self, RowBlock block, int32_t* groups, int64_t* counts, int64_t* sizes, Turn* turn_of,
        object take_turn,
    ) except -1:
        """Count the rows of each group and their sizes.

        Rows that may go anywhere get their turns first, in topics that have other rows as well.
        """
        cdef Py_ssize_t row = 0, topic
        cdef bint is_any_mixed
        mixed = [
            topic for topic in range(len(self.partition_counts)) if turn_of[topic].kinds == MIXED
        ]
        is_any_mixed = len(mixed) > 0
        for topic in mixed:
            self.take(turn_of + topic, topic, take_turn)
        while row < block.count:
            with nogil:
                if is_any_mixed:
                    row = self.count_mixed(block, groups, counts, sizes, turn_of, row)
                else:
                    for row in range(block.count):
                        counts[groups[row]] += 1
                        sizes[groups[row]] += block.size_bytes(row)
                    row = block.count
            if row < block.count:
                topic = 0 if self.topics is NULL else self.topics[row]
                self.take(turn_of + topic, topic, take_turn)
        for topic in mixed:
            take_turn(topic, turn_of[topic].taken_bytes)
        return 0

    cdef int take(self, Turn* turn, Py_ssize_t topic, object take_turn) except -1:
        partition, room_bytes = take_turn(topic, turn.taken_bytes)
        # A partition that was added after the count gets its turn the next time.
        turn.group = self.bases[topic] + partition % self.partition_counts[topic]
        turn.room_bytes = max(1, room_bytes)
        turn.taken_bytes = 0
        return 0

    cdef Py_ssize_t count_mixed(
        self, RowBlock block, int32_t* groups, int64_t* counts, int64_t* sizes, Turn* turn_of,
        Py_ssize_t row,
    ) noexcept nogil:
        """Count rows from `row` on, up to the end or to one whose topic needs the next turn."""
        cdef const int32_t* bases = <const int32_t*>self.bases.data.as_ints
        cdef Py_ssize_t topic = 0, size
        cdef int32_t group
        cdef Turn* turn
        for row in range(row, block.count):
            if self.topics is not NULL:
                topic = self.topics[row]
            turn = turn_of + topic
            group = groups[row]
            size = block.size_bytes(row)
            # Without room this topic's rows are not divided.
            if group == bases[topic + 1] - 1 and turn.room_bytes:
                if turn.taken_bytes >= turn.room_bytes:
                    return row
                group = groups[row] = <int32_t>turn.group
                turn.taken_bytes += size - OVERHEAD_EXCESS_BYTES
            counts[group] += 1
            sizes[group] += size
        return block.count

    cdef void choose(
        self, RowBlock block, int32_t* groups, const int32_t* partition_counts, int key_rule,
        Turn* turn_of,
    ) noexcept nogil:
        cdef const int32_t* bases = <const int32_t*>self.bases.data.as_ints
        cdef const Items* keys = NULL
        cdef Py_ssize_t row, topic = 0
        cdef int32_t partition = -1
        cdef int64_t kind
        cdef Field key
        cdef bint may_hash = key_rule & HASHES and (
            block.keys is not None or key_rule & NULL_IS_HASHED
        )
        key.data = NULL
        key.size = -1
        if block.keys is not None:
            keys = &block.keys.items
        for row in range(block.count):
            if self.topics is not NULL:
                topic = self.topics[row]
            partition = -1 if self.partitions is NULL else self.partitions[row]
            if partition < 0 and may_hash:
                if keys is not NULL:
                    key = field_at(keys, row)
                if is_hashed(key_rule, key.size):
                    partition = partition_of(
                        key_rule, key.data, max(key.size, 0), <uint32_t>partition_counts[topic]
                    )
            kind = SOMEWHERE if partition >= 0 else ANYWHERE
            groups[row] = bases[topic] + partition if partition >= 0 else bases[topic + 1] - 1
            if not turn_of[topic].kinds & kind:  # a load costs less than a store
                turn_of[topic].kinds |= kind


def largest_partitions(const int32_t[::1] partitions, topics, Py_ssize_t topic_count):
    """Return the largest partition named for each topic, or -1 if there is none.

    `topics` has each row's topic; None means a single one.
    """
    cdef const int32_t[::1] topic_of = topics
    cdef array found = array("i", [-1]) * topic_count
    cdef int32_t* largest = <int32_t*>found.data.as_ints
    cdef Py_ssize_t row, topic = 0
    if topic_of is not None and topic_of.shape[0] != partitions.shape[0]:
        raise SerializationError(
            columns_differ("topics", topic_of.shape[0], partitions.shape[0])
        )
    for row in range(partitions.shape[0]):
        if topic_of is not None:
            topic = topic_of[row]
        if not 0 <= topic < topic_count:
            raise IndexError("a row has a topic that there is not")
        if partitions[row] > largest[topic]:
            largest[topic] = partitions[row]
    return found.tolist()
