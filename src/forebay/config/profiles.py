"""Profiles: sets of defaults for a kind of machine, as data. Anything set by hand overrides them.

`balanced` is the model's own defaults and therefore empty. `minimal` is for small containers and laptops,
`performance` for a machine with memory and a fast disk to spare.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

PROFILES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "minimal": {
            "log.segment_size": "64Mi",
            "log.read_chunk": "256Ki",
            "exporter.queue.mode": "memory",
            "exporter.queue.max_size": 1000,
            "exporter.queue.max_bytes": "64Mi",
            "exporter.queue.workers": 1,
        },
        "balanced": {},
        "performance": {
            "log.segment_size": "1Gi",
            "log.read_chunk": "4Mi",
            "log.compression": "never",
            "exporter.queue.mode": "hybrid",
            "exporter.queue.max_size": 50_000,
            "exporter.queue.max_bytes": "2Gi",
            "exporter.queue.hybrid_spillover_pct": 90,
            "exporter.queue.meta_sync_interval": "2s",
            "exporter.queue.circuit_breaker.threshold": 3,
            "exporter.queue.backoff.multiplier": "3",
            "exporter.queue.pipeline_split.enabled": True,
        },
    }
)
