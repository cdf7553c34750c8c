"""A name for the jobs of a thread, by which another thread can end them.

A session's own tags do not reach jobs that a classic session runs (Spark 4.3: `interruptTag` finds none), so there the
context's are used; on Connect there are only the session's.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from forebay.spark.masters import is_connect


@contextmanager
def tagged(spark: SparkSession, tag: str) -> Iterator[None]:
    """Jobs that this thread begins meanwhile have the tag."""
    if is_connect(spark):
        spark.addTag(tag)
        try:
            yield
        finally:
            spark.removeTag(tag)
        return
    spark.sparkContext.addJobTag(tag)
    try:
        yield
    finally:
        spark.sparkContext.removeJobTag(tag)


def cancel(spark: SparkSession, tag: str) -> None:
    """End the jobs that have the tag now."""
    if is_connect(spark):
        spark.interruptTag(tag)
    else:
        spark.sparkContext.cancelJobsWithTag(tag)


@contextmanager
def described(spark: SparkSession, text: str, pool: str) -> Iterator[None]:
    """Jobs that this thread begins meanwhile are shown with the text on Spark's pages, and share the pool."""
    if is_connect(spark):
        yield
        return
    context = spark.sparkContext
    context.setJobDescription(text)
    context.setLocalProperty("spark.scheduler.pool", pool)
    try:
        yield
    finally:
        context.setLocalProperty("spark.job.description", None)  # type: ignore[arg-type]
        context.setLocalProperty("spark.scheduler.pool", None)  # type: ignore[arg-type]
