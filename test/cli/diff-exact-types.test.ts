import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { hasPyarrow, runPython } from "../support/pyarrow.js";

interface Exact {
  readonly kind: string;
  readonly most_different: readonly {
    readonly a: string;
    readonly distance: number | null;
    readonly columns: { readonly id: number };
  }[];
  readonly [figure: string]: unknown;
}

/** Writes two tables of 1,000 rows with pyarrow, and prints what Python's numbers say of their differences. */
const tables = String.raw`
import sys, random, json, decimal, datetime as dt, pyarrow as pa, pyarrow.parquet as pq
decimal.getcontext().prec = 80
D, rng, rows = decimal.Decimal, random.Random(7), 1000
day_ns = 86400 * 10**9

def digits(precision, scale):
  return lambda: D(rng.randrange(-10**precision + 1, 10**precision)).scaleb(-scale)

def step(scale):
  return lambda value: value + D(rng.choice([1, 2, 10])).scaleb(-scale)

# type in A, type in B, a value, another value for B, of which rows change at all, nanoseconds of a unit
def whole(low, high):
  return lambda: rng.randrange(low, high)

columns = {
  "price": (pa.decimal128(10, 2), pa.decimal128(10, 2), digits(8, 2), step(2), 1),
  "small": (pa.decimal128(4, 2), pa.decimal128(4, 2), digits(3, 2), step(2), 1),
  "wide": (pa.decimal128(38, 4), pa.decimal128(38, 4), digits(37, 4), step(4), 1),
  "finer": (pa.decimal128(12, 2), pa.decimal128(18, 5), digits(9, 2), step(5), 1),
  "sum": (pa.decimal128(38, 0), pa.decimal128(20, 19), digits(38, 0), lambda value: D(rng.randrange(10)).scaleb(-19), 1),
  "day": (pa.date32(), pa.date32(), whole(-800_000, 2_000_000), lambda value: value + rng.randrange(1, 40), day_ns),
  "at": (pa.timestamp("us"), pa.timestamp("us"), whole(-2**50, 2**50), lambda value: value + rng.choice([1, 86_400_000_000]), 1000),
  "utc": (pa.timestamp("us", tz="UTC"), pa.timestamp("us", tz="UTC"), whole(0, 2**50), lambda value: value - rng.randrange(1, 10**9), 1000),
  "fine": (pa.timestamp("ns"), pa.timestamp("ns"), whole(0, 2**60), lambda value: value + rng.choice([1, 10**12 + 1]), 1),
  "clock": (pa.time64("us"), pa.time64("us"), whole(0, 40_000_000_000), lambda value: value + rng.randrange(1, 40_000_000_000), 1000),
}
a, b, expected = {"id": list(range(rows))}, {"id": list(range(rows))}, {}
changed, beyond = set(), set()
tolerance = D("0.01")
for name, (type_a, type_b, value, move, unit) in columns.items():
  ones = [None if rng.random() < 0.02 else value() for _ in range(rows)]
  others = [one if rng.random() < 0.9 else None if rng.random() < 0.1 else value() if one is None else move(one) for one in ones]
  if name == "sum": others = [None if one is None else move(one) for one in ones]
  finite = [abs(y - x) for x, y in zip(ones, others) if x is not None and y is not None]
  differing = [i for i, (x, y) in enumerate(zip(ones, others)) if x != y]
  above = [i for i in differing if ones[i] is None or others[i] is None or unit > 1 or not pa.types.is_decimal(type_a) or abs(others[i] - ones[i]) > tolerance]
  changed.update(differing); beyond.update(above)
  moved = [i for i in differing if ones[i] is not None and others[i] is not None]
  largest = max(finite) * unit
  expected[name] = {
    "rows_differ": len(differing), "rows_beyond": len(above), "has_nulls": len(moved) < len(differing),
    "largest": float(largest) if pa.types.is_decimal(type_a) else float(D(largest) / 10**9),
    "texts": [None if one is None else str(one) for one in ones] if pa.types.is_decimal(type_a) else None,
    "mean": float(sum(finite) / len(finite)) if pa.types.is_decimal(type_a) else None,
  }
  a[name], b[name] = pa.array(ones, type_a), pa.array(others, type_b)
pq.write_table(pa.table(a), sys.argv[1], row_group_size=300)
pq.write_table(pa.table(b).take(pa.array(random.Random(8).sample(range(rows), rows))), sys.argv[2])
print(json.dumps({"changed": len(changed), "beyond": len(beyond), "columns": expected}))
`;

interface Expected {
  readonly changed: number;
  readonly beyond: number;
  readonly columns: Readonly<Record<string, ExpectedColumn>>;
}

interface ExpectedColumn {
  readonly rows_differ: number;
  readonly rows_beyond: number;
  /** Whether one of the two is NULL in a row. */
  readonly has_nulls: boolean;
  /** The decimals of A. */
  readonly texts: readonly (string | null)[] | null;
  readonly largest: number;
  readonly mean: number | null;
}

describe.skipIf(!hasPyarrow)(`diff of exact types${hasPyarrow ? "" : " (skipped: no Python with pyarrow)"}`, () => {
  test("diff counts changed decimals, dates and times as Python does, and names the largest difference exactly", async () => {
    const [a, b] = [join(scratch.path, "a"), join(scratch.path, "b")];
    await mkdir(a);
    await mkdir(b);
    const paths = [join(a, "one.parquet"), join(b, "one.parquet")];
    const expected = JSON.parse(runPython(tables, ...paths)) as Expected;
    const diff = async (...args: string[]) => {
      const found = await runHere(["diff", b, "--against", a, "--key", "id", ...args]);
      expect(found.code, found.stderr).toBe(0);
      return found;
    };
    const exact = lastJson(await diff("--json"));
    const within = lastJson(await diff("--json", "--tolerance", "0.01"));
    expect([exact["rows_changed"], within["rows_changed"]]).toEqual([expected.changed, expected.beyond]);
    expect(exact["not_compared"]).toEqual({});
    const outputs = exact["outputs"] as Record<string, Exact>;
    const outputsWithin = within["outputs"] as Record<string, Exact>;
    expect(Object.keys(outputs)).toEqual(Object.keys(expected.columns));
    for (const [name, column] of Object.entries(expected.columns)) {
      const { rows_differ: differing, rows_beyond: beyond, largest, mean } = column;
      const found = outputs[name];
      expect(found, name).toMatchObject(
        mean === null
          ? { kind: "times", rows_equal: 1000 - differing, largest_shift_seconds: largest }
          : { kind: "numbers", rows_beyond_tolerance: differing, largest_difference: largest },
      );
      if (mean !== null) {
        // Each difference was rounded once before they were added.
        expect(Number(found?.["mean_difference"]) / mean, name).toBeCloseTo(1, 12);
      }
      const [first] = found?.most_different ?? [];
      expect(first?.distance, name).toBe(column.has_nulls ? null : largest);
      if (column.texts !== null) {
        expect(first?.a, name).toBe(column.texts[Number(first?.columns.id)] ?? "NULL");
      }
      expect(outputsWithin[name], name).toMatchObject(
        mean === null ? { rows_equal: 1000 - differing } : { rows_beyond_tolerance: beyond },
      );
    }
    const { stdout } = await diff();
    expect(stdout).toContain("dates and times");
  });
});
