"""PopDist as programs of Graphcore's use it (github.com/graphcore/examples), from the variables that poprun sets.

poprun is an mpirun that also sets POPDIST_NUM_TOTAL_REPLICAS, POPDIST_NUM_IPUS_PER_REPLICA, POPDIST_NUM_LOCAL_REPLICAS,
POPDIST_REPLICA_INDEX_OFFSET and POPDIST_LOCAL_INSTANCE_INDEX (its line "Running command:", which `poprun -vv` prints).
"""

from __future__ import annotations

import os

_initialised = False


def init() -> None:
    """Begin MPI. Every program of Graphcore's calls it first where isPopdistEnvSet()."""
    global _initialised
    _initialised = True


def isPopdistEnvSet() -> bool:
    return "POPDIST_NUM_TOTAL_REPLICAS" in os.environ


def getNumTotalReplicas() -> int:
    return int(os.environ["POPDIST_NUM_TOTAL_REPLICAS"])


def getNumLocalReplicas() -> int:
    return int(os.environ["POPDIST_NUM_LOCAL_REPLICAS"])


def getNumIpusPerReplica() -> int:
    return int(os.environ["POPDIST_NUM_IPUS_PER_REPLICA"])
