"""What the log says of parcels that lack messages: one line for each flow of a request, with the first did."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import groupby

from forebay.dispatch.values import Loss

logger = logging.getLogger(__name__)
TEXT_CHARACTERS_MAX = 1_000


def tell_losses(losses: Sequence[Loss]) -> None:
    """After the commit that noted them."""
    ordered = sorted(losses, key=lambda loss: (loss.flow, loss.is_error, loss.did))
    for (flow, is_error), of_flow in groupby(ordered, key=lambda loss: (loss.flow, loss.is_error)):
        first, *others = of_flow
        logger.warning(
            "flow %s: parcel %s%s %s: %s",
            flow,
            first.did,
            f" and {len(others)} more" if others else "",
            "went into ERROR" if is_error else "went on without messages that are gone",
            first.text[:TEXT_CHARACTERS_MAX],
            extra={"action": "parcel_queue_replaced" if is_error else "parcel_messages_gone"},
        )
