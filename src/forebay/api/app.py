"""The application: a request in, its answer out. Everything that a request may end in is decided here."""

from __future__ import annotations

import logging

from forebay.api.audit_trail import note_admin_action
from forebay.api.callers import Caller
from forebay.api.exchange import ClientGone, Request, Response, StreamedResponse, refusal
from forebay.api.problems import Problem, problem_of, problem_of_system, without_paths
from forebay.api.routes import ALL_ROUTES
from forebay.api.routes.not_here import NOT_HERE
from forebay.api.routing import Queues, Route, Router, Scope
from forebay.api.service import Service
from forebay.errors import ForebayError, Transient

_REFUSALS = (401, 403)

_log = logging.getLogger("forebay.api")


class App:
    """`await App(service).answer(request)`, as a connection calls it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.memory = service.memory
        self.router = Router(ALL_ROUTES, NOT_HERE)

    async def answer(self, request: Request) -> Response | StreamedResponse | None:
        """Whatever happens, an answer; None when the client is gone."""
        service = self.service
        method = request.method
        request.memory = service.memory
        route: Route | None = None
        answer: Response | StreamedResponse
        try:
            browsers = service.browsers
            if method == "OPTIONS":
                browsers.check(request.headers, method, changes=False)
                answer = self.router.options(request.raw_path)
            else:
                route, request.path = self.router.find(method, request.raw_path)
                browsers.check(request.headers, method, changes=route.changes or route.method != "GET")
                access = service.access
                if access.is_in_force and route.needed:
                    caller = access.of_head(request.headers, request.address)
                    if caller is None:
                        caller = await service.gate.caller_of(request, changes=route.changes or route.method != "GET")
                    caller.is_used = True
                    request.caller = caller
                    if not caller.bits & route.needed or caller.patterns is not None:
                        check_allowed(caller, route, request.path)
                if not service.is_serving and route.scope is not Scope.OPEN:
                    service.check_serves(route.needs)
                request.body_bytes_max = service.limits.body_bytes_max
                request.body_seconds_max = service.limits.body_seconds_max
                answer = await route.handler(service, request)
        except Problem as problem:
            answer = self._refused(request, problem)
        except ClientGone:
            return None
        except ForebayError as error:
            answer = self._failed(request, problem_of(error), error)
        except OSError as error:
            answer = self._failed(request, problem_of_system(error), error)
        except Exception:  # noqa: BLE001 - one request's bug must not end the server
            _log.exception("BUG: %s", request, extra={"action": "bug"})
            answer = refusal(Problem(500, "a bug in Forebay; the server's log has its traceback", code="bug"))
        finally:
            request.end()
        if route is not None and (route.is_admin_action or request.is_admin_action):
            await note_admin_action(service, request, route, answer.status)
        service.counts.requests[method, route.path if route else "", answer.status] += 1
        return answer

    def _refused(self, request: Request, problem: Problem) -> Response:
        if problem.status in _REFUSALS:
            action = {"action": f"refused_{problem.code}"}
            _log.info("%s from %s: %s", request, request.address, problem.detail, extra=action)
        return refusal(problem)

    def _failed(self, request: Request, problem: Problem, error: Exception) -> Response:
        """What is no fault of the request is logged here, once, with all that is known."""
        if problem.status >= 500:
            level = logging.WARNING if isinstance(error, Transient) else logging.ERROR
            _log.log(level, "%s: %s: %s", request, problem.status, error, extra={"action": f"request_{problem.code}"})
            problem.detail = without_paths(problem.detail, self.service.folders)
        return refusal(problem)


def check_allowed(caller: Caller, route: Route, path: tuple[str, ...]) -> None:
    """Raise 403 for what the key's scopes do not allow, or its queue patterns as far as the route tells."""
    caller.check_scope(route.needed)
    if route.queue_place >= 0:
        caller.check_queue(path[route.queue_place])
    elif route.queues is Queues.ALL:
        caller.check_unrestricted("this is not about them alone")
