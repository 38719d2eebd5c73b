"""The manifests of a job: rendered from its JobSpec without asking the cluster, read again, and checked."""
