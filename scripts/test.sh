#!/usr/bin/env bash
# All tests, or those of one area: scripts/test.sh [AREA] [further arguments of pytest]
#
# The frameworks' environments are made (on a fresh checkout: downloaded and built, for minutes) while the tests
# run that need none. Those mostly wait for processes, so four run side by side; tests with a framework run two at
# a time, one file per process, because they share clusters. Both halves always run, and either can fail the whole.
# No test is tried a second time.
set -uo pipefail
area=${1:-}
shift || true
bin=$PWD/.venv/bin
log=build/environments.log
framework=(tests/real/{aisbench,bench,contracts,examples,field,foundation,hardening,launchers,slurm})
pytest=("$bin/pytest" -rs --durations=15 ${area:+-m "$area"} "$@")
none=5 # pytest's exit code when it found no test

mkdir -p build
"$bin/python" scripts/environments.py $area >"$log" 2>&1 &
making=$!
trap 'kill $making 2>/dev/null' EXIT
echo "environments are being made meanwhile; see $log"

first=$none
if [ $# -eq 0 ]; then
    "${pytest[@]}" -n 4 --dist worksteal "${framework[@]/#/--ignore=}"
    first=$?
    pytest+=(-n 2 --dist loadfile "${framework[@]}")
fi
if ! wait $making; then
    tail -n 20 "$log" >&2
    exit 1
fi
"${pytest[@]}"
second=$?
[ $first -eq $none ] && exit $second
[ $second -eq $none ] && exit $first
exit $((first > second ? first : second))
