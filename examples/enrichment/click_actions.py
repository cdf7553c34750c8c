"""The actions of the flow: what a click's page says, and where its address is."""

from __future__ import annotations

import time

from forebay.flows import ActionParams, Error, Filter, Record, RecordAction, RecordContext, Result

LOOKUP_SECONDS = 0.05
CITIES = {"10.1": "berlin", "10.2": "oslo", "10.3": "boston"}


class Enrich(RecordAction):
    """The shop and its market, from the page: `/de/cart` is the cart of the shop `de`."""

    class Params(ActionParams, frozen=True):
        shops: dict[str, str]

    params: Params
    schema = "user STRING, page STRING, ip STRING, shop STRING, market STRING"
    needs = ("user", "page", "ip")

    def transform(self, record: Record, context: RecordContext) -> Result | Filter | Error:
        if record["user"] == "health-check":
            return Filter("health check")
        shop = (record["page"] or "").strip("/").partition("/")[0]
        if shop not in self.params.shops:
            return Error(f"no shop {shop!r}")
        given = {name: record[name] for name in ("user", "page", "ip")}
        return Result({**given, "shop": shop, "market": self.params.shops[shop]})


class Locate(RecordAction):
    """The city of an address, from a service that takes its time; each task remembers what it has looked up."""

    schema = "user STRING, page STRING, shop STRING, market STRING, city STRING"

    def open(self) -> None:
        self.known: dict[str, str | None] = {}

    def transform(self, record: Record, context: RecordContext) -> Result:
        network = ".".join((record["ip"] or "").split(".")[:2])
        if network not in self.known:
            time.sleep(LOOKUP_SECONDS)
            self.known[network] = CITIES.get(network)
        given = {name: record[name] for name in ("user", "page", "shop", "market")}
        return Result({**given, "city": self.known[network]})
