"""The process between a test run and a server: it makes sure that the server does not outlive the test run.

A killed process cannot clean up after itself, and `PR_SET_PDEATHSIG` alone reaches one process only, is bound
to the *thread* that forked, and leaves directories behind. So the server is a child of this small process,
which

* ends it, with everything it started, as soon as the launcher's end of the pipe on stdin closes, whatever the
  cause;
* adopts what a killed server leaves running (PostgreSQL's backends give themselves sessions of their own),
  kills that too, and exits only when all of it is gone: after `kill` no old backend holds a lock or a port;
* removes the server's directory when the launcher died without closing it;
* asks the kernel to kill the server should the keeper itself be killed.

Run as a plain script with the standard library only (`python -I -S`), in 20 ms. It writes one line to stdout:
the server's process id, or `!` and the reason why it did not start. It exits with the server's exit code,
modulo 256.

    keeper.py LOG_FILE DIRECTORY LAST_SIGNAL UID GID COMMAND...        (UID -1: as the current user)
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import subprocess
import sys

# The numbers of linux/prctl.h.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
# How long a server may take to end in its own way before it is killed.
_LAST_SECONDS = 10


def _prctl(option: int, argument: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, argument, 0, 0, 0)


def _die_with_keeper() -> None:
    # Runs between fork and exec, after the change of user: a change of credentials would clear the setting.
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _parents() -> dict[int, int]:
    """Every process of the machine and its parent."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib costs this script half of its start-up time
        if name.isdigit():
            # A process may end while we read about it. Its program's name stands in parentheses and may hold
            # anything; the parent's id is second after it.
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                found[int(name)] = int(file.read().rpartition(b")")[2].split()[1])
    return found


def _ask_to_end(server: int, last_signal: int) -> None:
    """Let the server clean up what only it knows of (shared memory, say), also when a test had it paused."""
    below = [pid for pid, parent in _parents().items() if parent == server]
    for pid, number in [*((pid, signal.SIGCONT) for pid in (*below, server)), (server, last_signal)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def _kill_all_children() -> None:
    """Kill until none is left: the children of a killed child become ours and are found the next time."""
    while True:
        for pid, parent in _parents().items():
            if parent == os.getpid():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main(arguments: list[str]) -> int:
    log_path, directory, last_signal, uid, gid, *command = arguments
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    account = {} if uid == "-1" else {"user": int(uid), "group": int(gid), "extra_groups": []}
    try:
        with open(log_path, "ab") as log:  # noqa: PTH123
            server = subprocess.Popen(  # type: ignore[call-overload]  # the keywords are of several types
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=_die_with_keeper,
                **account,
            )
    except OSError as error:
        sys.stdout.write(f"!{error}\n")
        return 1
    sys.stdout.write(f"{server.pid}\n")
    sys.stdout.close()

    server_exit = os.pidfd_open(server.pid)
    while True:
        ready, _, _ = select.select([0, server_exit], [], [])
        if server_exit in ready:
            code = int(server.wait())
            _kill_all_children()
            return code & 0xFF
        if not os.read(0, 1):
            _ask_to_end(server.pid, int(last_signal))
            select.select([server_exit], [], [], _LAST_SECONDS)
            _kill_all_children()
            shutil.rmtree(directory, ignore_errors=True)
            return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
