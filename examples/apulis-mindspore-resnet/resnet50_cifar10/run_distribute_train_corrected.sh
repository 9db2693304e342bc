#!/bin/bash
# run_distribute_train.sh with its mistakes mended:
#   ranks are unique over all servers (there: 0 to 7 on both), device_num is the number of all devices (there: 8),
#   the processes' exit codes count (there: lost), each server works in its own folder.
if [ $# != 2 ]
then
    echo "Usage: bash run_distribute_train_corrected.sh [MINDSPORE_HCCL_CONFIG_PATH] [DATASET_PATH]"
    exit 1
fi

export MINDSPORE_HCCL_CONFIG_PATH=$(realpath -m "$1")
DATASET_PATH=$(realpath -m "$2")
export DEVICE_NUM=${DLWS_NUM_GPU_PER_WORKER:-8}
export RANK_SIZE=$((DEVICE_NUM * ${DLWS_NUM_WORKER:-2}))
FIRST_RANK=$((DEVICE_NUM * ${DLWS_ROLE_IDX:-0}))

pids=()
trap 'kill "${pids[@]}" 2> /dev/null' SIGINT SIGTERM
for ((i = 0; i < DEVICE_NUM; i++))
do
    export DEVICE_ID=$i
    export RANK_ID=$((FIRST_RANK + i))
    folder=./train_parallel$RANK_ID
    rm -rf "$folder"
    mkdir "$folder"
    cp ./*.py "$folder"
    cd "$folder" || exit 1
    echo "start training for rank $RANK_ID, device $DEVICE_ID"
    env > env.log
    python train.py --do_train=True --run_distribute=True --device_num="$RANK_SIZE" --dataset_path="$DATASET_PATH" &
    pids+=($!)
    cd ..
done

status=0
for pid in "${pids[@]}"
do
    wait "$pid" || status=$?
done
exit "$status"
