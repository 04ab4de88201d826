"""changing.py KIND FOLDER: makes a table, says where it is, and goes on changing it until a line comes on stdin. Then it tells
the rows of the version that the file FOLDER/pinned names, as one line of JSON.

It appends, deletes and compacts; a clean-up keeps the files of the version in FOLDER/pinned, and removes those of all others.
"""
import json
import os
import sys
import threading

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

kind, folder = sys.argv[1], os.path.abspath(sys.argv[2])
stopped = threading.Event()


def rows(start, length):
    ids = range(start, start + length)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([i / 4 for i in ids], pa.float64()), "part": pa.array([f"p{i % 2}" for i in ids])})


def pinned():
    path = f"{folder}/pinned"
    return open(path).read() if os.path.exists(path) else None


def tell(table):
    print(json.dumps([json.dumps(row) for row in table.to_pylist()]), flush=True)


def wait():
    sys.stdin.readline()
    stopped.set()


threading.Thread(target=wait, daemon=True).start()
length, start, step = 700, 0, 0
if kind == "delta":
    path = f"{folder}/delta"
    for _ in range(6):
        write_deltalake(path, rows(start, length), partition_by=["part"], mode="append")
        start += length
    DeltaTable(path).delete("id % 7 = 3")
    print(path, flush=True)
    while not stopped.is_set():
        table = DeltaTable(path)
        action = step % 4
        if action == 0:
            write_deltalake(path, rows(start, length), mode="append")
            start += length
        elif action == 1:
            table.delete(f"id % 11 = {step % 11}")
        elif action == 2:
            table.optimize.compact()
        elif pinned():
            table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, keep_versions=[int(pinned())])
        step += 1
        stopped.wait(0.05)
    tell(DeltaTable(path, version=int(pinned())).to_pyarrow_table())
else:
    from pyiceberg.catalog.sql import SqlCatalog  # takes a second of processor time
    from pyiceberg.expressions import In

    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/ice")
    catalog.create_namespace("ns")
    table = catalog.create_table("ns.t", schema=rows(0, 1).schema)
    for _ in range(6):
        table.append(rows(start, length))
        start += length
    table.delete(In("id", [i for i in range(start) if i % 7 == 3]))
    print(table.location().removeprefix("file://"), flush=True)
    while not stopped.is_set():
        if step % 2 == 0:
            table.append(rows(start, length))
            start += length
        else:
            table.delete(In("id", [i for i in range(start) if i % 11 == step % 11]))
        step += 1
        stopped.wait(0.05)
    tell(table.scan(snapshot_id=int(pinned())).to_arrow())
