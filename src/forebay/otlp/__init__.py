"""Telemetry on the wire: what OTLP and remote write requests are, without anything that sends or receives them.

`kinds` names them, `protobufs` parses, counts and describes them, `json_form` reads OTLP's JSON, `prometheus` turns
OTLP metrics into Prometheus series, `points` and `point_requests` turn data points into rows and back. Requests are
carried as the bytes they came as; they are parsed where something has to be known of them: is it one, how many items
has it, how is it split.
"""
