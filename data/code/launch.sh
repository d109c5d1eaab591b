#!/bin/bash
# A launch script with settings that cost time. It is read by page 23 and never run.
export MS_ALLOC_CONF="enable_vmm:True"
export MS_ALLOC_CONF="memory_tracker:True"
export GLOG_v=1
export MS_SIMULATION_LEVEL=1
export OMP_NUM_THREADS=1
msrun --worker_num=8 --local_worker_num=8 train_slow.py
