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
            "log.record_size": "1Mi",
            "log.read_chunk": "256Ki",
        },
        "balanced": {},
        "performance": {
            "log.segment_size": "1Gi",
            "log.record_size": "16Mi",
            "log.read_chunk": "4Mi",
            "log.compression": "never",
        },
    }
)
