"""Options under poprun: the replicas of this process are known, and may not be said again.

[github.com/graphcore/poptorch: tests/popdist_test.py]
"""

from __future__ import annotations

from typing import Any

import poptorch

import popdist


class Options(poptorch.Options):
    def __init__(self, ipus_per_replica: int = 1) -> None:
        assert popdist._initialised, "popdist.init() comes first"
        super().__init__()
        self.set(replication_factor=popdist.getNumLocalReplicas())
        self.processes = popdist.getNumTotalReplicas() // popdist.getNumLocalReplicas()

    def replicationFactor(self, replication_factor: int) -> Any:
        raise RuntimeError("Cannot call `replicationFactor` with popdist.poptorch.Options")
