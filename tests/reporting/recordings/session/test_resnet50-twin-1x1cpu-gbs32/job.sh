#!/bin/sh
# test_resnet50.py::test_resnet50[twin-1x1cpu-gbs32] on twin, 1x1cpu
#JOB name=resnet50-1x1cpu-kpgqef4o
#JOB time_limit_s=3600
#JOB start_limit_s=43200

unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT SLURM_PROCID \
    SLURM_NTASKS SLURM_LOCALID SLURM_NODEID SLURM_NNODES SLURM_STEP_NUM_TASKS OMPI_COMM_WORLD_RANK \
    OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE PMI_RANK PMI_SIZE \
    PMIX_RANK
export OMP_NUM_THREADS=1
export PYTHONUNBUFFERED=1
export HPC_ML_BENCH_JOB=resnet50-1x1cpu-kpgqef4o

exec /home/jdoe/hpc-ml-bench/.venv/bin/python -m torch.distributed.run --standalone --nnodes=1 \
    --local-addr=127.0.0.1 --nproc-per-node=2 /scratch/proj42/jdoe/runs/archives/models-b5cf5c583633.pyz \
    train resnet50 --configuration gbs32 --size smoke --mode overlap --device cpu \
    --data-dir /scratch/proj42/jdoe/data/resnet50-smoke --expect-world-size 2 --time-limit-s 3600
