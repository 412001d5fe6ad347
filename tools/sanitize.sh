#!/bin/sh
# Runs the compiled core's tests with the address and undefined-behaviour sanitizers watching:
#   tools/sanitize.sh [PYTHON [PYTEST_ARGUMENT...]]
# It works in a copy, so the work tree keeps the core that it has. The first report of a sanitizer
# ends the process and so the command. Needs GCC with its sanitizers' libraries (Linux).
set -eu
python=$(command -v "${1:-.venv/bin/python}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- tests/accel tests/records tests/producer tests/consumer
sanitizers='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'

library=$(gcc -print-file-name=libasan.so)
[ -e "$library" ] || { echo "GCC's libasan is needed (Debian: apt-get install gcc)" >&2; exit 1; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar -c --exclude='*.so' --exclude=__pycache__ pykclient benchmarks examples spark_connector pyspark_pykafka tests \
    tools setup.py pyproject.toml README.md LICENSE | tar -x -C "$copy"
cd "$copy"
# Two mistakes on purpose, built as all the rest is: whoever watches must see them.
cat > pykclient/accel/compiled/canary.pyx <<'END'
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t


def read(bytes data, Py_ssize_t place):
    return PyBytes_AS_STRING(data)[place]


def add(int64_t left, int64_t right):
    return left + right
END
CC=gcc CFLAGS="-O1 -g $sanitizers" LDFLAGS="$sanitizers" PYKCLIENT_BUILD=compiled \
    "$python" setup.py --quiet build_ext --inplace

# Python's own allocator would hide what runs over the end of an object; its leaks at exit are no
# news. An extension that asks for too much memory must get NULL, as without the sanitizer.
export PYTHONMALLOC=malloc PYKCLIENT_ACCEL=compiled LD_PRELOAD="$library"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1

canary() {
    "$python" -c "from pykclient.accel.compiled import canary; print(canary.$1)"
}
test "$(canary 'read(bytes(100), 99) + canary.add(2**62, 1)')" = $((1 << 62 | 1))
for mistake in 'read(bytes(100), 101)' 'add(2**63 - 1, 1)'; do
    if canary "$mistake" 2>/dev/null; then
        echo "the sanitizers do not see $mistake" >&2
        exit 1
    fi
done

# A report goes past Python, so pytest must leave the file descriptors alone, or nobody sees it. What
# is not run measures the memory of a process, of which the sanitizers take some.
"$python" -m pytest -p no:cacheprovider --quiet --capture=sys --hypothesis-profile=ci --timeout 0 \
    -m 'not kafka and not spark and not slow' \
    --deselect tests/accel/test_frame_memory.py::test_memory_grows_with_what_arrived \
    --deselect tests/accel/test_frame_memory.py::test_small_batches_do_not_keep_the_memory_of_large_frames \
    --deselect tests/records/test_compression.py::test_a_bomb_is_refused_and_the_process_grows_by_less_than_200_mb "$@"
