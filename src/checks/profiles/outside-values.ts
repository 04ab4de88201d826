import type { BytesColumn, Column, FixedColumn } from "../../columnar/types.js";
import type { ValueCounts } from "./value-counts.js";
import { hashBytes, nameOfText } from "./value-names.js";

/** The values that a spec allows in a column. */
export interface ValueList {
  /** Tells lists apart: attempts at a run may have different specs. */
  readonly digest: string;
  /** As profiles name the values. */
  readonly names: ReadonlySet<string>;
}

/** The rows of a column whose values are not in a list. */
export interface OutsideValues {
  /** The list's digest. */
  readonly digest: string;
  readonly rows: number;
  /** The values whose names are before `cutOff`, in the order of their names, with all of their rows. */
  readonly examples: ReadonlyMap<string, number>;
  /** The first name, in the order of names, that does not fit into the bytes of the examples; absent: all fit. */
  readonly cutOff?: string;
}

/** Bytes of the JSON of examples. */
const exampleBytes = 160;
/** Bytes of the count of an example and of the JSON around it. */
const countBytes = 12;

const encoder = new TextEncoder();

/** @param values texts, whole numbers, "true" or "false" */
export function valueList(values: readonly string[]): ValueList {
  const names = new Set(values.map((value) => nameOfText(encoder.encode(value))));
  const bytes = encoder.encode(JSON.stringify([...names].toSorted()));
  return { digest: `${names.size}-${hashBytes(bytes, 0, bytes.length).toString(16)}`, names };
}

/** Counts the rows of a column whose values are not in the list, NULLs left out. `values`: the counts of the column. */
export function outsideValues(list: ValueList, column: Column, values: ValueCounts): OutsideValues {
  const found = createOutside(list);
  if (values.kind === "few") {
    for (const [name, rows] of values.counts) {
      found.add(name, rows);
    }
  } else if (column.kind === "bytes") {
    addTexts(found, column);
  } else if (column.kind === "fixed") {
    addIntegers(found, column);
  } else if (column.kind === "list") {
    return outsideValues(list, column.child, values);
  }
  return found.finish();
}

interface Outside {
  readonly list: ValueList;
  /** Adds rows with a value. */
  add(name: string, rows: number): void;
  finish(): OutsideValues;
}

function createOutside(list: ValueList): Outside {
  const examples = createExamples();
  let rows = 0;
  return {
    list,
    add(name, more) {
      if (!list.names.has(name)) {
        rows += more;
        examples.add(name, more);
      }
    },
    finish: () => ({ digest: list.digest, rows, ...examples.finish() }),
  };
}

interface Example {
  readonly name: string;
  /** Bytes of its JSON. */
  readonly bytes: number;
  rows: number;
}

interface Examples {
  /** Adds rows with a value, unless its name is at or behind the cut-off. */
  add(name: string, rows: number): void;
  finish(): Pick<OutsideValues, "examples" | "cutOff">;
}

/**
 * The cut-off is the first name that does not fit together with all names before it. So that of some names is never before
 * that of these and more, and this one is a name or the cut-off of some part: examples merge in any order.
 */
function createExamples(cutOffBefore?: string): Examples {
  /** In the order of their names. */
  const kept: Example[] = [];
  let cutOff = cutOffBefore;
  return {
    add(name, rows) {
      if (cutOff !== undefined && name >= cutOff) {
        return;
      }
      const found = kept.findIndex((one) => one.name >= name);
      const at = found === -1 ? kept.length : found;
      const next = kept[at];
      if (next?.name === name) {
        next.rows += rows;
        return;
      }
      kept.splice(at, 0, { name, bytes: Buffer.byteLength(JSON.stringify(name)) + countBytes, rows });
      const end = endOf(kept);
      cutOff = kept[end]?.name ?? cutOff;
      kept.length = end;
    },
    finish: () => ({
      examples: new Map(kept.map(({ name, rows }) => [name, rows])),
      ...(cutOff === undefined ? {} : { cutOff }),
    }),
  };
}

/** How many of the first examples fit into their bytes. */
function endOf(examples: readonly Example[]): number {
  let left = exampleBytes;
  const end = examples.findIndex(({ bytes }) => {
    left -= bytes;
    return left < 0;
  });
  return end === -1 ? examples.length : end;
}

/** Adds the rows of both; undefined: they were compared with different lists, or some were not. */
export function mergeOutside(
  one: OutsideValues | undefined,
  other: OutsideValues | undefined,
): OutsideValues | undefined {
  if (one === undefined || other === undefined || one.digest !== other.digest) {
    return undefined;
  }
  const examples = createExamples(firstOf(one.cutOff, other.cutOff));
  for (const [name, rows] of [...one.examples, ...other.examples]) {
    examples.add(name, rows);
  }
  return { digest: one.digest, rows: one.rows + other.rows, ...examples.finish() };
}

function firstOf(one: string | undefined, other: string | undefined): string | undefined {
  return one === undefined || (other !== undefined && other < one) ? other : one;
}

/** Texts that were found in the list are not decoded again. */
function addTexts(found: Outside, { offsets, bytes, valid }: BytesColumn): void {
  const byHash = new Map<number, { readonly from: number; readonly to: number }>();
  for (let row = 0; row + 1 < offsets.length; row += 1) {
    if (valid !== undefined && valid[row] === 0) {
      continue;
    }
    const [from, to] = [offsets[row] as number, offsets[row + 1] as number];
    const hash = hashBytes(bytes, from, to);
    const known = byHash.get(hash);
    if (known !== undefined && areEqual(bytes, known, { from, to })) {
      continue;
    }
    const name = nameOfText(bytes.subarray(from, to));
    if (found.list.names.has(name)) {
      byHash.set(hash, { from, to });
    } else {
      found.add(name, 1);
    }
  }
}

interface Bytes {
  readonly from: number;
  readonly to: number;
}

function areEqual(bytes: Uint8Array, one: Bytes, other: Bytes): boolean {
  return Buffer.compare(bytes.subarray(one.from, one.to), bytes.subarray(other.from, other.to)) === 0;
}

function addIntegers(found: Outside, { data, valid }: FixedColumn): void {
  const inList = new Set<number | bigint>();
  for (let row = 0; row < data.length; row += 1) {
    const value = data[row] as number | bigint;
    if ((valid !== undefined && valid[row] === 0) || inList.has(value)) {
      continue;
    }
    const name = String(value);
    if (found.list.names.has(name)) {
      inList.add(value);
    } else {
      found.add(name, 1);
    }
  }
}
