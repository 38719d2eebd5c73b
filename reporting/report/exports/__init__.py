"""A report for other programs: Prometheus, Grafana, GitLab. A module for each kind of file (docs/exports.md)."""

from __future__ import annotations

from pathlib import Path


def alerts_file() -> Path:
    """Rules for Prometheus that alert on what `prometheus` exports."""
    return Path(__file__).with_name("alerts.yml")
