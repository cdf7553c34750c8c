"""A Spark session that knows `format("forebay")`, on any master.

    spark = spark_session()                                   # where the program is already, else local[*]
    spark = spark_session("spark://host:7077", url="http://queues:6632")
    spark = spark_session("sc://host:15002")                  # Spark Connect

A local session takes 10 to 20 seconds to start: `start_session` does it behind the program's back and says how far it
is. Spark's default checkpoint manager is kept. There is a faster one (a batch costs half as much), but whether it
survives a crash has not been shown.

Which master a session has that names none: see `masters`. What `spark-submit` was given wins over what is set here. A
session that is there already keeps its settings; it only learns the format.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from threading import Thread

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import forebay
from forebay.spark.java import find_java
from forebay.spark.json_frames import teach_readers
from forebay.spark.launchers import local_python
from forebay.spark.masters import SessionTarget, find_place, is_connect, is_local
from forebay.spark.shipping import package_zip
from forebay.spark.source import ForebaySource

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
UNCHECKED_ARROW = {"ARROW_ENABLE_UNSAFE_MEMORY_ACCESS": "true"}
"""Arrow's Java half looks at borders on every access; Spark stays within them. Its look at nulls is needed: Spark does
not ask a column that is NOT NULL, and a null there would become a 0."""
_URL = "spark.forebay.url"
_API_KEY = "spark.forebay.apiKey"


def spark_session(
    master: str | None = None,
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
    place = find_place(master)
    own = {**_own_settings(url, api_key), **(config or {})}
    if place.session is not None:
        on_progress(f"Spark: running already on {place.master}")
        spark = place.session
        _set(spark, {FILTER_PUSHDOWN: "true", **own}, on_progress)
    else:
        spark = _started(place, app_name, python, own, on_progress)
    if not is_local(place.master):
        ship(spark)
    register(spark)
    on_progress(f"Spark: ready after {time.monotonic() - began:.0f} s")
    return spark


def _started(
    place: SessionTarget, app_name: str, python: str | None, own: Mapping[str, str], on_progress: OnProgress
) -> SparkSession:
    builder = SparkSession.builder
    if place.is_connect:
        builder = builder.remote(place.master)
    else:
        if not place.submitted:
            on_progress("Spark: finding Java")
            os.environ["JAVA_HOME"] = str(find_java().home)
        prepare_environment(place.master, python, is_submitted=bool(place.submitted))
        builder = builder.master(place.master)
    if "spark.app.name" not in place.submitted:
        builder = builder.appName(app_name)
    on_progress(f"Spark: {'connecting to' if place.is_connect else 'starting on'} {place.master}")
    defaults = {name: value for name, value in settings_for(place).items() if name not in place.submitted}
    for name, value in {**defaults, **own}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _set(spark: SparkSession, settings: Mapping[str, str], on_progress: OnProgress) -> None:
    for name, value in settings.items():
        try:
            spark.conf.set(name, value)
        except PySparkException as refused:
            on_progress(f"Spark: {name} stays as it is: {str(refused).partition(chr(10))[0]}")


def start_session(
    master: str | None = None,
    *,
    app_name: str = "forebay",
    url: str | None = None,
    api_key: str | None = None,
    python: str | None = None,
    config: Mapping[str, str] | None = None,
    on_progress: OnProgress = lambda _: None,
) -> Future[SparkSession]:
    """`spark_session`, with the same arguments, in the background; the future has the session, or what went wrong.

    Example: `spark = start_session(on_progress=print).result()`
    """
    future: Future[SparkSession] = Future()

    def start() -> None:
        try:
            session = spark_session(
                master,
                app_name=app_name,
                url=url,
                api_key=api_key,
                python=python,
                config=config,
                on_progress=on_progress,
            )
            future.set_result(session)
        except BaseException as fault:  # noqa: BLE001 - the code that waits for the future gets it
            future.set_exception(fault)

    Thread(target=start, name="forebay-spark-start", daemon=True).start()
    return future


def settings_for(place: SessionTarget) -> dict[str, str]:
    """What is set there, before the user's own."""
    if place.is_connect:
        return dict(EVERYWHERE)
    if not is_local(place.master):
        return {**EVERYWHERE, **CLASSIC}
    # 200 partitions for a shuffle, Spark's default, are 200 tasks that have nothing to do on one machine.
    return {**EVERYWHERE, **CLASSIC, "spark.sql.shuffle.partitions": str(min(os.cpu_count() or 1, 16))}


def _own_settings(url: str | None, api_key: str | None) -> dict[str, str]:
    return {name: value for name, value in ((_URL, url), (_API_KEY, api_key)) if value is not None}


def prepare_environment(master: str, python: str | None, *, is_submitted: bool = False) -> None:
    """What Spark's processes are to find in their environment."""
    for name, value in UNCHECKED_ARROW.items():
        os.environ.setdefault(name, value)
    if python is not None:
        os.environ["PYSPARK_PYTHON"] = python
    elif is_local(master) and not (is_submitted and "PYSPARK_PYTHON" in os.environ):
        # Else the workers run whatever `python3` is on the PATH, without this one's packages.
        os.environ["PYSPARK_PYTHON"] = local_python()


def ship(spark: SparkSession) -> None:
    """Send this package to the executors."""
    zipped = str(package_zip())
    if is_connect(spark):
        spark.addArtifacts(zipped, pyfile=True)
    else:
        spark.sparkContext.addPyFile(zipped)


def register(spark: SparkSession) -> None:
    """Make `format("forebay")` known to a session, with its `spark.forebay.*` as defaults.

    The processes that plan a query do not see the session's settings, so they travel in a class made for it. The
    readers of this process learn `payloadAs=json`.
    """
    named = {"url": spark.conf.get(_URL, None), "apiKey": spark.conf.get(_API_KEY, None)}
    defaults = {name: value for name, value in named.items() if value}
    made_for_it: type[ForebaySource] = type("ForebaySource", (ForebaySource,), {"defaults": defaults})
    if not is_connect(spark) and is_local(str(spark.conf.get("spark.master", ""))):
        made_for_it.cores = spark.sparkContext.defaultParallelism
        spark.dataSource.register(made_for_it)
        teach_readers(spark)
        return
    # What is shipped reaches tasks, but not the process that runs a stream's source beside the driver, which may be
    # another Python than this one: there the code itself has to travel, not its name.
    if is_connect(spark):
        # Imported here: a classic session can do without the packages that it needs.
        from forebay.spark.connect_reader import fix_snapshots

        fix_snapshots(spark)
    cloudpickle.register_pickle_by_value(forebay)  # type: ignore[no-untyped-call]
    try:
        spark.dataSource.register(made_for_it)
    finally:
        cloudpickle.unregister_pickle_by_value(forebay)  # type: ignore[no-untyped-call]
    teach_readers(spark)
