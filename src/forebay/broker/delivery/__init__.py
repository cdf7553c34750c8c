"""Which consumer gets which message: the decisions of pop and acknowledge, as pure functions of values and a time.

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
  Until one does, and as long as its own time lasts, the holder may still answer the rest; when it extends the
  lease it takes the yield back ("I still work on it"). When another consumer has come, the old token is worth nothing,
  and those that were not answered get the attempt back that the yielded lease had counted: they did not fail. There is
  never more than one lease.
- *What reached no consumer is not an attempt.* A claim whose consumer has gone away before the response is undone by
  `released`; by `given_back` where its messages are to stay together.
- *A lost lease can be taken as a whole.* Until its partition is claimed again, a lease that ended without an answer
  still says which messages it covered. A claim with `is_whole` takes those alone, so that a consumer for whom the cut
  of a batch matters (an export, whose requests have keys) finds the batch as it was.

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
    Answered,
    Lease,
    Verdict,
    acknowledge,
    completed,
    extended,
    given_back,
    open_attempts,
    released,
)
from forebay.broker.delivery.claiming import (
    Candidates,
    Claim,
    Undelivered,
    claim,
    is_due,
    is_expired,
    is_held,
    lease_end_us,
    lost_lease,
    takes_all,
)
from forebay.broker.delivery.state import (
    DeadLetter,
    DeliveryState,
    Pending,
    decode_state,
    dropped_by_kind,
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
    "Answered",
    "Candidates",
    "Claim",
    "DeadLetter",
    "DeliveryState",
    "Lease",
    "Pending",
    "Undelivered",
    "Verdict",
    "acknowledge",
    "addressed",
    "claim",
    "completed",
    "decode_state",
    "dropped_by_kind",
    "due_us",
    "encode_state",
    "extended",
    "for_others",
    "given_back",
    "is_due",
    "is_expired",
    "is_held",
    "lease_end_us",
    "lost_lease",
    "open_attempts",
    "released",
    "review_us",
    "takes_all",
    "without_gone",
    "without_lost",
]
