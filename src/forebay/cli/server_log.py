"""The server's log on stderr: a line for each event, with its time, its level and its action.

    2026-01-31T12:00:00.123Z forebay: WARNING: [request_busy] POST /api/v1/push: …

The action is a word that stays the same from version to version, to search and to alert by. An event without one of its
own has the place in the code that tells it. A password never appears, whatever text it is part of.
"""

from __future__ import annotations

import logging
import time

from forebay.config.masking import masked


class LineFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__(
            "%(asctime)s.%(msecs)03dZ forebay: %(levelname)s: [%(action)s] %(message)s", "%Y-%m-%dT%H:%M:%S"
        )
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        if not hasattr(record, "action"):
            record.action = f"{record.name.removeprefix('forebay.')}.{record.funcName.strip('_')}"
        return masked(super().format(record))


def start_log(level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def change_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())
