"""A Kubernetes cluster in the threads of this process, for tests: see README.md in this folder."""

from tests.fake_kubernetes.api.faults import Fault
from tests.fake_kubernetes.api.messages import Request
from tests.fake_kubernetes.cluster import Kube

__all__ = ["Fault", "Kube", "Request"]
