import { z } from "../../base/zod.js";
import { limitParam } from "../../job/jobfile/load.js";
import type { Plan } from "./plan.js";

const rows = z.int().min(0);
/** Its members are as they were written: targets store the digest of a plan beside it, and compare both. */
const written = z.record(z.string(), z.unknown());

const schema = z.strictObject({
  format: z.literal("infer-batch-plan"),
  version: z.literal(1),
  runId: z.string(),
  job: z.string(),
  params: z.record(z.string(), z.string()),
  timezone: z.string(),
  input: z.looseObject({ rows, shards: z.array(z.looseObject({ uri: z.string(), sizeBytes: rows, rows })) }),
  model: z.looseObject({ uri: z.string(), sha256: z.string() }),
  request: written,
  contract: written,
  target: z.looseObject({ kind: z.string() }),
  commitRows: z.int().min(1),
  createdBy: z.string(),
  staged: z.boolean(),
  dateParam: z.string().nullable(),
  checks: written.nullable(),
  erasure: written.optional(),
  reuseFrom: written.nullable().optional(),
});

/** A plan as the text that the target stores. */
export function planToText(plan: Plan): string {
  return `${JSON.stringify(plan, undefined, 1)}\n`;
}

/** Parses a stored plan; undefined when the text is damaged, or of a version that this program does not know. */
export function parsePlan(text: string): Plan | undefined {
  const plan = parseJson(text);
  const result = schema.safeParse(plan);
  if (!result.success) {
    return undefined;
  }
  const { params, input } = result.data;
  const inShards = input.shards.reduce((sum, shard) => sum + shard.rows, 0);
  const isWhole = input.rows === Math.min(inShards, Number(params[limitParam] ?? inShards));
  return isWhole ? (plan as Plan) : undefined; // its members in the order in which they were written, as those of a new plan are
}

/** Parses JSON; undefined when the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // a caller says what that means
  }
}
