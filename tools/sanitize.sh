#!/bin/sh
# Runs the compiled core's tests with the address and undefined-behaviour sanitizers watching:
#   tools/sanitize.sh [PYTHON [PYTEST_ARGUMENT...]]
# It works in a copy, so the work tree keeps the core that it has. The first report of a sanitizer
# ends the process and so the command. Needs GCC with its sanitizers' libraries (Linux).
set -eu
python=$(command -v "${1:-.venv/bin/python}")
case $python in /*) ;; *) python=$PWD/$python ;; esac
[ $# -eq 0 ] || shift
[ $# -gt 0 ] || set -- tests/accel tests/records tests/producer tests/consumer tests/integration/test_system_calls.py
sanitizers='-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer'

library=$(gcc -print-file-name=libasan.so)
[ -e "$library" ] || { echo "GCC's libasan is needed (Debian: apt-get install gcc)" >&2; exit 1; }
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
tar -c --exclude='*.so' --exclude=__pycache__ pykclient benchmarks examples spark_connector pyspark_pykafka tests \
    tools setup.py pyproject.toml README.md LICENSE | tar -x -C "$copy"
cd "$copy"
CC=gcc CFLAGS="-O1 -g $sanitizers" LDFLAGS="$sanitizers" PYKCLIENT_BUILD=compiled \
    "$python" setup.py --quiet build_ext --inplace
for built in pykclient/*/*.so pykclient/*/*/*.so; do
    if ! grep -q __asan_report "$built" || ! grep -q '__ubsan_handle.*_abort' "$built"; then
        echo "$built is not watched" >&2
        exit 1
    fi
done

# Python's own allocator would hide what runs over the end of an object; its leaks at exit are no
# news. An extension that asks for too much memory must get NULL, as without the sanitizer.
export PYTHONMALLOC=malloc PYKCLIENT_ACCEL=compiled LD_PRELOAD="$library"
export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1:allocator_may_return_null=1
export UBSAN_OPTIONS=print_stacktrace=1:abort_on_error=1
"$python" -m pytest -p no:cacheprovider --quiet -m 'not kafka and not spark and not slow' --timeout 0 "$@"
