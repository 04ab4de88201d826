"""histories.py FOLDER FIRST COUNT: tables with random histories by deltalake (even seeds) and pyiceberg (odd seeds), and what
these read of them at three versions: one JSON line for each version.

A history appends, deletes, overwrites a partition, renames, adds, drops and widens columns, compacts and makes checkpoints.
"""
import json
import os
import random
import sys

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.types import DoubleType, LongType, StringType

folder, first, count = os.path.abspath(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
os.makedirs(folder, exist_ok=True)


def rows(rng, start, length, names):
    """Rows of the columns that a table has now; values are exact in every type."""
    columns = {
        "id": pa.array(range(start, start + length), pa.int64()),
        "n": pa.array([None if rng.random() < 0.1 else rng.randrange(1000) for _ in range(length)], pa.int32()),
        "x": pa.array([rng.randrange(-8, 8) / 4 for _ in range(length)], pa.float32()),
        "part": pa.array([rng.choice(["a", "b c", "ü/%", None]) for _ in range(length)], pa.string()),
    }
    return {name: columns.get(key, pa.array([rng.randrange(5) / 2 for _ in range(length)], pa.float64())) for name, key in names.items()}


def told(kind, path, at, table):
    lines = [json.dumps(row) for row in table.to_pylist()]
    print(json.dumps({"kind": kind, "table": path, "at": at, "rows": [json.loads(line) for line in sorted(lines)]}), flush=True)


def delta(seed, rng):
    path = f"{folder}/delta{seed}"
    names = {"id": "id", "n": "n", "x": "x", "part": "part"}
    parted = rng.choice([None, ["part"]])
    start = rng.randrange(20, 60)
    write_deltalake(path, pa.table(rows(rng, 0, start, names)), partition_by=parted)
    for step in range(rng.randrange(3, 9)):
        table = DeltaTable(path)
        action = rng.choice(["append", "append", "delete", "add", "compact", "checkpoint", "overwrite"])
        if action == "append":
            length = rng.randrange(1, 40)
            write_deltalake(path, pa.table(rows(rng, start, length, names)), mode="append")
            start += length
        elif action == "delete":
            table.delete(f"id % {rng.randrange(3, 9)} = 1")
        elif action == "add" and len(names) < 7:
            name = f"added{step}"
            table.alter.add_columns([Field(name, PrimitiveType("double"), nullable=True)])
            names[name] = "other"
        elif action == "compact":
            table.optimize.compact()
        elif action == "checkpoint":
            table.create_checkpoint()
        elif action == "overwrite" and parted:
            write_deltalake(path, pa.table(rows(rng, start, 5, names)).set_column(3, "part", pa.array(["a"] * 5)), mode="overwrite", predicate="part = 'a'")
            start += 5
    newest = DeltaTable(path).version()
    for version in sorted({newest, rng.randint(0, newest), rng.randint(0, newest)}):
        told("delta", path, version, DeltaTable(path, version=version).to_pyarrow_table())


def iceberg(seed, rng):
    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog{seed}.db", warehouse=f"file://{folder}/ice{seed}")
    catalog.create_namespace("ns")
    names = {"id": "id", "n": "n", "x": "x", "part": "part"}
    start = rng.randrange(20, 60)
    data = pa.table(rows(rng, 0, start, names))
    table = catalog.create_table("ns.t", schema=data.schema, properties={"format-version": rng.choice(["1", "2"])})
    if rng.random() < 0.6:
        with table.update_spec() as update:
            update.add_identity("part")
    table.append(data)
    for step in range(rng.randrange(3, 9)):
        action = rng.choice(["append", "append", "delete", "add", "rename", "drop", "widen", "move"])
        shape = table.schema().as_arrow()
        if action == "append":
            length = rng.randrange(1, 40)
            more = pa.table(rows(rng, start, length, names))
            table.append(pa.table({name: more[name].cast(shape.field(name).type) for name in shape.names}))
            start += length
        elif action == "delete":
            ids = [i for i in range(start) if i % rng.randrange(3, 9) == 1]
            key = next(name for name, of in names.items() if of == "id")
            table.delete(In(key, ids))
        elif action == "add" and len(names) < 7:
            with table.update_schema() as update:
                update.add_column(f"added{step}", rng.choice([DoubleType()]))
            names[f"added{step}"] = "other"
        elif action == "rename":
            old = rng.choice(list(names))
            if names[old] == "part":
                continue
            with table.update_schema() as update:
                update.rename_column(old, f"{old}_{step}")
            names = {(f"{old}_{step}" if name == old else name): of for name, of in names.items()}
        elif action == "drop" and "other" in names.values():
            gone = next(name for name, of in names.items() if of == "other")
            with table.update_schema() as update:
                update.delete_column(gone)
            del names[gone]
        elif action == "widen":
            with table.update_schema() as update:
                for name, of in names.items():
                    if of == "n":
                        update.update_column(name, LongType())
                    elif of == "x":
                        update.update_column(name, DoubleType())
        elif action == "move" and len(names) > 1:
            with table.update_schema() as update:
                update.move_first(rng.choice(list(names)))
    table = catalog.load_table("ns.t")
    path = table.location().removeprefix("file://")
    told("iceberg", path, "latest", table.scan().to_arrow())
    ids = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    for snapshot in sorted({rng.choice(ids), rng.choice(ids)}):
        told("iceberg", path, str(snapshot), table.scan(snapshot_id=snapshot).to_arrow())


for seed in range(first, first + count):
    (delta if seed % 2 == 0 else iceberg)(seed, random.Random(seed))
