#!/bin/bash
init() {
    source $CODE_PATH/config/config.sh || return 1
    logger_Info "init called"
}
run_train() {
    logger_Info "run_train called"
    touch $CODE_PATH/code/ma-pre-start.sh
    sed -i '/SINGLESERVER_MODE=/d' $CODE_PATH/code/ma-pre-start.sh
    local single=""
    if [ "$SINGLESERVER_MODE" == "True" ]; then
        echo -e "\nexport SINGLESERVER_MODE=True" >> $CODE_PATH/code/ma-pre-start.sh
        single="--single_server_mode"
    fi
    ${PYTHON_COMMAND} -u $CODE_PATH/common/train_modelarts.py --local_code_path $CODE_PATH/code $single \
        --modelarts_version ${MODELARTS_VERSION:-V1} || return 1
    ${PYTHON_COMMAND} $CODE_PATH/ais_utils.py set_result "training" "result" "OK"
}
run_eval() { logger_Info "run_eval called"; }
get_result() { logger_Info "get_result called"; }
