"""Drafts a platform's file for a cluster: asks the cluster what it is made of, and writes the lines."""

from __future__ import annotations

from platforms.config.draft import Draft, DraftRequest
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.draft import inventory, lines
from platforms.schedulers.kubernetes.draft.lines import ClusterChoices


def draft_cluster(request: DraftRequest) -> Draft:
    """Ask the cluster that the command line names, or that of the platform. Raises BenchError."""
    options = request.options
    if request.platform is None:
        choices = ClusterChoices(
            request.path_of("kubeconfig"),
            options.get("context"),
            options.get("namespace"),
            options.get("product"),
            request.replaces,
        )
        cluster = inventory.ask(Client(ClusterTarget(choices.kubeconfig, choices.context, (), choices.namespace)))
        return Draft(cluster.where, lines.lines(cluster, choices, request.taken_marks))
    keys = request.platform.kubernetes
    cluster = inventory.ask(Client(ClusterTarget(keys.kubeconfig, keys.context, keys.contexts, keys.namespace)))
    selected = lines.pairs(request.file.get("kubernetes.node_selector", "")).values()
    product = next((pool.product for pool in cluster.pools if pool.product in selected), None)
    choices = ClusterChoices(keys.kubeconfig, keys.context, keys.namespace, options.get("product") or product)
    return Draft(cluster.where, lines.lines(cluster, choices, ()))
