# NVIDIA's own PyTorch image with what a job needs, for GH200 (aarch64). Platforms: alps_clariden, isambard_ai.
# To build it, from this folder, on a machine with the same processor:
#   Alps (a compute node; docs.cscs.ch, build-install/containers):
#     podman build -t hpc-ml-bench:25.06 -f ngc.Dockerfile .
#     enroot import -o $SCRATCH/ce-images/hpc-ml-bench+25.06.sqsh podman://hpc-ml-bench:25.06
#     and in site/site.yaml: alps_edf: the path of a copy of alps.toml
#   Isambard (Apptainer builds no Dockerfile):
#     apptainer build pytorch.sif isambard.def     and in site/site.yaml: isambard_image: its path
# Both run the container as the user who submits the job. docker buildx imagetools inspect BASE shows the base's digest.
# Verified: the file by hadolint. Wheels for aarch64 and Python 3.12 were found on PyPI. It was never built.
ARG BASE=nvcr.io/nvidia/pytorch:25.06-py3
FROM ${BASE}
COPY requirements.txt /opt/environment/
# torch, numpy and Pillow are the image's, and pip's constraints there would hinder the rest.
RUN PIP_CONSTRAINT='' python3 -m pip install --no-cache-dir --no-deps --constraint /opt/environment/requirements.txt \
    h5py deflate google-crc32c simplejpeg
USER 1000:1000
