import { expect, test } from "vitest";
import type { MatchedRows } from "#src/checks/agreement/matched-rows.js";
import { openDuckDb } from "#src/duckdb/instance.js";
import { joinByKey } from "#src/duckdb/key-join.js";
import { randomOf } from "../support/random.js";

interface Row {
  readonly id: number | null;
  readonly part: string;
  readonly score: number;
}

/** Rows of which some have the same key, and some none. */
function someRows(random: () => number, count: number): Row[] {
  return Array.from({ length: count }, () => ({
    id: random() < 0.05 ? null : Math.floor(random() * 300),
    part: random() < 0.7 ? "x" : "y",
    score: Math.floor(random() * 3),
  }));
}

const sqlOf = (rows: readonly Row[], type: string): string =>
  `SELECT id::${type} AS id, part, score::FLOAT AS score FROM (VALUES ${rows
    .map(({ id, part, score }) => `(${id ?? "NULL"}, '${part}', ${score})`)
    .join(", ")}) AS t (id, part, score)`;

/** What a join in JavaScript finds. */
function expectedOf(
  a: readonly Row[],
  b: readonly Row[],
): Omit<MatchedRows, "examples"> & { readonly changed: number } {
  const keyOf = ({ id, part }: Row): string => `${id} ${part}`;
  const [inA, inB] = [a, b].map((rows) => {
    const groups = new Map<string, Row[]>();
    rows.forEach((row) => groups.set(keyOf(row), [...(groups.get(keyOf(row)) ?? []), row]));
    return groups;
  }) as [Map<string, Row[]>, Map<string, Row[]>];
  const counts = { onlyA: 0, onlyB: 0, matched: 0, repeated: 0, uneven: 0, changed: 0 };
  for (const key of new Set([...inA.keys(), ...inB.keys()])) {
    const [one, other] = [inA.get(key) ?? [], inB.get(key) ?? []];
    counts.onlyA += other.length === 0 ? one.length : 0;
    counts.onlyB += one.length === 0 ? other.length : 0;
    const isRepeated = one.length > 1 || other.length > 1;
    counts.repeated += isRepeated ? 1 : 0;
    counts.uneven += isRepeated && one.length !== other.length ? 1 : 0;
    if (one.length === 1 && other.length === 1) {
      counts.matched += 1;
      counts.changed += one[0]?.score === other[0]?.score ? 0 : 1;
    }
  }
  return { rowsA: a.length, rowsB: b.length, ...counts };
}

test.each([
  { passes: "one pass", memoryBytes: 2 ** 30 },
  { passes: "several passes", memoryBytes: 2 ** 14 },
])(
  "rows are matched by their keys in $passes as one by one: repeated keys, NULLs and keys of two types",
  async ({ memoryBytes }) => {
    using duckdb = await openDuckDb({ threads: 1, allowed: {} });
    const connection = await duckdb.connect();
    const random = randomOf(11);
    const [a, b] = [someRows(random, 150), someRows(random, 180)];
    await connection.run(`CREATE TEMP TABLE a AS ${sqlOf(a, "INTEGER")}`);
    await connection.run(`CREATE TEMP TABLE b AS ${sqlOf(b, "BIGINT")}`);
    const statements: string[] = [];
    const watched = new Proxy(connection, {
      get: (of, name) =>
        name === "run"
          ? async (sql: string) => (statements.push(sql), await of.run(sql))
          : Reflect.get(of, name).bind(of),
    });
    const score = { name: "score", type: "float32" } as const;
    const found = await joinByKey(
      { connection: watched, memoryBytes, columns: { a: [score], b: [score] } },
      { key: ["id", "part"], columns: ["score"], tolerance: 0 },
    );
    const { examples, ...counts } = found;
    expect(counts).toEqual(expectedOf(a, b));
    expect(counts.repeated).toBeGreaterThan(3);
    expect(examples).toHaveLength(5);
    const joins = statements.filter((sql) => sql.startsWith("INSERT INTO joined"));
    expect(joins.length > 1).toBe(memoryBytes < 2 ** 20);
    connection.closeSync();
  },
);
