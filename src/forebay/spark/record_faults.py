"""Is a failure of Spark the fault of a record? Judged by what Spark says, which is all that a driver gets to see.

| what failed | told by | whose fault |
|---|---|---|
| SQL on a value: division by zero, a cast, an overflow | SQLSTATE 22…, `raise_error`: P0001 | the record's, for ever |
| a Python function of an action | a traceback | the record's, perhaps: it is tried again |
| the same, through a network, a process, a database or Forebay | an exception of its chain | not the record's |
| the sink's server refuses the message: too large, a name too long | `ServerRefused`, 400, 413, 422 | the record's |
| anything else: an executor is lost, a server is away | | not the record's |

What is not the record's fault is not searched for in records: the flow restarts until it is over. An action that asks
another system raises `ConnectionError`, `TimeoutError` or `forebay.errors.Transient` when that one is away.
"""

from __future__ import annotations

import re
from enum import Enum

_TRACEBACK = "Traceback (most recent call last):"
_SQLSTATE = re.compile(r"SQLSTATE: (\w{5})")
_STATES_OF_VALUES = ("22", "P0")
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*)([A-Za-z_]\w*)(?::|$)")
_REFUSED = re.compile(r"ServerRefused: \S+ refused \((?:400|413|422)\)")
_OF_THE_REQUEST = re.compile(r"\b4(?!08|29)\d\d Client Error|HTTP Error 4(?!08|29)\d\d")
"""What requests and urllib say when a server answers that the request itself is wrong."""
_WORLDS_OWN = frozenset(
    """
    OSError IOError ConnectionError ConnectionRefusedError ConnectionResetError ConnectionAbortedError
    BrokenPipeError TimeoutError BlockingIOError InterruptedError ChildProcessError ProcessLookupError
    PermissionError EOFError MemoryError KeyboardInterrupt SystemExit ImportError ModuleNotFoundError HTTPError
    URLError HTTPException RemoteDisconnected IncompleteRead BadStatusLine gaierror herror timeout SSLError
    ConnectTimeout ReadTimeout WriteTimeout PoolTimeout Timeout ProxyError ConnectError ReadError WriteError
    NetworkError ProtocolError ChunkedEncodingError NewConnectionError MaxRetryError OperationalError InterfaceError
    Transient
    """.split()  # noqa: SIM905 - a list of words is read more easily
)
"""Of the standard library, requests, httpx, urllib3 and DB-API."""


class Blame(Enum):
    """Whose fault it is."""

    VALUE = "a value on which SQL fails: it fails again"
    RECORD = "perhaps a record, which may pass when it is tried again"
    SINK = "a result that the sink refuses"
    WORLD = "no record"


def blame(failure: str) -> Blame:
    """Who is to blame for what Spark says."""
    if _REFUSED.search(failure):
        return Blame.SINK
    if _TRACEBACK in failure:
        return Blame.RECORD if _is_of_a_record(failure) else Blame.WORLD
    states = _SQLSTATE.findall(failure)
    return Blame.VALUE if any(state.startswith(_STATES_OF_VALUES) for state in states) else Blame.WORLD


def _is_of_a_record(failure: str) -> bool:
    raised = _raised(failure)
    if not raised or any(module.startswith("forebay.") for module, _ in raised):
        return False
    others = {name for _, name in raised} & _WORLDS_OWN
    return not others or (others == {"HTTPError"} and _OF_THE_REQUEST.search(failure) is not None)


def _raised(failure: str) -> list[tuple[str, str]]:
    """Module and name of the exception that each traceback ends with: the last one's, and those of its causes."""
    found = []
    for text in failure.split(_TRACEBACK)[1:]:
        ends = [line for line in text.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
        match = _RAISED.match(ends[0]) if ends else None
        if match:
            found.append((match[1], match[2]))
    return found
