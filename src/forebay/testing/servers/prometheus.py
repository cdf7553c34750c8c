"""A Prometheus server of one's own, which takes remote writes and answers queries.

It scrapes nothing, not even itself: every sample in it was written to it. What it has answered with 2xx is in its
write-ahead log, so `kill` loses none of that.
"""

from __future__ import annotations

import json
import shutil
import signal
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from forebay.testing.servers.binaries import ServerUnavailable
from forebay.testing.servers.launcher import LocalServer

_PROBE_SECONDS_MAX = 2
_QUERY_SECONDS_MAX = 30
_CONFIG = "global: {}\n"


def prometheus_binary() -> Path:
    """The program on PATH. Raises ServerUnavailable; there is no wheel to fall back on."""
    return _program("prometheus")


def promtool_binary() -> Path:
    """The tool that comes with it, for rules and metrics."""
    return _program("promtool")


def _program(name: str) -> Path:
    found = shutil.which(name)
    if found is None:
        remedy = "Install the Debian package `prometheus` (`make test` does)"
        raise ServerUnavailable(f"no {name} on PATH", remedy=remedy)
    return Path(found)


class PrometheusServer(LocalServer):
    """Prometheus with an empty database. `stop` takes "graceful" (the default) or "kill"."""

    name = "prometheus"
    stop_signals: ClassVar[Mapping[str, signal.Signals]] = {
        "graceful": signal.SIGTERM,
        "kill": signal.SIGKILL,
    }
    close_mode = "kill"

    def __init__(self) -> None:
        self.binary = prometheus_binary()
        super().__init__()
        (self.directory / "prometheus.yml").write_text(_CONFIG)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def write_url(self) -> str:
        """Where remote writes go."""
        return f"{self.url}/api/v1/write"

    def samples(self, selector: str = '{__name__=~".+"}') -> dict[str, list[tuple[int, float]]]:
        """Every raw sample: by series (its labels as sorted JSON), times in milliseconds and values, in order."""
        answer = self._get("/api/v1/query?" + urllib.parse.urlencode({"query": f"{selector}[10y]"}), _QUERY_SECONDS_MAX)
        return {
            json.dumps(series["metric"], sort_keys=True): [
                (round(seconds * 1000), float(value)) for seconds, value in series["values"]
            ]
            for series in json.loads(answer)["data"]["result"]
        }

    def _command(self) -> Sequence[str]:
        return [
            str(self.binary),
            f"--config.file={self.directory}/prometheus.yml",
            f"--storage.tsdb.path={self.directory}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--web.enable-remote-write-receiver",
            "--log.level=warn",
        ]

    def _answers(self) -> bool:
        try:
            self._get("/-/ready", _PROBE_SECONDS_MAX)
        except OSError:
            return False
        return True

    def _get(self, path: str, seconds_max: float) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=seconds_max) as answer:
            return answer.read()
