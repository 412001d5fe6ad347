#!/bin/sh
# Makes the virtual environment in which the Makefile works: make_venv.sh FOLDER
# One that is there and new enough is kept. Where no Python will do, it says how to get one.
set -eu
folder=$1

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

if is_new_enough "$folder/bin/python"; then
    exit 0
fi
# A version manager may put names on the PATH that run nothing, so each is tried, not looked up.
for python in python3 python3.14 python3.13 python3.12 python3.11; do
    if is_new_enough "$python"; then
        if "$python" -m venv --clear "$folder"; then
            exit 0
        fi
        echo "$python cannot make a virtual environment (Debian, Ubuntu: apt-get install python3-venv)" >&2
        exit 1
    fi
done
echo "Python 3.11 or newer is needed, and no python3 on the PATH is; install one" \
    "(Debian 12 or newer, Ubuntu 24.04 or newer: apt-get install python3 python3-venv)" >&2
exit 1
