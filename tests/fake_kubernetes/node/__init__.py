"""A node: the kubelet, and the container runtime that starts processes of this machine."""
