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
  /** The first of these values in the order of their names, as many as have their place, with their rows. */
  readonly examples: ReadonlyMap<string, number>;
}

/** Bytes of the JSON of examples. */
const exampleBytes = 160;
/** Those of the count of an example, and of what is around it. */
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
  const examples = new Map<string, number>();
  let rows = 0;
  /** Names from this one on have no place. */
  let end: string | undefined;
  return {
    list,
    add(name, more) {
      if (list.names.has(name)) {
        return;
      }
      rows += more;
      if (end !== undefined && name >= end) {
        return;
      }
      const before = examples.get(name);
      examples.set(name, (before ?? 0) + more);
      if (before === undefined) {
        end = endOf(examples) ?? end;
        dropFrom(examples, end);
      }
    },
    finish: () => ({ digest: list.digest, rows, examples: sorted(examples) }),
  };
}

/**
 * The first name that has no place; undefined: all have. A name that has a place among some names has one among fewer of
 * them, so that examples merge in any order.
 */
function endOf(examples: ReadonlyMap<string, number>): string | undefined {
  let bytes = 0;
  for (const name of [...examples.keys()].toSorted(byName)) {
    bytes += encoder.encode(JSON.stringify(name)).length + countBytes;
    if (bytes > exampleBytes) {
      return name;
    }
  }
  return undefined;
}

function dropFrom(examples: Map<string, number>, end: string | undefined): void {
  if (end !== undefined) {
    for (const name of [...examples.keys()].filter((one) => one >= end)) {
      examples.delete(name);
    }
  }
}

function byName(one: string, other: string): number {
  return one < other ? -1 : 1;
}

function sorted(examples: ReadonlyMap<string, number>): Map<string, number> {
  return new Map([...examples].toSorted(([one], [other]) => byName(one, other)));
}

/** Adds the rows of both; undefined: they were compared with different lists, or some were not. */
export function mergeOutside(
  one: OutsideValues | undefined,
  other: OutsideValues | undefined,
): OutsideValues | undefined {
  if (one === undefined || other === undefined || one.digest !== other.digest) {
    return undefined;
  }
  const examples = new Map(one.examples);
  for (const [name, rows] of other.examples) {
    examples.set(name, (examples.get(name) ?? 0) + rows);
  }
  dropFrom(examples, endOf(examples));
  return { digest: one.digest, rows: one.rows + other.rows, examples: sorted(examples) };
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
