#!/bin/bash
# Sourced before the ranks start, in the folder that holds the code.
TRAIN_PY_PATH=$(readlink -f `find ./ -name train.py`)
BASE_PATH=`dirname $TRAIN_PY_PATH`
echo "code in $BASE_PATH"

# env set
export GLOG_v=3
export ASCEND_GLOBAL_LOG_LEVEL=3
export ASCEND_GLOBAL_EVENT_ENABLE=0
export ASCEND_SLOG_PRINT_TO_STDOUT=0
