import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { ColumnType } from "#src/columns/types.js";
import { projectFolder } from "../support/cli.js";
import { runPython } from "../support/pyarrow.js";
import { type Case, type CaseShard, type ShardedTable, shardTable } from "./cases.js";
import { type ExpectedRow, expectedColumns } from "./oracle.js";
import { type TableColumn, textOf, type Value } from "./values.js";

/** Values as peer.py takes them. */
function encoded(value: unknown): unknown {
  if (typeof value === "bigint") {
    return String(value);
  }
  if (typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0))) {
    return textOf(value);
  }
  return Array.isArray(value) ? value.map(encoded) : value;
}

interface PeerColumn {
  readonly name: string;
  readonly type: ColumnType;
  readonly nullable: boolean;
  readonly values: unknown;
}

function peerColumns(columns: readonly TableColumn[], values: readonly (readonly Value[])[]): PeerColumn[] {
  return columns.map(({ name, type, nullable }, index) => ({
    name,
    type,
    nullable,
    values: encoded(values[index] ?? []),
  }));
}

async function peer(act: "write" | "check", folder: string, what: object): Promise<string> {
  const path = join(folder, `${act}.json`);
  await writeFile(path, JSON.stringify(what));
  return runPython(await readFile(join(projectFolder, "test/differential/peer.py"), "utf8"), act, path);
}

/** Writes the shards that are pyarrow's, of a case or of many at once. Returns by which writer each is written. */
export async function writeByPyarrow(folder: string, ...cases: readonly ShardedTable[]): Promise<readonly string[]> {
  const shards = cases
    .flatMap((one) => one.shards.map((shard) => ({ one, shard })))
    .flatMap(({ one, shard }) => {
      const { writing } = shard;
      const { columns, values } = shardTable(one, shard);
      const path = join(folder, shard.path);
      return writing.kind === "pyarrow"
        ? [{ path, options: writing.options, columns: peerColumns(columns, values) }]
        : [];
    });
  return shards.length === 0 ? [] : (JSON.parse(await peer("write", folder, { shards })) as string[]);
}

/** pyarrow refuses pages of DuckDB's that are encoded by deltas and hold NULLs only ("InitBlock EOF"). */
const isReadable = ({ writing }: CaseShard): boolean => writing.kind !== "duckdb" || !writing.options.includes("V2");

/** Where pyarrow reads other values in shards or output than the case has, or onnxruntime predicts others. */
export async function checkByPython(folder: string, one: Case, expected: readonly ExpectedRow[]): Promise<string[]> {
  const scored = expected.filter(({ outcome }) => outcome.kind === "scored");
  const names = expectedColumns(one).slice(0, one.carried.length);
  const dtypes = new Map(one.model.model.inputs.map(({ name, dtype }) => [name, dtype]));
  const what = {
    shards: one.shards.flatMap((shard) => {
      const { columns, values } = shardTable(one, shard);
      return isReadable(shard) ? [{ path: join(folder, shard.path), columns: peerColumns(columns, values) }] : [];
    }),
    out: join(folder, "out"),
    rows: scored.length,
    carried: names.map(([name, type], index) => ({
      name,
      type,
      values: encoded(scored.map(({ carried }) => carried[index])),
    })),
    model: join(folder, "model.onnx"),
    features: Object.fromEntries(
      [...dtypes].map(([name, dtype]) => [
        name,
        {
          dtype,
          kind: dtype === "string" ? "utf8" : dtype,
          values: encoded(scored.map(({ features }) => features?.get(name) ?? [])),
        },
      ]),
    ),
    outputs: Object.fromEntries(one.model.outputs.map(({ name, source }) => [name, source])),
  };
  return JSON.parse(await peer("check", folder, what)) as string[];
}
