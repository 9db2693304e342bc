#!/bin/bash
# init → run_train → run_eval → get_result. Exit 0, or the number of the step that failed.
BASE_PATH=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT_PATH=$(dirname "$BASE_PATH")
cd "$BASE_PATH" || exit 1

logger() {  # level, text; names the function and line that speak
    echo "$(date +%Y-%m-%dT%H:%M:%S) -Ais-Bench-Stubs- $1 ${FUNCNAME[1]}(benchmark.sh:${BASH_LINENO[0]}) - $2"
}

stubs() {
    if [ -n "$AIS_BENCH_PYTHON" ]; then
        "$AIS_BENCH_PYTHON" -m trainshed.cli.stubs "$@"
    else
        ais-bench-stubs "$@"
    fi
}

init() {
    logger INFO "init called"
    source "$BASE_PATH/config/config.sh" || return 1
    if ! command -v "${PYTHON_COMMAND:-python3}" >/dev/null 2>&1; then
        logger ERROR "PYTHON_COMMAND=${PYTHON_COMMAND:-python3} was not found; correct it in config/config.sh"
        return 1
    fi
    stubs step init "$ROOT_PATH"
}

run_train() {
    logger INFO "run_train called"
    "${PYTHON_COMMAND:-python3}" "$BASE_PATH/common/train_modelarts.py" --action run \
        --local_code_path "$BASE_PATH/code" --single_server_mode "${SINGLESERVER_MODE:-False}" \
        --modelarts_version "${MODELARTS_VERSION:-V1}"
}

run_eval() {
    logger INFO "run_eval called"
    stubs step eval "$ROOT_PATH"
}

get_result() {
    logger INFO "get_result called"
    stubs step result "$ROOT_PATH"
}

# A signal is for the training: it stops the job, then this shell goes on and reports the step.
trap : INT TERM HUP
init || { logger ERROR "init failed"; exit 1; }
run_train || { logger ERROR "run_train failed"; exit 2; }
run_eval || { logger ERROR "run_eval failed"; exit 3; }
get_result || { logger ERROR "get_result failed"; exit 4; }
exit 0
