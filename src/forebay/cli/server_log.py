"""The server's log on stderr: a line for each event, with its time, its level and its action.

    2026-01-31T12:00:00.123Z forebay: WARNING: [request_busy] POST /api/v1/push: …

or, with `logging.format: json`, an object on each line, for machines that collect them:

    {"time":"2026-01-31T12:00:00.123Z","level":"warning","action":"request_busy","message":"POST /api/v1/push: …",
     "logger":"forebay.api"}

The action is a word that stays the same from version to version, to search and to alert by; every event has one, which
a test holds. An event of another package has the place in its code. What else an event tells by name stands beside it.
A password or a key never appears, whatever text it is part of, and no message's payload does.
"""

from __future__ import annotations

import logging
import time
from typing import Literal

import msgspec

from forebay.config.masking import masked

LogFormat = Literal["human", "json"]

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "action", "taskName"}
_TIME = "%Y-%m-%dT%H:%M:%S"


def action_of(record: logging.LogRecord) -> str:
    known = getattr(record, "action", None)
    return str(known) if known else f"{record.name.removeprefix('forebay.')}.{record.funcName.strip('_')}"


class LineFormatter(logging.Formatter):
    """For people."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ forebay: %(levelname)s: [%(action)s] %(message)s", _TIME)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        record.action = action_of(record)
        return masked(super().format(record))


class JsonFormatter(logging.Formatter):
    """For machines: an object on one line, whatever the text holds."""

    def __init__(self) -> None:
        super().__init__(datefmt=_TIME)
        self.converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, object] = {
            "time": f"{self.formatTime(record, self.datefmt)}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "action": action_of(record),
            "message": masked(record.getMessage()),
            "logger": record.name,
        }
        for name, value in vars(record).items():
            if name not in _STANDARD and isinstance(value, str | int | float | bool):
                fields[name] = masked(value) if isinstance(value, str) else value
        if record.exc_info and record.exc_info[0] is not None:
            fields["exception"] = masked(self.formatException(record.exc_info))
        return msgspec.json.encode(fields).decode()


def start_log(level: str, log_format: LogFormat = "human") -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format == "json" else LineFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler])


def change_level(level: str) -> None:
    logging.getLogger().setLevel(level.upper())
