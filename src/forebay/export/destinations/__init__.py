"""The variants of a destination: OTLP over HTTP and gRPC, Prometheus remote write, HTTP, a queue, a file."""
