"""Starts a real Prometheus on this machine, with a file that it scrapes and blocks that were made of a backfill."""

from __future__ import annotations

import contextlib
import functools
import http.server
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from reporting.report.exports import alerts_file

PROMETHEUS = shutil.which("prometheus")
PROMTOOL = shutil.which("promtool")
START_S = 60.0
LONGEST_BLOCK = "486h"


class PrometheusServer:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self.url = url

    def ask(self, path: str, **parameters: str | float) -> Any:
        """The `data` of an answer of the HTTP API. Raises ValueError with Prometheus's own words."""
        query = urllib.parse.urlencode(parameters)
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}", timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{parameters}: {error.read().decode()}") from None

    def now(self, query: str) -> list[Any]:
        """What an expression gives at this moment."""
        return list(self.ask("query", query=query)["result"])

    def firing(self, awaited: Collection[str]) -> dict[str, Any]:
        """The labels of the alerts that fire, by name, once all that are awaited do. Raises AssertionError."""
        until = time.monotonic() + START_S
        names: set[str] = set()
        while time.monotonic() < until:
            alerts = [alert["labels"] for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]
            names = {labels["alertname"] for labels in alerts}
            if names >= set(awaited):
                return {labels["alertname"]: labels for labels in alerts}
            time.sleep(0.1)
        raise AssertionError(f"{set(awaited) - names} do not fire")

    def over_time(self, query: str, from_s: float, to_s: float, step_s: float) -> list[Any]:
        """What an expression gives in a stretch of time."""
        return list(self.ask("query_range", query=query, start=from_s, end=to_s, step=step_s)["result"])


def blocks_of(openmetrics: Path, data: Path) -> None:
    """Make blocks of a backfill, as docs/exports.md says."""
    subprocess.run(
        [
            *(str(PROMTOOL), "tsdb", "create-blocks-from", "openmetrics", "--quiet"),
            *(f"--max-block-duration={LONGEST_BLOCK}", str(openmetrics), str(data)),
        ],
        check=True,
        capture_output=True,
    )


@contextlib.contextmanager
def prometheus_server(folder: Path, data: Path, scraped: Path) -> Iterator[PrometheusServer]:
    """Run Prometheus with our alerts until the block ends. It has scraped the file once.

    Args:
        folder: for its configuration and its log.
        data: its database, with blocks or without.
        scraped: a .prom file.
    """
    with _files_over_http(scraped.parent) as files:
        port = _free_port()
        config = folder / "prometheus.yml"
        job = {
            "job_name": "node",
            "honor_labels": True,
            "scrape_interval": "1s",
            "metrics_path": f"/{scraped.name}",
            "static_configs": [{"targets": [files]}],
        }
        rules = {"global": {"evaluation_interval": "1s"}, "rule_files": [str(alerts_file())]}
        config.write_text(json.dumps({"scrape_configs": [job], **rules}))  # JSON is YAML, too
        with (folder / "prometheus.log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *(str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={data}"),
                    *("--storage.tsdb.retention.time=10y", f"--web.listen-address=127.0.0.1:{port}"),
                ],
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                server = PrometheusServer(f"http://127.0.0.1:{port}")
                _wait_for_a_scrape(server, process, folder / "prometheus.log")
                yield server
            finally:
                process.terminate()
                process.wait(30)


@contextlib.contextmanager
def _files_over_http(folder: Path) -> Iterator[str]:
    handler = functools.partial(_Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


class _Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = {".prom": "text/plain; version=0.0.4"}  # noqa: RUF012 (of the base class)

    def log_message(self, *_words: object) -> None:
        pass


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _wait_for_a_scrape(server: PrometheusServer, process: subprocess.Popen[bytes], log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        with contextlib.suppress(urllib.error.URLError, ConnectionError, ValueError):
            if server.now("up == 1"):
                return
        time.sleep(0.1)
    raise AssertionError(f"Prometheus has scraped nothing: {log.read_text()[-2000:]}")
