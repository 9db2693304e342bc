#!/bin/bash
logger_Base() { echo "$(date +%Y-%m-%dT%H:%M:%S) -Ais-Bench-Stubs- $1 ${FUNCNAME[2]}(${BASH_SOURCE[2]##*/}:${BASH_LINENO[1]}) - $2"; }
logger_Info() { logger_Base INFO "$1"; }
logger_Warn() { logger_Base WARN "$1"; }
