"""The table of operations: method and path to handler, with all that the description of the API says about them.

A path is written with its parameters in braces. Segments are split before they are decoded, so `%2F` stays a part of
a name and never becomes a separator. A fixed segment is preferred to a parameter.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from forebay.access.scopes import Scope as Scope
from forebay.access.scopes import names_of
from forebay.api.callers import ADMIN_BITS
from forebay.api.exchange import Request, Response, StreamedResponse
from forebay.api.parameters import Parameter, checked_name
from forebay.api.problems import Problem, not_found, not_here, wrong

if TYPE_CHECKING:
    from forebay.api.service import Service

Handler = Callable[["Service", Request], Awaitable[Response | StreamedResponse]]


class Queues(Enum):
    """Which queues an operation concerns, for keys that are restricted to some. A `{queue}` of the path is checked
    by the app, whatever stands here; everything else is the handler's to check.
    """

    ALL = "all"
    """All at once, or things beside queues: refused to restricted keys."""
    NAMED = "named"
    """Those that path, query or body name, or that ids of the request lead to."""
    SHOWN = "shown"
    """Those that the answer lists: a restricted key sees its own."""


class Needs(IntEnum):
    """What has to be there before a request can be served."""

    NOTHING = 0
    RECOVERY = 1
    """Buffered messages are read, and stored if the store is there."""
    STORE = 2


@dataclass(frozen=True, slots=True)
class Content:
    """An answer that is neither JSON nor text."""

    media_type: str


@dataclass(frozen=True, slots=True)
class Route:
    """One operation."""

    method: str
    path: str
    handler: Handler
    summary: str
    scope: Scope
    """What a key has to allow."""
    answers: Mapping[int, Any] = field(default_factory=dict)
    """Type of the body by status; None for an answer without one, `Content` for one that is no JSON.

    A tuple of types where it is the request that chooses between them.
    """
    body: type | None = None
    """Struct of a JSON body; `bytes` for a body of another kind, which `body_type` names."""
    body_type: str = "application/json"
    query: tuple[Parameter[Any], ...] = ()
    problems: tuple[int, ...] = ()
    """Statuses that it may answer with beyond 400 and those of every operation."""
    is_body_optional: bool = False
    needs: Needs = Needs.STORE
    changes: bool = False
    """True for a GET that changes something: then there is no HEAD for it."""
    or_scope: Scope = Scope.OPEN
    """Another scope that will do as well. Where the request decides which, the handler checks."""
    queues: Queues = Queues.ALL
    needed: int = field(init=False)
    """The bits of the scopes that will do."""
    queue_place: int = field(init=False)
    """Which parameter of the path is a queue; -1: none."""
    is_admin_action: bool = field(init=False)
    """Whether it is written into the audit log."""

    def __post_init__(self) -> None:
        names = self.parameter_names()
        needed = self.scope | self.or_scope
        object.__setattr__(self, "needed", needed)
        object.__setattr__(self, "queue_place", names.index("queue") if "queue" in names else -1)
        changes = self.changes or self.method != "GET"
        object.__setattr__(self, "is_admin_action", changes and needed != 0 and not needed & ~ADMIN_BITS)

    @property
    def scopes(self) -> list[str]:
        """The names of scopes that will do; none where no key is needed."""
        return [] if not self.needed else names_of(self.needed) or ["admin"]

    @property
    def tag(self) -> str:
        """The module that it stands in: one resource each."""
        return self.handler.__module__.rpartition(".")[2]

    @property
    def name(self) -> str:
        return self.handler.__name__

    def parameter_names(self) -> list[str]:
        return [segment[1:-1] for segment in self.path.split("/") if segment.startswith("{")]


class _Node:
    __slots__ = ("fixed", "methods", "names", "parameter")

    def __init__(self) -> None:
        self.fixed: dict[str, _Node] = {}
        self.parameter: _Node | None = None
        self.methods: dict[str, Route] = {}
        self.names: list[str] = []


class Router:
    def __init__(self, routes: Iterable[Route], absent: Mapping[bytes, str] | None = None) -> None:
        """`absent`: what to say of paths that begin like this and lead nowhere."""
        self.routes = tuple(routes)
        self._absent = absent or {}
        self._root = _Node()
        self._whole: dict[bytes, dict[str, Route]] = {}
        for route in self.routes:
            self._add(route)

    def _add(self, route: Route) -> None:
        node = self._root
        for segment in route.path.strip("/").split("/"):
            if segment.startswith("{"):
                node.parameter = node = node.parameter or _Node()
            else:
                node = node.fixed.setdefault(segment, _Node())
        node.methods[route.method] = route
        node.names = route.parameter_names()
        if "{" not in route.path:
            self._whole[route.path.encode()] = node.methods

    def find(self, method: str, raw_path: bytes) -> tuple[Route, tuple[str, ...]]:
        """The route and the decoded parameters of the path, or the problem to answer with."""
        methods = self._whole.get(raw_path)
        if methods is not None and method in methods:
            return methods[method], ()
        methods, given, names = self._matched(raw_path)
        if method not in methods:
            if method == "HEAD" and "GET" in methods and not methods["GET"].changes:
                method = "GET"
            else:
                raise _not_allowed(method, methods)
        return methods[method], tuple([_decoded(value, name) for value, name in zip(given, names, strict=True)])

    def options(self, raw_path: bytes) -> Response:
        """What may be done there."""
        methods, _, _ = self._matched(raw_path)
        return Response(204, headers=((b"allow", ", ".join(allowed(methods)).encode()),))

    def _matched(self, raw_path: bytes) -> tuple[dict[str, Route], list[bytes], list[str]]:
        given: list[bytes] = []
        node = _walk(self._root, raw_path.removeprefix(b"/").split(b"/"), 0, given)
        if node is None:
            for start, advice in self._absent.items():
                if raw_path == start or raw_path.startswith(start + b"/"):
                    raise not_here(advice)
            raise not_found(f"there is nothing at {raw_path.decode('latin-1')!r}; /docs lists what there is")
        return node.methods, given, node.names


def _walk(node: _Node, segments: list[bytes], place: int, given: list[bytes]) -> _Node | None:
    if place == len(segments):
        return node if node.methods else None
    segment = segments[place]
    fixed = node.fixed.get(segment.decode("latin-1"))
    if fixed is not None and (found := _walk(fixed, segments, place + 1, given)) is not None:
        return found
    if node.parameter is None:
        return None
    given.append(segment)
    found = _walk(node.parameter, segments, place + 1, given)
    if found is None:
        given.pop()
    return found


def _decoded(segment: bytes, name: str) -> str:
    try:
        return checked_name(unquote_to_bytes(segment).decode(), name)
    except UnicodeDecodeError as error:
        raise wrong(name, "not UTF-8") from error


def _not_allowed(method: str, methods: Mapping[str, Route]) -> Problem:
    return Problem(
        405,
        f"{method} is not known here; known are {', '.join(allowed(methods))}",
        code="method_not_allowed",
        headers=((b"allow", ", ".join(allowed(methods)).encode()),),
    )


def allowed(methods: Mapping[str, Route]) -> list[str]:
    head = ["HEAD"] if "GET" in methods and not methods["GET"].changes else []
    return sorted([*methods, *head, "OPTIONS"])
