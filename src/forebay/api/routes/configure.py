"""Make a queue, or give it other options."""

from __future__ import annotations

from forebay.api.bodies import ConfigureBody
from forebay.api.exchange import Request, Response
from forebay.api.large_bodies import read_body
from forebay.api.parameters import checked_name
from forebay.api.problems import wrong
from forebay.api.responses import ConfigureResponse, answered
from forebay.api.routing import Queues, Route, Scope
from forebay.api.service import Service
from forebay.model.queue import OptionsRefused, options_from_wire, options_to_wire


async def configure(service: Service, request: Request) -> Response:
    """Every option that is not given gets its default, as with Queen. An option that is not known is refused. To change
    a queue that is there needs a key of scope admin.
    """
    body = await read_body(ConfigureBody, request)
    request.caller.check_queue(checked_name(body.queue, "queue"), "queue")
    for field, name in (("namespace", body.namespace), ("task", body.task)):
        if name:
            checked_name(name, field)
    try:
        options = options_from_wire({name: value for name, value in (body.options or {}).items() if value is not None})
    except OptionsRefused as refused:
        field, _, detail = refused.faults[0].partition(": ")
        raise wrong(field, "; ".join([detail, *refused.faults[1:]])) from refused
    namespace, task = body.namespace or "", body.task or ""
    existing = await service.store.queue(body.queue)
    if existing is not None and (existing.options, existing.namespace, existing.task) != (options, namespace, task):
        request.caller.check_scope(Scope.ADMIN)
        request.is_admin_action, request.subject = True, body.queue
    queue = await service.store.configure(body.queue, options, namespace, task)
    service.waiting.learn(queue.name, queue.namespace, queue.task)
    return answered(ConfigureResponse(True, queue.name, queue.namespace, queue.task, options_to_wire(queue.options)))


ROUTES = (
    Route(
        "POST",
        "/api/v1/configure",
        configure,
        "Make a queue, or replace its options.",
        Scope.WRITE,
        answers={200: ConfigureResponse},
        body=ConfigureBody,
        problems=(413, 415, 503, 507),
        queues=Queues.NAMED,
    ),
)
