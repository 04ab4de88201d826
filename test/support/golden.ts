import { join } from "node:path";
import { projectFolder } from "./cli.js";
import type { Fixture } from "./job.js";
import { type Row, readRows } from "./parquet.js";

const tolerance = 1e-5;
const shownLimit = 10;
const cache = new Map<string, Promise<readonly Row[]>>();

/** What Python's onnxruntime predicted for a fixture, in the order of its shards. Read once. */
export function goldenRows({ name }: Pick<Fixture, "name">): Promise<readonly Row[]> {
  let rows = cache.get(name);
  if (rows === undefined) {
    rows = readRows(join(projectFolder, "fixtures/golden", `${name}.parquet`));
    cache.set(name, rows);
  }
  return rows;
}

/** Integers exactly, floats within 1e-5 relative or absolute. (An `expect` a value would take minutes.) */
export function differences(actual: readonly Row[], expected: readonly Row[]): string[] {
  const found: string[] = [];
  if (actual.length !== expected.length) {
    found.push(`${actual.length} rows, expected ${expected.length}`);
  }
  for (const [index, row] of expected.entries()) {
    const other = actual[index];
    if (other === undefined || found.length >= shownLimit) {
      break;
    }
    if (Object.keys(other).join() !== Object.keys(row).join()) {
      found.push(`row ${index}: columns ${Object.keys(other).join()}, expected ${Object.keys(row).join()}`);
    }
    for (const [column, value] of Object.entries(row)) {
      if (!same(other[column], value)) {
        found.push(`row ${index}, ${column}: ${String(other[column])}, expected ${String(value)}`);
      }
    }
  }
  return found;
}

function same(actual: unknown, expected: unknown): boolean {
  if (typeof actual !== typeof expected) {
    return false;
  }
  if (typeof actual !== "number" || typeof expected !== "number") {
    return actual === expected;
  }
  return Math.abs(actual - expected) <= tolerance * Math.max(1, Math.abs(expected));
}
