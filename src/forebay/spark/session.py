"""A Spark session that knows `format("forebay")`, on any master.

    spark = spark_session()                                   # local[*], with whatever Java there is
    spark = spark_session("spark://host:7077", url="http://queues:6632")
    spark = spark_session("sc://host:15002")                  # Spark Connect

A local session takes 10 to 20 seconds to start: `start_session` does it behind the program's back and says how far it
is. Spark's default checkpoint manager is kept. There is a faster one (a batch costs half as much), but whether it
survives a crash has not been shown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession

import forebay
from forebay.spark.java import find_java
from forebay.spark.launchers import local_python
from forebay.spark.shipping import package_zip
from forebay.spark.source import ForebaySource

LOCAL = "local[*]"
OnProgress = Callable[[str], None]

FILTER_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
"""Without it a read with the option pushFilters fails: Spark refuses a source that could narrow it."""
EVERYWHERE = {FILTER_PUSHDOWN: "true", "spark.sql.session.timeZone": "UTC"}
CLASSIC = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Spark's own expression, and API keys.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]?key|api[.]?key",
}
UNCHECKED_ARROW = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true", "ARROW_ENABLE_NULL_CHECK_FOR_GET": "false"}
"""Arrow's Java half looks at borders and nulls on every access; Spark has looked already when it asks for a value."""
_URL = "spark.forebay.url"
_API_KEY = "spark.forebay.apiKey"


def spark_session(
    master: str = LOCAL,
    *,
    app_name: str = "forebay",
    url: str | None = None,
    api_key: str | None = None,
    python: str | None = None,
    config: Mapping[str, str] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> SparkSession:
    """A session, ready to read and write queues. What is in `config` wins over what is set here.

    `url` and `api_key` are what queries use that name none. `python` is the interpreter of the executors: this one if
    they are on this machine (`local`), else whatever PYSPARK_PYTHON says, which must exist there in the same version.
    """
    began = time.monotonic()
    is_connect = master.startswith("sc://")
    settings = {**settings_for(master), **_own_settings(url, api_key), **(config or {})}
    builder = SparkSession.builder.appName(app_name)
    if is_connect:
        builder = builder.remote(master)
    else:
        on_progress("Spark: finding Java")
        prepare_environment(master, python)
        builder = builder.master(master)
    on_progress(f"Spark: {'connecting to' if is_connect else 'starting on'} {master}")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    if not _is_local(master):
        ship(spark)
    register(spark)
    on_progress(f"Spark: ready after {time.monotonic() - began:.0f} s")
    return spark


def start_session(
    master: str = LOCAL, *, on_progress: OnProgress = lambda _: None, **more: Any
) -> Future[SparkSession]:
    """Start it in the background; the future has the session, or what went wrong."""
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            future.set_result(spark_session(master, on_progress=on_progress, **more))
        except BaseException as fault:  # noqa: BLE001 - whoever waits for the future is told
            future.set_exception(fault)

    Thread(target=start, name="forebay-spark-start", daemon=True).start()
    return future


def settings_for(master: str) -> dict[str, str]:
    """What is set for that master, before the user's own."""
    if master.startswith("sc://"):
        return dict(EVERYWHERE)
    if not _is_local(master):
        return {**EVERYWHERE, **CLASSIC}
    # 200 partitions for a shuffle, Spark's default, are 200 tasks that have nothing to do on one machine.
    return {**EVERYWHERE, **CLASSIC, "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, 16))}


def _is_local(master: str) -> bool:
    return master.split("[")[0] == "local"


def _own_settings(url: str | None, api_key: str | None) -> dict[str, str]:
    return {name: value for name, value in ((_URL, url), (_API_KEY, api_key)) if value is not None}


def prepare_environment(master: str, python: str | None) -> None:
    os.environ["JAVA_HOME"] = str(find_java().home)
    for name, value in UNCHECKED_ARROW.items():
        os.environ.setdefault(name, value)
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    elif _is_local(master):
        # Else the workers run whatever `python3` is on the PATH, without this one's packages.
        os.environ["PYSPARK_PYTHON"] = local_python()


def ship(spark: SparkSession) -> None:
    """Send this package to the executors."""
    zipped = str(package_zip())
    if _is_connect(spark):
        spark.addArtifacts(zipped, pyfile=True)
    else:
        spark.sparkContext.addPyFile(zipped)


def register(spark: SparkSession) -> None:
    """Make `format("forebay")` known to a session, with its `spark.forebay.*` as defaults.

    The processes that plan a query do not see the session's settings, so they travel in a class made for it.
    """
    named = {"url": spark.conf.get(_URL, None), "apiKey": spark.conf.get(_API_KEY, None)}
    defaults = {name: value for name, value in named.items() if value}
    made_for_it: type[ForebaySource] = type("ForebaySource", (ForebaySource,), {"defaults": defaults})
    if not _is_connect(spark) and _is_local(str(spark.conf.get("spark.master", ""))):
        made_for_it.cores = spark.sparkContext.defaultParallelism
        spark.dataSource.register(made_for_it)
        return
    # What is shipped reaches tasks, but not the process that runs a stream's source beside the driver, which may be
    # another Python than this one: there the code itself has to travel, not its name.
    cloudpickle.register_pickle_by_value(forebay)  # type: ignore[no-untyped-call]
    try:
        spark.dataSource.register(made_for_it)
    finally:
        cloudpickle.unregister_pickle_by_value(forebay)  # type: ignore[no-untyped-call]


def _is_connect(spark: SparkSession) -> bool:
    # Asked by name: importing the class needs packages that a classic session can do without.
    return type(spark).__module__.startswith("pyspark.sql.connect")
