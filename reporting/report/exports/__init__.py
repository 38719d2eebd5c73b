"""A report for other programs: Prometheus, Grafana, GitLab. A module for each kind of file (docs/exports.md)."""
