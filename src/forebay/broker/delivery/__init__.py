"""Who gets which message: the decisions of pop and acknowledge, as pure functions of values and a time.

A *delivery state* belongs to one partition and one group:

- `cursor_seq`: every message of the partition up to here is finished for the group;
- `pending`: messages behind the cursor that were delivered at least once, in order, each with its attempts;
- the lease: its token and when it ends. One lease at a time; it covers the pending messages marked `is_leased`;
- `yielded_us`: from when on others may claim the partition although the lease has not ended; 0 for never.

The rules, and why:

- *Attempts are counted when a message is leased*, not when it fails. A worker that crashes, or is frozen past its
  lease, has used an attempt, so a message that kills its workers ends as a dead letter and not in an endless loop.
- *The cursor moves only over finished messages.* Acks may come in any order; what is finished out of order waits in
  `pending` and is not delivered again.
- *Order is kept.* A message that waits for its retry holds up those behind it in its partition, and no others.
- *Only the holder of the lease may answer.* An old or foreign token, or one whose time is over, changes nothing. An
  answer without a token counts for the lease that is alive now: it is fenced by the lease's time alone, so a consumer
  that lost its lease unnoticed may answer a message that is another consumer's by now.
- *A failure gives the rest of its batch back.* Order is kept, so a consumer whose message failed can do little with
  those behind it, and most drop them. When an answer leaves a message that comes again while others of the lease are
  not answered, the lease is *yielded*: from the moment the failed message is due, the partition may be claimed again.
  Until somebody does, and as long as its own time lasts, the holder may still answer the rest; when it extends the
  lease it takes the yield back ("I still work on it"). When somebody does, the old token is worth nothing, and those
  that were not answered get the attempt back that the yielded lease had counted: they did not fail. There is never
  more than one lease.
- *What was given to nobody is not an attempt.* A claim whose consumer has gone away before it was told is undone by
  `released`.

What the yield costs: a message that crashes its consumer after another one of the batch failed keeps its attempt that
time. The other one has used one of its own, so this comes to an end.

`claiming` is what a pop does, `answering` what comes after it, `state` what both have in common, `addressing` which
messages are for one group alone. Stores keep a state as
the bytes of `encode_state`; nothing but this package looks inside.
"""

from forebay.broker.delivery.addressing import GROUP_HEADER, addressed, for_others
from forebay.broker.delivery.answering import (
    COMPLETED,
    DEAD,
    FAILED,
    LEASE_INVALID,
    NOT_IN_LEASE,
    RETRY,
    STATUSES,
    Answer,
    Answered,
    Lease,
    acknowledge,
    completed,
    extended,
    open_attempts,
    released,
)
from forebay.broker.delivery.claiming import Candidates, Claim, Undelivered, claim, is_due, is_expired, is_held
from forebay.broker.delivery.state import (
    DeadLetter,
    DeliveryState,
    Pending,
    decode_state,
    due_us,
    encode_state,
    review_us,
    without_gone,
    without_lost,
)

__all__ = [
    "COMPLETED",
    "DEAD",
    "FAILED",
    "GROUP_HEADER",
    "LEASE_INVALID",
    "NOT_IN_LEASE",
    "RETRY",
    "STATUSES",
    "Answer",
    "Answered",
    "Candidates",
    "Claim",
    "DeadLetter",
    "DeliveryState",
    "Lease",
    "Pending",
    "Undelivered",
    "acknowledge",
    "addressed",
    "claim",
    "completed",
    "decode_state",
    "due_us",
    "encode_state",
    "extended",
    "for_others",
    "is_due",
    "is_expired",
    "is_held",
    "open_attempts",
    "released",
    "review_us",
    "without_gone",
    "without_lost",
]
