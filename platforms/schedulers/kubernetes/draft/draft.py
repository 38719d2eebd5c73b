"""A cluster is asked what it is made of, and its answers become the lines of a platform's file."""

from __future__ import annotations

from platforms.config.draft import Draft, DraftRequest
from platforms.schedulers.kubernetes.api.client import Client
from platforms.schedulers.kubernetes.api.kubeconfig import ClusterTarget
from platforms.schedulers.kubernetes.draft import cluster, lines
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
        found = cluster.ask(Client(ClusterTarget(choices.kubeconfig, choices.context, (), choices.namespace)))
        return Draft(found.where, lines.lines(found, choices, request.taken_marks))
    keys = request.platform.kubernetes
    found = cluster.ask(Client(ClusterTarget(keys.kubeconfig, keys.context, keys.contexts, keys.namespace)))
    selected = lines.pairs(request.file.get("kubernetes.node_selector", "")).values()
    product = next((pool.product for pool in found.pools if pool.product in selected), None)
    choices = ClusterChoices(keys.kubeconfig, keys.context, keys.namespace, options.get("product") or product)
    return Draft(found.where, lines.lines(found, choices, ()))
