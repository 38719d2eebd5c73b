#!/bin/sh
# site/test_mine.py::test_mine[twin-1x1cpu] on twin, 1x1cpu
#JOB name=mine-1x1cpu-kfhoj5at
#JOB time_limit_s=3600
#JOB start_limit_s=43200

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT SLURM_PROCID \
    SLURM_NTASKS SLURM_LOCALID SLURM_NODEID SLURM_NNODES SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_RANK \
    OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE \
    PMIX_RANK
export OMP_NUM_THREADS=1
export PYTHONUNBUFFERED=1
export HPC_ML_BENCH_JOB=mine-1x1cpu-kfhoj5at

exec /home/jdoe/hpc-ml-bench/.venv/bin/python /home/jdoe/site/train.py
