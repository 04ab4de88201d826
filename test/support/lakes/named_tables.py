"""named_tables.py CATALOG_URL S3_ENDPOINT KEY SECRET, then a line of JSON for each act on stdin: writes tables by pyiceberg
through a REST catalog, and answers each with a line: the rows and the version by then."""

import json
import sys

import pyarrow as pa
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.types import DoubleType

url, endpoint, key, secret = sys.argv[1:]
catalog = RestCatalog(
    "tests",
    uri=url,
    warehouse="tests",
    token="a-token-of-tests",
    **{"s3.endpoint": endpoint, "s3.access-key-id": key, "s3.secret-access-key": secret, "s3.region": "us-east-1"},
)


def rows(first, count):
    ids = list(range(first, first + count))
    texts = [None if i % 7 == 0 else f"t{i}" for i in ids]
    return pa.table({"id": pa.array(ids, pa.int64()), "x": [i / 4 for i in ids], "t": pa.array(texts, pa.string())})


def make(name):
    namespace = tuple(name.split(".")[:-1])
    for depth in range(1, len(namespace) + 1):
        catalog.create_namespace_if_not_exists(namespace[:depth])
    table = catalog.create_table(name, schema=rows(0, 1).schema)
    table.append(rows(0, 100))
    table.append(rows(100, 50))
    return table


def change(name):
    """A delete that rewrites files, a renamed and an added column, more rows."""
    table = catalog.load_table(name)
    table.delete("id < 10")
    with table.update_schema() as schema:
        schema.rename_column("x", "y")
        schema.add_column("z", DoubleType())
    more = rows(500, 20).rename_columns(["id", "y", "t"])
    table.append(more.append_column("z", pa.array([0.5] * 20)))
    return table


def grow(name):
    """Adds 50 rows to a table of which none was removed."""
    table = catalog.load_table(name)
    table.append(rows(table.scan().count(), 50))
    return table


def drop(name):
    catalog.drop_table(name)


def tag(name):
    table = catalog.load_table(name)
    table.manage_snapshots().create_tag(table.current_snapshot().snapshot_id, "kept").commit()
    return table


for line in sys.stdin:
    act, name = json.loads(line)
    table = {"make": make, "change": change, "grow": grow, "drop": drop, "tag": tag}[act](name)
    answer = {}
    if table is not None:
        table.refresh()
        snapshot = table.current_snapshot()
        answer = {
            "rows": table.scan().to_arrow().to_pylist(),
            "snapshot": str(snapshot.snapshot_id),
            "at_ms": snapshot.timestamp_ms,
            "uuid": str(table.metadata.table_uuid),
            "metadata": table.metadata_location,
            "location": table.location(),
        }
    print(json.dumps(answer), flush=True)
