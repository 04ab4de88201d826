"""all_types.py make FOLDER: writes tables with columns of all types that are read, old files of narrower ones and partitions by values
of many types, and tells one line of JSON for each. all_types.py compare, then KIND TABLE OUT of each: whether the Parquet files of OUT have the rows of TABLE.
"""
import datetime as dt
import glob
import json
import os
import sys
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable
from pyiceberg.types import DecimalType, DoubleType, LongType

utc = dt.timezone.utc


def columns(start, length, zoned="UTC"):
    ids = range(start, start + length)
    some = lambda make, of: pa.array([None if i % 5 == 4 else make(i) for i in ids], of)
    return {
        "id": pa.array(ids, pa.int64()),
        "flag": some(lambda i: i % 2 == 0, pa.bool_()),
        "n": some(lambda i: i - 3, pa.int32()),
        "f": some(lambda i: i / 8, pa.float32()),
        "t": some(lambda i: f"ü{i}", pa.string()),
        "b": some(lambda i: bytes([i % 256, 0, 7]), pa.binary()),
        "day": some(lambda i: dt.date(1969, 12, 30) + dt.timedelta(i), pa.date32()),
        "at": some(lambda i: dt.datetime(1969, 12, 31, 23, 59, 59, 999999) + dt.timedelta(seconds=i), pa.timestamp("us")),
        "utc": some(lambda i: dt.datetime(2026, 3, 29, 0, 30, 0, 5, utc) + dt.timedelta(minutes=i), pa.timestamp("us", zoned)),
        "money": some(lambda i: Decimal(i - 4) / 100, pa.decimal128(9, 2)),
        "wide": some(lambda i: Decimal(10**25 + i) / 1000, pa.decimal128(38, 3)),
        "list": some(lambda i: [i / 2, None], pa.list_(pa.float64())),
        "user": some(lambda i: {"age": i, "name": f"n{i}"}, pa.struct([("age", pa.int64()), ("name", pa.string())])),
    }


def parts(length):
    """Values that tables are partitioned by, the same in some rows."""
    pick = lambda values, of: pa.array([values[i * len(values) // length] for i in range(length)], of)
    return {
        "pday": pick([dt.date(2026, 11, 20), None], pa.date32()),
        "pn": pick([-7, 8], pa.int64()),
        "pt": pick(["a b/c=ü%", "x"], pa.string()),
        "pmoney": pick([Decimal("1.05"), Decimal("12.30")], pa.decimal128(9, 2)),
        "pat": pick([dt.datetime(9999, 12, 31, 23, 59, 59, 5), None], pa.timestamp("us")),
        "putc": pick([dt.datetime(2026, 11, 20, 6, tzinfo=utc), dt.datetime(2026, 11, 20, 7, tzinfo=utc)], pa.timestamp("us", "UTC")),
        "pflag": pick([True, False], pa.bool_()),
        "pzero": pick([-0.0, 1.0], pa.float64()),
    }


def tell(kind, path, table):
    print(json.dumps({"kind": kind, "table": path, "columns": table.schema.names}), flush=True)


def make(folder):
    path = f"{folder}/delta"
    for start in (0, 40):
        table = pa.table({**columns(start, 40), **parts(40)})
        write_deltalake(path, table, mode="append", partition_by=list(parts(1)))
    tell("delta", path, table)

    # Spark writes instants as INT96, which do not say that they are in UTC.
    path = f"{folder}/spark"
    table = pa.table({name: column for name, column in columns(0, 40).items() if name in ("id", "utc")})
    write_deltalake(path, table)
    (name,) = glob.glob(f"{path}/*.parquet")
    log = f"{path}/_delta_log/{0:020}.json"
    size = os.path.getsize(name)
    pq.write_table(table, name, use_deprecated_int96_timestamps=True)
    with open(log) as file:
        text = file.read().replace(f'"size":{size}', f'"size":{os.path.getsize(name)}')
    with open(log, "w") as file:
        file.write(text)
    tell("delta", path, table)

    catalog = SqlCatalog("c", uri=f"sqlite:///{folder}/types.db", warehouse=f"file://{folder}/ice")
    catalog.create_namespace("ns")
    more = {"time": pa.array([dt.time(1, 2, 3, i) for i in range(40)], pa.time64("us")), "key": pa.array([uuid.UUID(int=i * 3**60 % 2**128).bytes for i in range(40)], pa.uuid())}
    table = pa.table({**columns(0, 40), **parts(40), **more})
    made = catalog.create_table("ns.t", schema=table.schema)
    with made.update_spec() as spec:
        for name in parts(1):
            spec.add_identity(name)
    made.append(table)
    with made.update_schema() as schema:
        schema.update_column("n", LongType())
        schema.update_column("f", DoubleType())
        schema.update_column("money", DecimalType(20, 2))
        schema.rename_column("t", "text")
    made = catalog.load_table("ns.t")
    wide = pa.table({**columns(40, 40), **parts(40), **more})
    wide = wide.rename_columns(["text" if name == "t" else name for name in wide.schema.names])
    shape = made.schema().as_arrow()
    made.append(pa.table({name: wide[name].cast(shape.field(name).type) if name != "key" else wide[name] for name in shape.names}))
    tell("iceberg", made.location().removeprefix("file://"), made.scan().to_arrow())

    # Files that were Parquet before they were a table's: without ids and without the columns of their folders.
    plain = f"{folder}/plain"
    os.makedirs(plain)
    adopted = catalog.create_table("ns.adopted", schema=pa.schema([("id", pa.int64()), ("x", pa.float64()), ("t", pa.string())]))
    pq.write_table(pa.table({"x": pa.array([1.5, 2.5]), "id": pa.array([1, 2], pa.int64()), "t": ["a", None]}), f"{plain}/a.parquet")
    os.makedirs(f"{adopted.location().removeprefix('file://')}/data")
    os.rename(f"{plain}/a.parquet", f"{adopted.location().removeprefix('file://')}/data/a.parquet")
    adopted.add_files([f"{adopted.location()}/data/a.parquet"])
    with adopted.update_schema() as schema:
        schema.rename_column("x", "y")
    adopted = catalog.load_table("ns.adopted")
    tell("iceberg", adopted.location().removeprefix("file://"), adopted.scan().to_arrow())


def compare(kind, table, out):
    if kind == "delta":
        expected = DeltaTable(table).to_pyarrow_table()
    else:
        newest = max(glob.glob(f"{table}/metadata/*.metadata.json"), key=lambda name: int(os.path.basename(name).split("-")[0]))
        expected = StaticTable.from_metadata(newest).scan().to_arrow()
    found = pa.concat_tables([pq.read_table(name, partitioning=None) for name in sorted(glob.glob(f"{out}/*.parquet"))])
    by_id = lambda of: of.take(pc.sort_indices(of["id"])).to_pylist()
    clean = lambda value: value.bytes if isinstance(value, uuid.UUID) else value
    rows = lambda of: [{name: clean(value) for name, value in row.items() if name != "score"} for row in by_id(of)]
    for one, other in zip(rows(expected), rows(found), strict=True):
        assert one == other, (one, other)
    print("equal", expected.num_rows)


if sys.argv[1] == "make":
    make(os.path.abspath(sys.argv[2]))
else:
    for at in range(2, len(sys.argv), 3):
        compare(*sys.argv[at : at + 3])
