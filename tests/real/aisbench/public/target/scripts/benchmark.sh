#!/bin/bash
# init, run_train, run_eval, get_result; the exit code names the step that failed.
CUR_PATH=$(dirname "$(readlink -f "$0")")
export CODE_PATH=$CUR_PATH
export BASE_PATH=$(cd "$CUR_PATH/../"; pwd)
. $CODE_PATH/common/log_util.sh
. $CODE_PATH/common/common.sh
RUNTYPE="cluster_offline"
[ "$RUNTYPE" == "modelarts" ] && . $CODE_PATH/modelarts_run.sh
main() {
    init || { logger_Warn "init failed:$?"; return 1; }
    run_train || { logger_Warn "run_train failed ret:$?"; return 2; }
    run_eval || { logger_Warn "run_eval failed ret:$?"; return 3; }
    get_result || { logger_Warn "get_result failed ret:$?"; return 4; }
}
main "$@"
exit $?
