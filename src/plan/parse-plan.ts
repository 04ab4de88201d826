import { z } from "zod";
import { columnTypes } from "../batch/types.js";
import type { Plan, RunId } from "./plan.js";

const rows = z.int().min(0);
const type = z.enum(columnTypes);
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

const contract = z.strictObject({
  inputs: z.array(
    z.strictObject({
      kind: z.literal("matrix"),
      input: z.string(),
      dtype: z.literal("float32"),
      columns: z.array(z.strictObject({ name: z.string(), sourceType: z.string() })),
    }),
  ),
  outputs: z.array(
    z.discriminatedUnion("kind", [
      z.strictObject({ kind: z.literal("scalar"), column: z.string(), tensor: z.string(), type }),
      z.strictObject({ kind: z.literal("element"), column: z.string(), tensor: z.string(), element: rows, type }),
    ]),
  ),
  passthrough: z.array(z.strictObject({ column: z.string(), sourceType: z.string(), type })),
  fixedBatchRows: z.int().min(1).nullable(),
});

const schema = z.strictObject({
  format: z.literal("infer-batch-plan"),
  version: z.literal(1),
  runId: z.string().transform((text) => text as RunId),
  job: z.string(),
  params: z.record(z.string(), z.string()),
  timezone: z.string(),
  input: z.strictObject({
    format: z.literal("parquet"),
    rows,
    shards: z.array(z.strictObject({ uri: z.string(), sizeBytes: rows, fingerprint: z.string(), rows })),
  }),
  model: z.strictObject({ uri: z.string(), sha256 }),
  request: z.strictObject({
    inputs: z.record(z.string(), z.array(z.string())).nullable(),
    outputs: z.record(z.string(), z.string()).nullable(),
    passthrough: z.array(z.string()),
  }),
  contract,
  target: z.strictObject({ kind: z.literal("parquet"), uri: z.string() }),
  commitRows: z.int().min(1),
  createdBy: z.string(),
}) satisfies z.ZodType<Plan>;

/** The text of a plan as it is kept at the target. */
export function planToText(plan: Plan): string {
  return `${JSON.stringify(plan, undefined, 1)}\n`;
}

/** Reads a kept plan; undefined when the text is damaged, or of a version that this program does not know. */
export function parsePlan(text: string): Plan | undefined {
  const result = schema.safeParse(parseJson(text));
  if (!result.success) {
    return undefined;
  }
  const { shards, rows: total } = result.data.input;
  return shards.reduce((sum, shard) => sum + shard.rows, 0) === total ? result.data : undefined;
}

/** undefined where the text is no JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
