"""A report for other programs: Prometheus, Grafana, GitLab. A module for each kind of file (docs/exports.md)."""

from __future__ import annotations

from pathlib import Path


def dashboard_file() -> Path:
    """A dashboard for Grafana 10 and later that shows what `prometheus` and `openmetrics` export.

    A data source is chosen in it. No query keeps the labels `instance` and `job`, which Prometheus adds to what it
    scrapes and not to a backfill.
    """
    return Path(__file__).with_name("dashboard.json")
