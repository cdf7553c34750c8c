"""Telemetry: what Forebay tells of itself. `metrics` declares every metric once; `page` writes them for Prometheus."""
