"""beside.py TABLE ROWS: writes to a Delta table and reads it, beside runs that add their nights, until a line comes on stdin.

It appends rows of its own, deletes and compacts. Each night of a run must have all of its ROWS, once, or none. At the end it
removes what no version needs, and tells as one line of JSON what it found wrong and how often it looked.
"""
import json
import os
import sys
import threading

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import CommitFailedError

path, rows = sys.argv[1], int(sys.argv[2])
stopped = threading.Event()
faults, looks, step = set(), 0, 0
own = set()


def wait():
    sys.stdin.readline()
    stopped.set()


def look():
    table = DeltaTable(path).to_pyarrow_table(columns=["id", "ds"]).to_pydict()
    nights = {}
    for id, ds in zip(table["id"], table["ds"]):
        nights.setdefault(ds, []).append(id)
    found = nights.pop("own", [])
    if sorted(found) != sorted(own):
        faults.add(f"own rows: {len(found)} of {len(own)}")
    for ds, ids in nights.items():
        if len(ids) != rows or len(set(ids)) != rows:
            faults.add(f"{ds}: {len(ids)} rows, {len(set(ids))} ids")
    return sorted(nights)


threading.Thread(target=wait, daemon=True).start()
while not os.path.exists(f"{path}/_delta_log/00000000000000000000.json") and not stopped.is_set():
    stopped.wait(0.02)
fields = [(field.name, pa.float32()) for field in DeltaTable(path).schema().fields if field.name not in ("id", "ds")]
while not stopped.is_set():
    table = DeltaTable(path)
    ids = list(range(step * 10, step * 10 + 10))
    try:
        if step % 3 == 0:
            columns = {"id": pa.array(ids, pa.int64()), **{name: pa.array([0.5] * 10, type) for name, type in fields}, "ds": ["own"] * 10}
            write_deltalake(path, pa.table(columns), mode="append")
            own |= set(ids)
        elif step % 3 == 1:
            table.delete(f"ds = 'own' AND id % 7 = {step % 7}")
            own = {id for id in own if id % 7 != step % 7}
        else:
            table.optimize.compact()
    except CommitFailedError:
        pass
    look()
    looks += 1
    step += 1
    stopped.wait(0.02)
DeltaTable(path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
nights = look()
print(json.dumps({"faults": sorted(faults), "looks": looks, "nights": nights}), flush=True)
