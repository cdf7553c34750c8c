"""The actions that come with Forebay. A flow names them by their short names; see `forebay.flows.registry`.

| name | what it does | keeps state |
|---|---|---|
| `parse_json` | JSON text becomes columns; what does not parse goes to the error queue | no |
| `deduplicate` | of rows with the same keys, the first stays | yes |
| `sample` | a fixed share of the rows, the same ones each time | no |
| `redact` | columns are hashed or masked | no |
| `rollup` | one row per window and keys | yes |
| `otlp_metrics` | OTLP metrics requests become rows, one per data point | no |
| `drop_labels` | labels that are not wanted are left out of a map | no |
| `to_otlp` | rows of data points become OTLP metrics requests | no |
| `to_remote_write` | rows of data points become Prometheus remote write requests | no |
"""
