"""How many files the server may have open: connections, and the logs that are in use."""

from __future__ import annotations

import logging
import resource

logger = logging.getLogger(__name__)

_FEW = 4096


def raise_limit() -> int:
    """Raise the limit of open files as far as the process may, say so, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            logger.warning("the limit of open files stays at %d: %s", soft, error, extra={"action": "file_limit"})
            return soft
        logger.info("the limit of open files is raised from %d to %d", soft, hard, extra={"action": "file_limit"})
    if hard != resource.RLIM_INFINITY and hard < _FEW:
        logger.warning(
            "no more than %d files may be open at once (ulimit -n, LimitNOFILE): enough for about %d connections",
            hard,
            hard // 2,
            extra={"action": "file_limit"},
        )
    return hard
