#!/usr/bin/env bash
# All tests, or those of one area: scripts/test.sh [AREA] [further arguments of pytest]
#
# Environments of the frameworks are made (on a fresh checkout: downloaded and built, for minutes) while the tests
# run that need none. A test that fails is tried once more, and said to have been: many start real clusters on a
# machine that may be busy.
set -uo pipefail
area=${1:-}
shift || true
bin=$PWD/.venv/bin
log=build/environments.log
framework=(tests/real/{aisbench,bench,contracts,examples,foundation,launchers,slurm})
pytest=("$bin/pytest" --reruns 1 -rRs ${area:+-m "$area"} "$@")

mkdir -p build
"$bin/python" scripts/environments.py $area >"$log" 2>&1 &
making=$!
trap 'kill $making 2>/dev/null' EXIT
echo "environments are being made meanwhile; see $log"

if [ $# -eq 0 ]; then
    "${pytest[@]}" "${framework[@]/#/--ignore=}"
    code=$?
    [ $code -eq 0 ] || [ $code -eq 5 ] || exit $code # 5: the area has none of these
    pytest+=("${framework[@]}")
fi
if ! wait $making; then
    tail -n 20 "$log" >&2
    exit 1
fi
exec "${pytest[@]}"
