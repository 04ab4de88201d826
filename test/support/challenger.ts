import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { projectFolder } from "./cli.js";

/** What fixtures/challenger.py has computed with numpy, scipy and Python's ONNX Runtime. */
export const python = JSON.parse(await readFile(join(projectFolder, "fixtures/challenger/agreement.json"), "utf8")) as {
  readonly tolerance: number;
  readonly columns: readonly [string, string, ...string[]];
  readonly swapped: Expected;
  readonly missed: Expected;
};

export interface Expected {
  readonly rows: number;
  readonly p: Record<
    "mean_difference" | "largest_difference" | "rank_correlation" | "rows_beyond_tolerance",
    number
  > & {
    readonly most_different: readonly string[];
  };
  readonly label: { readonly rows_equal: number; readonly psi: number; readonly flips: readonly number[][] };
  readonly probabilities: { readonly mean_cosine: number; readonly lowest_cosine: number };
}

/** A model whose predictions differ from the champion of cancer-logistic. */
export const shifted = join(projectFolder, "fixtures/challenger/shifted.onnx");
export const outputs = { label: "label", p: "probabilities[1]", probabilities: "probabilities" };
/** The columns of the features, in the order of the model. */
export const [first, second, ...others] = python.columns;
/** Inputs of the challenger: two columns in each other's place. */
export const swapped = { input: [second, first, ...others] };

/** How no row of two sides matches. */
export const matchedRows = {
  rows_a: 0,
  rows_b: 0,
  rows_gone: 0,
  rows_added: 0,
  rows_compared: 0,
  rows_changed: 0,
  keys_repeated: 0,
  keys_uneven: 0,
  repeated: [],
};

interface DifferentRow {
  readonly row: number;
  readonly keys?: { readonly id: string };
}

/** How a challenger agrees, as `--json` has it. */
export interface Found {
  readonly rows_compared: number;
  readonly rows_missed: object;
  readonly outputs: {
    readonly p: Record<string, number> & { readonly most_different: readonly DifferentRow[] };
    readonly label: { readonly flips: readonly object[] } & Record<string, unknown>;
    readonly probabilities: Record<string, number>;
  };
}

export function expectFigures(
  { outputs: { p, label, probabilities }, rows_compared: rows }: Found,
  expected: Expected,
): void {
  expect(rows).toBe(expected.rows);
  expect(p["mean_difference"]).toBeCloseTo(expected.p.mean_difference, 6);
  expect(p["largest_difference"]).toBeCloseTo(expected.p.largest_difference, 6);
  expect(p["rank_correlation"]).toBeCloseTo(expected.p.rank_correlation, 6);
  expect(p["rows_beyond_tolerance"]).toBe(expected.p.rows_beyond_tolerance);
  expect(label["rows_equal"]).toBe(expected.label.rows_equal);
  expect(label["psi"]).toBeCloseTo(expected.label.psi, 9);
  expect(label.flips).toEqual(
    expected.label.flips.map(([champion, challenger, flipped]) => ({
      champion: String(champion),
      challenger: String(challenger),
      rows: flipped,
    })),
  );
  expect(probabilities["mean_cosine"]).toBeCloseTo(expected.probabilities.mean_cosine, 6);
  expect(probabilities["lowest_cosine"]).toBeCloseTo(expected.probabilities.lowest_cosine, 6);
}

/** Exchanges a float32 in a model's bytes, such as an intercept. */
export function withFloat(bytes: Buffer, from: number, to: number): Buffer {
  const [old, now] = [Buffer.alloc(4), Buffer.alloc(4)];
  old.writeFloatLE(from);
  now.writeFloatLE(to);
  const at = bytes.indexOf(old);
  expect(at).toBeGreaterThan(0);
  const changed = Buffer.from(bytes);
  now.copy(changed, at);
  return changed;
}

/** The champion of cancer-logistic with other intercepts: its scores are higher or lower by so much before the sigmoid. */
export async function shiftedBy(shift: number): Promise<Buffer> {
  const intercept = 0.220886260271072388;
  const model = await readFile(join(projectFolder, "fixtures/models/cancer-logistic.onnx"));
  return withFloat(withFloat(model, -intercept, -intercept - shift), intercept, intercept + shift);
}
