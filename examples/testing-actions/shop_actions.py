"""Three actions of a shop: one in Spark's own expressions, one with a function in Python, one record by record."""

from pyspark.sql import functions as f

from forebay.flows import ActionParams, DataFrameAction, Error, Filter, RecordAction, Result, Results


class OnlyRegion(DataFrameAction):
    """Keeps the orders of one region, with the price after the discount. Orders without a price are bad records."""

    class Params(ActionParams, frozen=True, kw_only=True):
        region: str
        discount: float = 0.0

    may_reject = True
    params: Params

    def transform(self, frame, context):
        chosen = frame.where((f.col("region") == self.params.region) & f.col("price").isNotNull())
        return chosen.withColumn("price", f.round(f.col("price") * (1 - self.params.discount), 2))

    def rejected(self, frame, context):
        return frame.where("price IS NULL").withColumn("cause", f.lit("no price"))


class Initials(DataFrameAction):
    """Adds the initials of the customer. A name that is no name raises; the flow's `on_error` says what follows."""

    def transform(self, frame, context):
        return frame.withColumn("initials", f.udf(initials, "string")("customer"))


def initials(name):
    if not name.strip():
        raise ValueError("a customer without a name")
    return "".join(word[0].upper() for word in name.split())


class Lines(RecordAction):
    """An order becomes one row for each of its items. Orders of the shop's own people do not count."""

    class Params(ActionParams, frozen=True, kw_only=True):
        staff: tuple[str, ...] = ()

    schema = "customer STRING, item STRING, price DOUBLE NOT NULL"
    needs = ("customer", "items")
    params: Params

    def transform(self, record, context):
        if record["customer"] in self.params.staff:
            return Filter("staff")
        if not record["items"]:
            return Error("an order without items")
        return Results([self._line(record["customer"], item) for item in record["items"]])

    def _line(self, customer, item):
        name, _, price = item.partition("=")
        if price == "free":
            return Result({"customer": customer, "item": name, "price": 0.0}, {"gift": name})
        return Result({"customer": customer, "item": name, "price": float(price)})
