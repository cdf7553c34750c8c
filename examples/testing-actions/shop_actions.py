"""Two actions of a shop: one in Spark's own expressions, one with a function in Python."""

from pyspark.sql import functions as f

from forebay.flows import ActionParams, DataFrameAction


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
