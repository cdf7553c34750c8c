"""What Spark's daemon keeps is spared the collector; nobody else's process is touched."""

from __future__ import annotations

import gc
import subprocess
import sys

from forebay.spark.worker_process import spare_the_collector


def test_a_process_that_spark_does_not_keep_is_left_alone() -> None:
    before = gc.get_freeze_count()
    spare_the_collector()
    assert gc.get_freeze_count() == before


def test_a_process_of_the_daemon_passes_over_what_is_loaded() -> None:
    program = (
        "import gc, sys, types; from importlib.machinery import ModuleSpec; "
        "sys.modules['__main__'].__spec__ = ModuleSpec('pyspark.daemon', None); "
        "from forebay.spark.worker_process import spare_the_collector; "
        "spare_the_collector(); count = gc.get_freeze_count(); spare_the_collector(); "
        "print(count > 1000, gc.get_freeze_count() == count)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
