"""Engines that are started for real: how to hand them parts of an array, and how to get scores back."""

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eigenmesh.coordinators import Coordinator, verbs


class Here(Coordinator):
    """Parts in this process, with the messages that all engines send."""

    name, request_s = "local", 0.0

    def __init__(self, parts, feature_names=None, weights=None):
        self.parts, self.n_parts, self.feature_names = parts, len(parts), feature_names
        self.n_features, self.weights = parts[0].shape[1], weights or [None] * len(parts)

    def ask(self, message):
        held = enumerate(zip(self.parts, self.weights, strict=True))
        return verbs.add([verbs.answer(message, rows, f"node {at}", weights=own) for at, (rows, own) in held])

    def scores(self, project, names):
        return [project(rows, f"node {at}") for at, rows in enumerate(self.parts)]


@dataclass(frozen=True)
class Engine:
    """A row of the table.

    started : a context in which it runs
    of_parts, of_frame, back : functions that hand it parts of an array, or a data frame, and that collect scores
    weighted : hands it parts with their weights, and gives the data and ``sample_weight`` of a fit
    worker_pids : the processes that do the work, or None if it is done here
    stop : stops it before its time, or None if it can do without
    """

    name: str
    started: Callable[[], Any]
    of_parts: Callable[[list[Any]], Any]
    of_frame: Callable[[pd.DataFrame], Any] | None
    back: Callable[[Any], np.ndarray]
    weighted: Callable[[list[Any], list[Any]], tuple[Any, Any]]
    worker_pids: Callable[[], set[int]] | None = None
    stop: Callable[[], None] | None = None


@contextmanager
def here() -> Iterator[None]:
    yield


@contextmanager
def dask_started() -> Iterator[None]:
    dask = pytest.importorskip("dask", reason="dask is not installed: pip install 'eigenmesh[dask]'")
    distributed = pytest.importorskip("distributed", reason="distributed is not installed")
    # By default the cluster gives up a killed worker that is not back within 15 s, which is short on a busy machine.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit="1GiB"
        ) as cluster,
        distributed.Client(cluster, timeout="300s") as client,
    ):
        client.wait_for_workers(2, timeout=300)
        yield


def dask_of_parts(parts):
    from dask import array, delayed

    kinds = [part if isinstance(part, np.ndarray) else np.empty((0, 0)) for part in parts]
    return array.concatenate(
        [
            array.from_delayed(delayed(part), part.shape, dtype=float, meta=kind[:0])
            for part, kind in zip(parts, kinds, strict=True)
        ],
        allow_unknown_chunksizes=True,
    )


def dask_of_frame(frame):
    from dask import dataframe

    return dataframe.from_pandas(frame, npartitions=3)


def dask_pids():
    import distributed

    return set(distributed.default_client().run(os.getpid).values())


@contextmanager
def ray_started() -> Iterator[None]:
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'eigenmesh[ray]'")
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=2**28, logging_level="error", log_to_driver=False)
    yield
    ray.shutdown()


def ray_of_parts(parts):
    import ray

    return [ray.put(part) for part in parts]


def ray_of_frame(frame):
    import ray

    return ray.data.from_pandas(frame).repartition(3)


def ray_back(scores):
    import ray

    return np.vstack(ray.get(scores)) if isinstance(scores, list) else scores.to_pandas().to_numpy(dtype=float)


def ray_pids():
    import ray

    return set(ray.get([ray.remote(lambda: os.getpid()).remote() for _ in range(4)]))


@contextmanager
def spark_started() -> Iterator[None]:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed: pip install 'eigenmesh[spark]'")
    if shutil.which("java") is None:
        pytest.skip("there is no Java: apt-get install openjdk-17-jre-headless")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    here = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g"}
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "2"}
    # Two cores, and four tries of a task.
    session = sql.SparkSession.builder.master("local[2,4]").config(map=here | quiet).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield
    session.stop()


def spark_of_parts(parts, weights=None):
    from pyspark.ml.linalg import Vectors
    from pyspark.sql import SparkSession

    def vector(row):
        if isinstance(row, np.ndarray):
            return Vectors.dense(row[0])
        return Vectors.sparse(row.shape[1], row.indices, row.data)

    def records(part, own):
        more = [()] * part.shape[0] if own is None else [(float(weight),) for weight in own]
        return [(vector(part[[row]]), *after) for row, after in enumerate(more)]

    session, each = SparkSession.getActiveSession(), weights or [None] * len(parts)
    pairs = [records(part, own) for part, own in zip(parts, each, strict=True)]
    rows = session.sparkContext.parallelize(pairs, len(parts)).flatMap(list)
    return session.createDataFrame(rows, ["features"] if weights is None else ["features", "weight"])


def spark_of_frame(frame):
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession().createDataFrame(frame).repartition(3)


def spark_back(scores):
    return np.array(scores.collect())


def spark_pids():
    from pyspark import SparkContext

    return set(SparkContext.getOrCreate().parallelize(range(8), 8).map(lambda _: os.getpid()).collect())


def ray_stop():
    import ray

    ray.shutdown()


def spark_stop():
    from pyspark.sql import SparkSession

    SparkSession.getActiveSession().stop()


def dask_back(scores):
    return np.asarray(scores.compute())


def here_weighted(parts, weights):
    return Here(parts, weights=weights), None


def dask_weighted(parts, weights):
    return dask_of_parts(parts), np.concatenate(weights)


def ray_weighted(parts, weights):
    return ray_of_parts(parts), ray_of_parts(weights)


def spark_weighted(parts, weights):
    return spark_of_parts(parts, weights), "weight"


ENGINES = (
    Engine("here", here, Here, None, np.vstack, here_weighted),
    Engine("dask", dask_started, dask_of_parts, dask_of_frame, dask_back, dask_weighted, dask_pids),
    Engine("ray", ray_started, ray_of_parts, ray_of_frame, ray_back, ray_weighted, ray_pids, ray_stop),
    Engine("spark", spark_started, spark_of_parts, spark_of_frame, spark_back, spark_weighted, spark_pids, spark_stop),
)


def kill_one(pids: set[int]) -> int:
    victim = min(pids)
    os.kill(victim, signal.SIGKILL)
    return victim
