"""The token with which a GitLab server is asked, and what GitLab lets it do (docs/ci.md)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

VARIABLE = "HPC_ML_BENCH_GITLAB_TOKEN"
"""Holds an access token of the project, with the scope `api`, and `write_repository` for pushes."""

JOB = "CI_JOB_TOKEN"
"""Holds the token of a CI job. It reads comments, and pushes if the project allows that. It writes no comment."""


def is_for(host: str, environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the token may be shown to a server. In CI it is for the server of the pipeline alone."""
    server = environ.get("CI_SERVER_HOST") or urlsplit(environ.get("CI_API_V4_URL", "")).hostname
    return not server or host == server.lower()
