"""``eigenmesh fit --stream``: batches are the files of folders, or runs of rows of files."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from eigenmesh.cli.messages import Messages, note_node
from eigenmesh.cli.output import Outputs, of_node, wait_until_all_have_written
from eigenmesh.data import READERS, LabelSplit, Table, TableOptions, as_source, kind_of
from eigenmesh.errors import DataError, InputError, UnreadableFileError
from eigenmesh.estimator import StreamingPCA
from eigenmesh.events import Entry, event_log
from eigenmesh.fitting import Spread, fit_numbers
from eigenmesh.fitting.problem import DEFAULT_SPLIT, has_rank, read_one, with_rank
from eigenmesh.settings import A_STREAM, SETTINGS
from eigenmesh.transports import transport_by_name
from eigenmesh.transports.registry import TransportKind

BATCH_ROWS = 1000
TITLE = "PCA of a stream"


class BatchOfTables(NamedTuple):
    """One table per source, None if the source has no samples in this batch; the name identifies the batch."""

    name: str
    tables: Sequence[Table | None]


def batches_of(data: Sequence[str], options: TableOptions, batch_rows: int | None) -> Iterator[BatchOfTables]:
    """Batches in order. In folders, files of the same name are one batch; of files, every ``batch_rows`` rows are."""
    folders = [Path(name).is_dir() for name in data]
    if any(folders) and not all(folders):
        raise InputError(
            f"{data[folders.index(False)]} is not a folder, but other sources are; give only folders or only files."
        )
    if all(folders):
        found = [{file.name: str(file) for file in Path(name).iterdir() if kind_of(file) in READERS} for name in data]
        names = sorted(set().union(*found))
        if not names:
            raise UnreadableFileError(f"{data[0]} has no file to read; eigenmesh reads {', '.join(READERS)}.")
        files, rows = {name: [folder.get(name) for folder in found] for name in names}, batch_rows
    else:
        files, rows = {"": list(data)}, batch_rows or BATCH_ROWS
    for name, here in files.items():
        tables = [None if file is None else read_one(file, options) for file in here]
        for number, pieces in enumerate(zip_longest(*(_pieces(table, rows) for table in tables))):
            place = f"rows {number * rows} to {(number + 1) * rows - 1}" if rows else ""
            yield BatchOfTables(f"{name} {place}".strip(), pieces)


def _pieces(table: Table | None, rows: int | None) -> Iterator[Table]:
    if table is not None:
        step = rows or max(1, table.n_samples)
        for start in range(0, table.n_samples, step):
            yield table.take(slice(start, min(start + step, table.n_samples)))


def fit_stream(
    messages: Messages,
    outputs: Outputs,
    data: Sequence[str],
    table: TableOptions,
    batches: dict[str, Any],
    where: dict[str, Any],
    engine: TransportKind | None,
    settings: dict[str, Any],
) -> bool:
    """Fit every batch, print a line for each, and write the final result; True if the last batch converged."""
    if table.weight_column is not None:
        raise InputError(
            "--table weight_column cannot be used with --stream, which counts every row once; leave it out."
        )
    for name, row in SETTINGS.items():
        if name in settings and name not in A_STREAM and settings[name] != row.default_at("command"):
            raise InputError(f"{row.command} cannot be used with --stream, whose batches it says nothing about.")
    spread, batch_rows = Spread(**where), batches.pop("batch_rows")
    # The nodes of a file of links are as many as it links.
    linked = {"topology": spread.topology, "n_nodes": spread.n_nodes}
    if spread.links is not None:
        linked = {"topology": spread.links, "n_nodes": None}
    given = {name: value for name, value in settings.items() if name in A_STREAM}
    given |= {**batches, **linked, "weights": spread.weights, "split": spread.split or DEFAULT_SPLIT}
    link = None
    with ExitStack() as stack:
        if engine is not None and engine.run_nodes is None:
            if len(data) != 1 or not has_rank(data[0]):
                raise InputError(
                    f"with --transport {engine.name} every node reads its own data; name it like site-{{rank}}."
                )
            link = stack.enter_context(transport_by_name(engine.name, device=settings["device"]))
            note_node(link.rank)
            messages, outputs = of_node(link, messages, outputs)
            data, given["transport"] = [with_rank(data[0], link.rank)], link
        elif engine is not None:
            given["transport"] = engine.name
        entries: list[Entry] = []
        with event_log(outputs.events, None if outputs.report is None else entries.append) as events:
            pca = StreamingPCA(**given, on_event=lambda entry: events.emit(entry.event))
            by_label = isinstance(spread.rule(), LabelSplit)
            for batch in batches_of(data, table, batch_rows):
                messages.print(_fit_batch(pca, batch, by_label))
            if not hasattr(pca, "components_"):
                seen = getattr(pca, "n_samples_seen_", 0)
                raise DataError(f"n_samples = {seen} in all batches are too few for n_components.")
            events.emit(pca.result_.ended)
        about = {"data": list(data), "stream": True, "n_samples_seen": pca.n_samples_seen_}
        about |= {"n_samples": pca.n_samples_, "n_features": pca.n_features_in_, "tol": pca.tol}
        facts = {"data": f"{', '.join(data)}: {pca.n_samples_seen_:,} samples of {pca.n_features_in_:,} features"}
        outputs.finish(messages, pca.fitted_, fit_numbers(pca.fitted_, about), entries, TITLE, facts)
        if not pca.result_.converged:
            wait_until_all_have_written(link)
        return bool(pca.result_.converged)


def _fit_batch(pca: StreamingPCA, batch: BatchOfTables, by_label: bool) -> str:
    """Fit one batch; one line about it and about the components after it."""
    with warnings.catch_warnings():
        # The line has the same information.
        warnings.simplefilter("ignore", ConvergenceWarning)
        pca.partial_fit(**_samples(batch.tables, by_label), batch=batch.name)
    words = [f"{batch.name}: {pca.n_samples_seen_:,} samples"]
    if not hasattr(pca, "components_"):
        return f"{words[0]}, too few for the components yet"
    words.append(f"{pca.n_iter_ + 1} averages, sin(angle) at most {pca.certificate_.error_bound:.1e}")
    if pca.batch_ is not None:
        words.append(f"variance lost {pca.batch_.variance_lost:.2%}")
        words += [f"ALARM: {pca.batch_.message}"] if pca.batch_.alarm else []
    return ", ".join(words)


def _samples(tables: Sequence[Table | None], by_label: bool) -> dict[str, Any]:
    """Keyword arguments of ``partial_fit``: samples with their labels or nodes."""
    first = next(table for table in tables if table is not None)
    if len(tables) > 1:
        no_rows = np.empty((0, first.source.shape[1]), dtype=first.source.dtype)
        empty = as_source(no_rows, feature_names=first.feature_names)
        return {"X": [empty if table is None else table.source for table in tables]}
    if by_label and first.labels is None:
        raise InputError(f"{first.name} has no labels to split by; name their column with --table label_column=NAME.")
    return {"X": first.source, "nodes" if by_label else "y": first.labels}
