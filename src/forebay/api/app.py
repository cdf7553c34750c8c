"""The application: a request in, its answer out. Everything that a request may end in is decided here."""

from __future__ import annotations

import logging

from forebay.api.exchange import Answer, ClientGone, Request, StreamedAnswer, refusal
from forebay.api.problems import Problem, problem_of, problem_of_system, without_paths
from forebay.api.routes import ALL_ROUTES
from forebay.api.routes.not_here import NOT_HERE
from forebay.api.routing import Route, Router, Scope
from forebay.api.service import Service
from forebay.errors import ForebayError, Transient

_log = logging.getLogger("forebay.api")


class App:
    """`await App(service).answer(request)`, as a connection calls it."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self.memory = service.memory
        self.router = Router(ALL_ROUTES, NOT_HERE)

    async def answer(self, request: Request) -> Answer | StreamedAnswer | None:
        """Whatever happens, an answer; None when there is nobody to have it."""
        service = self.service
        method = request.method
        request.memory = service.memory
        route: Route | None = None
        answer: Answer | StreamedAnswer
        try:
            browsers = service.browsers
            if method == "OPTIONS":
                browsers.check(request.headers, method, changes=False)
                answer = self.router.options(request.raw_path)
            else:
                route, request.path = self.router.find(method, request.raw_path)
                browsers.check(request.headers, method, changes=route.changes or route.method != "GET")
                service.access.check(request.headers, route.scope)
                if not service.is_serving and route.scope is not Scope.OPEN:
                    service.check_serves(route.needs)
                request.body_bytes_max = service.limits.body_bytes_max
                request.body_seconds_max = service.limits.body_seconds_max
                answer = await route.handler(service, request)
        except Problem as problem:
            if problem.status in (401, 403):
                _log.info("%s: %s", request, problem.detail, extra={"action": f"refused_{problem.code}"})
            answer = refusal(problem)
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
        service.counts.requests[method, route.path if route else "", answer.status] += 1
        return answer

    def _failed(self, request: Request, problem: Problem, error: Exception) -> Answer:
        """What is no fault of the request is told here, once, with all that is known."""
        if problem.status >= 500:
            level = logging.WARNING if isinstance(error, Transient) else logging.ERROR
            _log.log(level, "%s: %s: %s", request, problem.status, error, extra={"action": f"request_{problem.code}"})
            problem.detail = without_paths(problem.detail, self.service.folders)
        return refusal(problem)
