import type { ColumnType } from "#src/columns/types.js";
import { type Computed, anyComputed, anyFilter, type Filter } from "./computed.js";
import { type Dice, diceOf } from "./dice.js";
import { anyModel, type CaseModel, type WantedColumn } from "./models.js";
import {
  anyType,
  directTypes,
  makerOf,
  numberTypes,
  plainTypes,
  type TableColumn,
  type Value,
  withNulls,
} from "./values.js";
import { type Writing, writingOf } from "./writers.js";

/** A shard: rows [rowStart, rowEnd) of the table. */
export interface CaseShard {
  /** Below the job's folder, which is where the job finds it. */
  readonly path: string;
  /** Values of its folders by column; null: Hive's word for NULL. */
  readonly folders: ReadonlyMap<string, Value>;
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Its columns, which each shard has in an order of its own. */
  readonly columns: readonly number[];
  readonly writing: Writing;
}

/** How the job is carried out. */
export type Way = "at once" | "killed" | "two workers" | "two workers at once" | "process";

/** A table, a job and a way to carry it out, all made from one seed. */
export interface Case {
  readonly seed: number;
  readonly columns: readonly TableColumn[];
  /** By column, then by row, shards one after the other as the plan numbers them. */
  readonly values: readonly (readonly Value[])[];
  readonly rows: number;
  readonly shards: readonly CaseShard[];
  /** Types of columns that come from folders. */
  readonly folderTypes: ReadonlyMap<string, ColumnType>;
  readonly computed: readonly Computed[];
  readonly filter: Filter | undefined;
  readonly model: CaseModel;
  readonly carried: readonly string[];
  readonly settings: Settings;
  readonly way: Way;
}

export interface Settings {
  readonly missing: "bad_row" | "nan";
  readonly cast: "exact" | "lossy";
  readonly failsFirst: boolean;
  /** Whether features have few values, so that rows repeat. */
  readonly repeats: boolean;
  readonly compression: string;
  readonly commitRows: number | "auto";
  readonly batchSize: number | "auto";
  readonly threads: number;
  readonly verify: "pinned" | "full";
  /** Whether the spec names the columns of each input. */
  readonly bindsInputs: boolean;
}

/** `pyarrow`: whether it may write shards, too. */
export function caseOf(seed: number, pyarrow: boolean): Case {
  const dice = diceOf(seed);
  const kind = dice.pick(kinds);
  const isPlain = kind === "plain";
  const { columns: wanted, model } = anyModel(dice, numbersOf[kind]);
  const rows = dice.chance(0.05) ? 0 : Math.floor(dice.chance(0.3) ? dice.int(1, 20) : 50 * 100 ** dice.number());
  const settings = anySettings(dice, { rows, model, isPlain });
  const columns = tableColumns(dice, wanted, { kind, repeats: settings.repeats });
  const folderTypes = anyFolders(dice);
  const shards = anyShards(dice, { rows, columns: columns.length, folderTypes, isPlain, pyarrow });
  const values = columns.map(({ make }) => Array.from({ length: rows }, make));
  const computed = kind === "direct" ? [] : anyComputed(dice, columns, wanted);
  const names = [...columns.map(({ name }) => name), ...computed.map(({ name }) => name), ...folderTypes.keys()];
  const others = [...new Set(names)].filter((name) => name !== "id" && name !== "twice");
  const twice = names.includes("twice") ? ["twice"] : [];
  const way = dice.pick([
    "at once",
    "at once",
    "at once",
    "at once",
    "two workers",
    "two workers at once",
    "killed",
    "process",
  ] as const);
  return {
    seed,
    columns,
    values,
    rows,
    shards,
    folderTypes,
    computed,
    filter: kind !== "direct" && dice.chance(0.3) ? anyFilter(dice, columns) : undefined,
    model,
    carried: ["id", ...twice, ...dice.some(others, dice.int(0, others.length))],
    settings,
    way: rows === 0 ? "at once" : way,
  };
}

/** Columns of any type; of those that parquetjs-lite writes; of those that are read and cast without DuckDB. */
type Kind = "any" | "plain" | "direct";

const kinds: readonly Kind[] = ["any", "any", "plain", "direct", "direct"];
const numbersOf: Readonly<Record<Kind, readonly ColumnType[]>> = {
  any: numberTypes,
  plain: plainTypes.filter((type) => numberTypes.includes(type)),
  direct: directTypes.filter((type) => numberTypes.includes(type)),
};

function anySettings(
  dice: Dice,
  { rows, model, isPlain }: { rows: number; model: CaseModel; isPlain: boolean },
): Settings {
  const mostSpans = 40;
  const least = Math.max(1, Math.ceil(rows / mostSpans));
  const least2 = rows < 300 ? [1] : [];
  return {
    missing: dice.chance(0.4) ? "nan" : "bad_row",
    cast: dice.chance(0.3) ? "lossy" : "exact",
    failsFirst: dice.chance(0.2),
    repeats: dice.chance(0.2),
    compression: dice.pick(["zstd", "snappy", "gzip", "uncompressed"]),
    commitRows: dice.chance(0.15) ? "auto" : dice.int(least, Math.max(least, rows)),
    batchSize: dice.pick(["auto", ...least2, 7, 64, 1000, 4096] as const),
    threads: dice.pick([1, 1, 2]),
    // parquetjs-lite tells how long compressed chunks are where it should tell how long they are unpacked: "full" sees it.
    verify: !isPlain && dice.chance(0.15) ? "full" : "pinned",
    bindsInputs: !model.byName || dice.chance(0.5),
  };
}

/** The key, the model's columns, and others, some of which are never used. */
function tableColumns(
  dice: Dice,
  wanted: readonly WantedColumn[],
  { kind, repeats }: { kind: Kind; repeats: boolean },
): TableColumn[] {
  const isPlain = kind === "plain";
  const first = BigInt(dice.int(1, 1_000_000));
  let next = first;
  const key: TableColumn = { name: "id", type: "int64", nullable: dice.chance(0.5), make: () => (next += 1n) };
  const features = wanted.map(({ name, type }): TableColumn => {
    const spiced = dice.chance(0.4) ? makerOf(type, "wild", dice) : undefined;
    const spice = isPlain ? 0 : dice.pick([0.001, 0.02, 0.5]);
    const nulls = dice.chance(0.3) ? dice.pick([0.002, 0.05]) : 0;
    const tame = pooled(lengthOf(type, makerOf(type, "tame", dice), dice), repeats, dice);
    const make = (): Value => (spiced !== undefined && dice.chance(spice) ? spiced() : tame());
    return { name, type, nullable: nulls > 0 || dice.chance(0.5), make: withNulls(make, nulls, dice) };
  });
  const others = Array.from({ length: dice.int(0, 6) }, (_, index): TableColumn => {
    const type = kind === "any" ? anyType(dice) : dice.pick(isPlain ? plainTypes : directTypes);
    const make = makerOf(type, isPlain || dice.chance(0.3) ? "tame" : "wild", dice);
    const nulls = dice.pick([0, 0, 0.1, 0.5, 1]);
    return { name: `c${index}`, type, nullable: nulls > 0 || dice.chance(0.5), make: withNulls(make, nulls, dice) };
  });
  return dice.some([key, ...features, ...others], 1 + features.length + others.length);
}

/** Values out of a few, where rows are to be repeated. */
function pooled(make: () => Value, isPooled: boolean, dice: Dice): () => Value {
  if (!isPooled) {
    return make;
  }
  const pool = [make(), make()];
  return () => dice.pick(pool);
}

/** Lists of one length, mostly; other columns as they are. */
function lengthOf(type: ColumnType, make: () => Value, dice: Dice): () => Value {
  if (typeof type !== "object" || type.kind !== "list") {
    return make;
  }
  const element = makerOf(type.element, "tame", dice);
  const length = dice.int(1, 5);
  return () => (dice.chance(0.7) ? Array.from({ length }, element) : make());
}

/** Up to two levels of folders. */
function anyFolders(dice: Dice): ReadonlyMap<string, ColumnType> {
  const all = [
    ["region", "utf8"],
    ["dt", "date32"],
    ["number", "int64"],
  ] as const;
  return new Map(dice.chance(0.3) ? dice.some(all, dice.int(1, 2)) : []);
}

/** A value of a folder, and its name. */
function folderValue(type: ColumnType, dice: Dice): readonly [Value, string] {
  if (dice.chance(0.1)) {
    return [null, "__HIVE_DEFAULT_PARTITION__"];
  }
  if (type === "date32") {
    const days = dice.int(0, 20_000);
    return [days, new Date(days * 86_400_000).toISOString().slice(0, 10)];
  }
  if (type === "int64") {
    const number = dice.pick([0, -7, 42]);
    return [BigInt(number), String(number)];
  }
  const text = dice.pick(["eu", "a b", "o'brien", "100%", "ü=/"]);
  return [text, encodeURIComponent(text)];
}

interface Cut {
  readonly rows: number;
  readonly columns: number;
  readonly folderTypes: ReadonlyMap<string, ColumnType>;
  readonly isPlain: boolean;
  readonly pyarrow: boolean;
}

function anyShards(dice: Dice, { rows, columns, folderTypes, isPlain, pyarrow }: Cut): CaseShard[] {
  const drafts = Array.from({ length: dice.int(1, 6) }, (_, index) => {
    const folders = [...folderTypes].map(([name, type]) => {
      const [value, text] = folderValue(type, dice);
      return [name, value, text] as const;
    });
    const writing = writingOf(dice, { isPlain, pyarrow });
    const path = [...folders.map(([name, , text]) => `${name}=${text}`), `s-${index}${writing.ending}`].join("/");
    return { path: `data/${path}`, writing, folders: new Map(folders.map(([name, value]) => [name, value])) };
  });
  const ends = drafts
    .slice(1)
    .map(() => (dice.chance(0.2) ? 0 : dice.int(0, rows)))
    .toSorted((one, other) => one - other);
  const cuts = [0, ...ends, rows];
  const all = Array.from({ length: columns }, (_, index) => index);
  return drafts
    .toSorted((one, other) => Buffer.compare(Buffer.from(one.path), Buffer.from(other.path)))
    .map(({ path, writing, folders }, index) => ({
      path,
      writing,
      folders,
      rowStart: cuts[index] ?? 0,
      rowEnd: cuts[index + 1] ?? 0,
      columns: dice.chance(0.3) ? dice.some(all, columns) : all,
    }));
}

/** A table whose rows are in shards. */
export type ShardedTable = Pick<Case, "columns" | "values" | "shards">;

/** A shard's own columns and their values, in its order. */
export function shardTable(
  { columns, values }: ShardedTable,
  shard: CaseShard,
): { columns: TableColumn[]; values: (readonly Value[])[] } {
  return {
    columns: shard.columns.map((index) => columns[index] as TableColumn),
    values: shard.columns.map((index) => values[index]?.slice(shard.rowStart, shard.rowEnd) ?? []),
  };
}
