import { randomBytes } from "node:crypto";
import { describe, expect, test } from "vitest";
import { measureFeatures } from "#src/checks/features/feature-part.js";
import { featureLimits } from "#src/checks/features/feature-limits.js";
import { type FeatureColumn, measuredColumn, planFeatures } from "#src/checks/features/feature-plan.js";
import { createFeatureRows } from "#src/checks/features/feature-rows.js";
import { featureShare, planOutputBytes } from "#src/checks/output-limits.js";
import { profileRows, spanProfileTexts } from "#src/checks/span-profile.js";
import type { DecodedInput } from "#src/columnar/types.js";
import { allocate } from "#src/columnar/values.js";
import { sealedProfile } from "#src/sink/sealing.js";
import { textColumn } from "../../support/batches.js";
import { randomOf } from "../../support/random.js";
import { wholeProfileText } from "../../support/span-profiles.js";

/** So many columns of the first input, whose names have `length` characters at least. */
function columns(count: number, of: Partial<FeatureColumn> = {}, length = 1): FeatureColumn[] {
  return Array.from({ length: count }, (_, place) => ({
    name: `f${place}`.padEnd(length, "x"),
    kind: "number",
    type: "float32",
    input: 0,
    place,
    ...of,
  }));
}

describe("which features are profiled", () => {
  const about = { outputs: 1, every: 1, spanRows: 100 };

  test("the profiled features are the first 32 that a wide model reads, in its order, each once", () => {
    const plan = planFeatures([...columns(200), ...columns(200)], about);
    expect(plan.columns.map(({ name }) => name)).toEqual(columns(32).map(({ name }) => name));
    expect(plan.left).toBe(168);
    expect(planFeatures(columns(32), about).left).toBe(0);
  });

  test.each([
    ["floats", 1, columns(200)],
    ["doubles", 1, columns(200, { type: "float64" })],
    ["doubles beside many outputs", 12, columns(200, { type: "float64" })],
    ["long names", 2, columns(200, {}, 900)],
    ["vectors", 3, columns(20, { kind: "vector", type: { kind: "list", element: "float32" } })],
    ["texts", 3, columns(40, { kind: "text", type: "utf8" })],
    ["texts that have all the names that fit", 12, columns(3, { kind: "text", type: "utf8" })],
  ])("as many features are profiled as fit into 64 KiB of JSON: %s", (_, outputs, all) => {
    const random = randomOf(23);
    const plan = planFeatures(
      all.map((column, input) => ({ ...column, input, place: 0 })),
      { ...about, outputs },
    );
    const predicted = Array.from({ length: outputs }, (__, index) => ({
      name: `output_${index}`.padEnd(63, "x"),
      type: "float64" as const,
    }));
    const bytes = planOutputBytes(predicted, plan.columns.map(measuredColumn));
    const share = featureShare(bytes);
    const wild = (): number => (random() - 0.5) * 10 ** (random() * (all[0]?.type === "float64" ? 610 : 76) - 38);
    const inputs = plan.columns.map(({ kind, type }): DecodedInput => {
      if (kind === "text") {
        // Printable characters, each as likely: of all texts, they are packed least.
        const word = (): string =>
          Array.from({ length: 60 }, () => String.fromCodePoint(33 + Math.floor(random() * 94))).join("");
        const [{ nameBytes } = { nameBytes: 0 }] = featureLimits(plan.columns.map(measuredColumn), share);
        const words = Array.from({ length: Math.min(256, Math.floor(nameBytes / 76)) }, word);
        return textColumn(Array.from({ length: 2000 }, () => words[Math.floor(random() * words.length)] ?? ""));
      }
      const width = kind === "vector" ? 300 : 1;
      const data = allocate(type === "float64" ? "float64" : "float32", 2000 * width);
      data.forEach((__, at) => {
        data[at] = wild() as never;
      });
      return { kind: "matrix", width, data, valid: undefined };
    });
    const span = createFeatureRows(plan, share);
    span.add(measureFeatures(plan, inputs, { from: 0, to: 2000, firstRow: 0 }));
    const output = {
      rowCount: 2000,
      columns: predicted.map(({ name, type }) => ({
        name,
        type,
        column: {
          kind: "fixed",
          elementsPerValue: 1,
          data: Float64Array.from({ length: 2000 }, wild),
          valid: undefined,
        } as const,
      })),
    };
    const found = profileRows(output, { predicted: output.columns, bytes }, span.finish());
    expect(plan.columns.length).toBeGreaterThan(0);
    expect(Buffer.byteLength(wholeProfileText(found))).toBeLessThanOrEqual(64 * 1024);
    const texts = spanProfileTexts(found);
    const sealed = sealedProfile(randomBytes(32), { runId: "job-000000000000", span: 0 }, texts);
    // Sealed, features take no more than their place, so the whole is within the limit for any outputs.
    expect(sealed.length - texts.profile.length).toBeLessThanOrEqual(share);
    expect(Buffer.byteLength(sealed)).toBeLessThanOrEqual(64 * 1024);
  });
});
