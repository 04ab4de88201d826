"""growing.py: does what lines of stdin ask for, each a JSON array, with one answer a line.

["open", KIND, FOLDER] makes an empty table of a kind and answers where it is. [TABLE, ACTION] has that table: append START LENGTH;
delete LOW HIGH (of ids); compact; touch (a commit without rows); version; vacuum; expire; replace (it is made anew); checkpoint (and removes the log before it).
"""
import json
import os
import shutil
import sys

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake


def rows(start, length):
    ids = range(start, start + length)
    return pa.table({"id": pa.array(ids, pa.int64()), "x": pa.array([i / 4 for i in ids], pa.float64())})


class Delta:
    def __init__(self, folder):
        self.folder = folder
        self.path = f"{folder}/delta"
        write_deltalake(self.path, rows(0, 0), mode="overwrite")

    def append(self, start, length):
        write_deltalake(self.path, rows(int(start), int(length)), mode="append")

    def delete(self, low, high):
        DeltaTable(self.path).delete(f"id >= {low} and id < {high}")

    def compact(self):
        DeltaTable(self.path).optimize.compact()

    def vacuum(self):
        DeltaTable(self.path).vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)

    def checkpoint(self):
        table = DeltaTable(self.path)
        table.create_checkpoint()
        for name in os.listdir(f"{self.path}/_delta_log"):
            if name.endswith(".json") and int(name[:20]) < table.version():
                os.remove(f"{self.path}/_delta_log/{name}")

    def touch(self):
        DeltaTable(self.path).alter.set_table_description("touched")

    def replace(self):
        shutil.rmtree(self.path)
        self.__init__(self.folder)

    def version(self):
        return DeltaTable(self.path).version()


class Iceberg:
    def __init__(self, folder):
        from pyiceberg.catalog.sql import SqlCatalog  # takes a second of processor time

        self.warehouse = f"{folder}/iceberg"
        os.makedirs(self.warehouse, exist_ok=True)
        self.catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{self.warehouse}")
        self.catalog.create_namespace_if_not_exists("ns")
        self.table = self.catalog.create_table("ns.t", rows(0, 0).schema)
        self.path = self.table.location().removeprefix("file://")

    def append(self, start, length):
        self.table.append(rows(int(start), int(length)))

    def delete(self, low, high):
        from pyiceberg.expressions import And, GreaterThanOrEqual, LessThan

        self.table.delete(And(GreaterThanOrEqual("id", int(low)), LessThan("id", int(high))))

    def compact(self):
        """Rewrites all rows into one file. pyiceberg has no compaction: its overwrite is one but for the operation's name."""
        seen = {snapshot.snapshot_id for snapshot in self.table.snapshots()}
        with self.table.transaction() as transaction:
            transaction.overwrite(self.table.scan().to_arrow())
        location = self.table.metadata_location.removeprefix("file://")
        with open(location) as file:
            metadata = json.load(file)
        for snapshot in metadata["snapshots"]:
            if snapshot["snapshot-id"] not in seen:
                snapshot["summary"]["operation"] = "replace"
        with open(location, "w") as file:
            json.dump(metadata, file)
        self.table.refresh()

    touch = compact

    def version(self):
        snapshot = self.table.current_snapshot()
        return snapshot and str(snapshot.snapshot_id)

    def expire(self):
        current = self.table.current_snapshot().snapshot_id
        maintenance = self.table.maintenance.expire_snapshots()
        for snapshot in self.table.snapshots():
            if snapshot.snapshot_id != current:
                maintenance = maintenance.by_id(snapshot.snapshot_id)
        maintenance.commit()


tables = {}
for line in sys.stdin:
    what, *args = json.loads(line)
    if what == "open":
        kind, folder = args
        table = (Delta if kind == "delta" else Iceberg)(os.path.abspath(folder))
        tables[table.path] = table
        answer = table.path
    else:
        action, *words = args[0].split()
        answer = getattr(tables[what], action)(*words)
    print(json.dumps(answer), flush=True)
os._exit(0)  # without waiting for threads of the libraries
