"""Slurm: jobs are submitted with sbatch on a login node and followed with squeue and sacct."""
