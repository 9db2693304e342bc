# The Python command on this machine.
export PYTHON_COMMAND=python3
# Every server trains alone; the result is the mean over servers.
# export SINGLESERVER_MODE=True
# V1 uses session_config, V2 uses session_config_v2 of modelarts_config.py.
export MODELARTS_VERSION=V1

# Where the job runs: an engine of Trainshed.
export TRAINSHED_ENGINE=local
# Run an Ascend job on the CPU, marked as emulated.
# export TRAINSHED_EMULATE=1
# Cards of one server, where train_instance_type does not tell.
# export TRAINSHED_DEVICES=8
# The longest the job may take.
export TRAINSHED_TIMEOUT=24h
