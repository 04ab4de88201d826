import { runPython } from "./pyarrow.js";

/** How a table is written by pyarrow: arguments of `write_table`, as Python. */
export interface Writing {
  readonly name: string;
  readonly options: string;
}

/**
 * Writes `<folder>/<name>.parquet`: a column of each type that is read without DuckDB, with its extremes, and how many
 * are NULL: none (required), none (optional), some, runs, all.
 */
export function writeTables(folder: string, rows: number, writings: readonly Writing[]): void {
  write(folder, tables(rows), writings);
}

/**
 * The same with columns of lists of numbers: empty ones, long ones, all of one length, and of any; with and without
 * NULLs and elements that are NULL. `id` has the rows' numbers.
 */
export function writeLists(folder: string, rows: number, writings: readonly Writing[]): void {
  write(folder, lists(rows), writings);
}

function write(folder: string, table: string, writings: readonly Writing[]): void {
  const calls = writings.map(({ name, options }) => `pq.write_table(table, "${folder}/${name}.parquet", ${options})`);
  runPython(`${table}\n${calls.join("\n")}`);
}

const makers = (rows: number): string => `
import datetime, math, random, struct
import pyarrow as pa, pyarrow.parquet as pq
rows = ${rows}
dice = random.Random(7)
us = datetime.timezone.utc
odd = struct.unpack("<d", struct.pack("<Q", 0x7FF8DEADBEEF0001))[0]
floats = [0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 5e-324, 1.7976931348623157e308]
def whole(bits, signed):
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2 ** bits - 1)
    return lambda row: [low, high, 0, 1, dice.randint(low, high), row % 100][dice.randrange(6)]
texts = ["", "a", "\\0", "ä", "日本語", "👩‍👩‍👧‍👦", "exactly 12 b", "exactly 13 by", "x" * 31, "x" * 32, "y" * 33, "long " * 300]
makers = {"bool": (pa.bool_(), lambda row: dice.random() < 0.5),
    **{f"int{bits}": (getattr(pa, f"int{bits}")(), whole(bits, True)) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": (getattr(pa, f"uint{bits}")(), whole(bits, False)) for bits in (8, 16, 32, 64)},
    "float32": (pa.float32(), lambda row: dice.choice([0.0, -0.0, 1.5, math.nan, math.inf, -math.inf, 1e-45, 3e38, dice.random()])),
    "float64": (pa.float64(), lambda row: dice.choice([*floats, odd, dice.random()])),
    "date": (pa.date32(), lambda row: dice.choice([0, -1, 2 ** 31 - 1, -(2 ** 31), dice.randint(-99999, 99999)])),
    "timestamp": (pa.timestamp("us"), lambda row: dice.choice([0, -1, 2 ** 63 - 1, 2 ** 63 - 2, -(2 ** 63) + 2, dice.randint(0, 2 ** 51)])),
    "utc": (pa.timestamp("us", "UTC"), lambda row: dice.choice([0, -1, 2 ** 62, dice.randint(0, 2 ** 51)])),
    "text": (pa.string(), lambda row: dice.choice(texts) if dice.random() < 0.6 else f"text {row}"),
    "binary": (pa.binary(), lambda row: dice.choice([b"", b"\\x00\\xff", bytes([row % 256]) * (row % 40)])),
    "few": (pa.string(), lambda row: f"level {row // 50 % 5}"),
    "one": (pa.int64(), lambda row: 7),
    "late": (pa.string(), lambda row: "early" if row < rows / 3 else f"late {row} " + "." * 20),
}
fields, arrays = [], []
def add(name, type, values, nullable):
    fields.append(pa.field(name, type, nullable))
    arrays.append(pa.array(values, type))
`;

const tables = (rows: number): string => `${makers(rows)}
missing = {"some": lambda row: dice.random() < 0.3,
    "runs": lambda row: row // 300 % 2 == 1,
    "seldom": lambda row: row % 997 == 5,
    "all": lambda row: True,
}
for name, (type, make) in makers.items():
    values = [make(row) for row in range(rows)]
    add(name, type, values, False)
    add(name + " none", type, values, True)
    for kind, is_missing in missing.items():
        add(f"{name} {kind}", type, [None if is_missing(row) else values[row] for row in range(rows)], True)
table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
`;

const lists = (rows: number): string => `${makers(rows)}
add("id", pa.int64(), list(range(rows)), False)
lengths = [lambda row: 0 if row % 3 else row % 400, lambda row: 5, lambda row: dice.randint(0, 9), lambda row: 300 if row % 100 == 50 else 1]
shapes = [(length, outer, inner) for length in lengths for outer in (False, True) for inner in (False, True)]
def add_lists(name, element, pool, length, outer, inner):
    values = [None if outer and dice.random() < 0.2 else [None if inner and dice.random() < 0.1 else dice.choice(pool) for _ in range(length(row))]
        for row in range(rows)
    ]
    add(name, pa.list_(pa.field("element", element, inner)), values, outer)
kinds = ["float32", "float64", "int8", "uint16", "int32", "uint32", "int64", "uint64"]
for index, (length, outer, inner) in enumerate(shapes):
    for name in kinds[index % 8::8]:
        element, make = makers[name]
        add_lists(f"lists {name} {index}", element, [make(row) for row in range(50)], length, outer, inner)
add("lists all", pa.list_(pa.float32()), [None] * rows, True)
add("lists empty", pa.list_(pa.float32()), [[]] * rows, True)
add("lists alike", pa.list_(pa.float32()), [[dice.random()] * 24 for row in range(rows)], True)
table = pa.Table.from_arrays(arrays, schema=pa.schema(fields))
`;
