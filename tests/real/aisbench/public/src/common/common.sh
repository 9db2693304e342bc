#!/bin/bash
check_path_valid() { [ -d "$1" ]; }
