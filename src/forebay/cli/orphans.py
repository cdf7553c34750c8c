"""Nothing of a part outlives the `forebay up` or `forebay demo` that started it, also when that one is killed with -9.

The kernel sends a part SIGTERM when its parent dies (see `part`). That alone is not enough: a worker that ends in an
orderly way waits for its queries, which wait for the server, which is gone too, for as long as `retryTimeout`; and the
Java and Python processes of Spark are grandchildren, which the kernel tells nothing. So a part looks every quarter of a
second whether its parent is still there. When it is not, the part has two seconds to end. Then, or when it ends before
that, every process of its session is killed: a part has a session of its own, and all that it starts is in it.

Nothing is lost by that: what was acknowledged is durable, and a batch that was under way is repeated.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

PARENT = "_FOREBAY_PARENT_PID"
"""The variable in which a part finds the process that it must not outlive. No setting, hence its beginning."""
LOOK_SECONDS = 0.25
GRACE_SECONDS = 2.0
ROUNDS_MAX = 20
"""How often a session is looked through: a process may have been started while the last look was going on."""


def watch_parent() -> None:
    """From now on, end with the parent. Nothing is done in a process that no part was made of."""
    parent = os.environ.pop(PARENT, "")
    if not parent.isdecimal() or os.getsid(0) != os.getpid():
        return
    atexit.register(_end_session_of_orphan, int(parent))
    threading.Thread(target=_watch, args=(int(parent),), name="forebay-parent", daemon=True).start()


def end_session(leader: int) -> None:
    """SIGKILL to all processes of a session but this one."""
    for _ in range(ROUNDS_MAX):
        left = [pid for pid in _members(leader) if pid != os.getpid()]
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(LOOK_SECONDS)
    time.sleep(GRACE_SECONDS)
    end_session(os.getpid())
    os.kill(os.getpid(), signal.SIGKILL)


def _end_session_of_orphan(parent: int) -> None:
    if os.getppid() != parent:
        end_session(os.getpid())


def _members(leader: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            # A process may end while it is looked at.
            with contextlib.suppress(OSError):
                # The program's name stands in parentheses and may hold anything; behind it come its state, its parent,
                # its group and its session. A process that has ended and was not waited for is no member.
                fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
                if int(fields[3]) == leader and fields[0] != b"Z":
                    yield int(entry.name)
