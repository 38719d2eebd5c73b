"""The kubeconfig of the cluster."""

from __future__ import annotations

import json


def kubeconfig_text(url: str, context: str, token: str) -> str:
    """JSON, which is YAML."""
    names = {"cluster": f"{context}-cluster", "user": f"{context}-user"}
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": names["cluster"], "cluster": {"server": url}}],
        "users": [{"name": names["user"], "user": {"token": token}}],
        "contexts": [{"name": context, "context": {**names, "namespace": "default"}}],
        "current-context": context,
    }
    return json.dumps(tree, indent=2)
