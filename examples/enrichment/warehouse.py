# ruff: noqa: T201 - an example prints
"""A warehouse for the example: takes clicks over HTTP and prints each once, also when it is sent twice.

    python examples/enrichment/warehouse.py [--port 8080]

Stop it while clicks come, and start it again: none is missing.
"""

from __future__ import annotations

import argparse
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SEEN: set[tuple[str, str, int]] = set()


class Warehouse(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        for click in json.loads(self.rfile.read(int(self.headers["Content-Length"]))):
            # A request whose answer was lost comes again: a click is known by its place in the outbox.
            place = (click["queue"], click["partition"], click["seq"])
            if place not in SEEN:
                SEEN.add(place)
                print(json.dumps(click["data"]), flush=True)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Only clicks are printed."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=8080)
    ThreadingHTTPServer(("127.0.0.1", parser.parse_args().port), Warehouse).serve_forever()


if __name__ == "__main__":
    main()
