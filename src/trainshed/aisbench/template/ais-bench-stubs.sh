#!/bin/sh
# Runs this package. Trainshed must be installed: `pip install trainshed`.
# Built for @ARCH@; nothing in it depends on the processor.
cd "$(dirname "$0")" || exit 1
if [ -n "$AIS_BENCH_PYTHON" ]; then
    exec "$AIS_BENCH_PYTHON" -m trainshed.cli.stubs "$@"
fi
if command -v ais-bench-stubs >/dev/null 2>&1; then
    exec ais-bench-stubs "$@"
fi
echo "error: Trainshed is not installed: the command ais-bench-stubs was not found" >&2
echo "  hint: pip install trainshed, or set AIS_BENCH_PYTHON to a Python that has it" >&2
exit 1
