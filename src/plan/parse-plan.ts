import { z } from "../util/zod.js";
import type { Contract } from "../binding/contract.js";
import { numericTensorTypes } from "../columnar/tensor.js";
import { type ColumnType, scalarTypes } from "../columnar/types.js";
import { limitParam } from "../spec/load.js";
import type { Plan, RunId } from "./plan.js";

const rows = z.int().min(0);
const sha256 = z.string().regex(/^[0-9a-f]{64}$/);

const type: z.ZodType<ColumnType> = z.lazy(() =>
  z.union([
    z.enum(scalarTypes),
    z.strictObject({ kind: z.literal("decimal"), precision: z.int(), scale: z.int() }),
    z.strictObject({ kind: z.literal("list"), element: type }),
    z.strictObject({ kind: z.literal("struct"), fields: z.array(z.strictObject({ name: z.string(), type })) }),
  ]),
);

const columnRef = z.strictObject({
  name: z.string(),
  path: z.array(z.string()).min(1),
  type,
  partition: z.literal(true).optional(),
  computed: z.literal(true).optional(),
});
const expressions = z.strictObject({
  list: z.array(
    z.strictObject({
      kind: z.enum(["where", "column"]),
      name: z.string(),
      text: z.string(),
      uses: z.array(z.string()),
    }),
  ),
  folders: z.array(columnRef),
});
const dtype = z.enum(numericTensorTypes);
const rank = z.union([z.literal(1), z.literal(2)]);
const padding = { value: z.number(), side: z.enum(["left", "right"]), truncate: z.boolean(), shrink: z.boolean() };

const side = z.enum(["left", "right"]);
const derived = z.array(z.strictObject({ input: z.string(), dtype }));
const tokens = z.strictObject({
  tokenizer: sha256,
  dtype: z.enum(["int32", "int64"]),
  width: z.int().min(1),
  cut: side,
  value: z.int(),
  side,
  shrink: z.boolean(),
  sorted: z.boolean(),
  masks: derived,
  types: derived,
});

const contract = z.strictObject({
  inputs: z.array(
    z.discriminatedUnion("kind", [
      z.strictObject({ kind: z.literal("matrix"), input: z.string(), dtype, rank, columns: z.array(columnRef) }),
      z.strictObject({ kind: z.literal("list"), input: z.string(), dtype, width: z.int().min(0), column: columnRef }),
      z.strictObject({
        kind: z.literal("padded"),
        input: z.string(),
        dtype,
        width: z.int().min(1),
        column: columnRef,
        ...padding,
      }),
      z.strictObject({ kind: z.literal("mask"), input: z.string(), dtype, of: z.string() }),
      z.strictObject({
        kind: z.literal("text"),
        input: z.string(),
        rank,
        column: columnRef,
        tokens: tokens.optional(),
      }),
    ]),
  ),
  outputs: z.array(
    z.discriminatedUnion("kind", [
      z.strictObject({ kind: z.enum(["scalar", "vector"]), column: z.string(), tensor: z.string(), type }),
      z.strictObject({ kind: z.literal("element"), column: z.string(), tensor: z.string(), element: rows, type }),
    ]),
  ),
  passthrough: z.array(z.strictObject({ column: z.string(), source: columnRef })),
  fixedBatchRows: z.int().min(1).nullable(),
  expressions: expressions.nullable(),
  cast: z.enum(["exact", "lossy"]),
  missing: z.enum(["bad_row", "nan"]),
  lineage: z.literal(true).optional(),
  numbered: z.literal(true).optional(),
  reuse: z.strictObject({ key: z.array(z.string()) }).optional(),
}) satisfies z.ZodType<Contract>;

const inputSource = z.union([
  z.array(z.string()),
  z.strictObject({ column: z.string(), pad: z.strictObject({ to: z.int().min(1).optional(), ...padding }) }),
  z.strictObject({
    tokenize: z.string(),
    tokenizer: z.string(),
    max: z.int().optional(),
    shrink: z.boolean().optional(),
  }),
  z.strictObject({ mask_of: z.string() }),
  z.strictObject({ types_of: z.string() }),
]);

const model = {
  uri: z.string(),
  sha256,
  version: z.string().optional(),
  origin: z.strictObject({ runId: z.string().optional(), tags: z.record(z.string(), z.string()) }).optional(),
  tokenizers: z.array(z.strictObject({ uri: z.string(), sha256, version: z.string().optional() })).optional(),
};

const modelRequest = {
  inputs: z.record(z.string(), inputSource).nullable(),
  outputs: z.record(z.string(), z.string()).nullable(),
  cast: z.enum(["exact", "lossy"]),
  missing: z.enum(["bad_row", "nan"]),
};

const prompted = z.strictObject({
  system: z.string().optional(),
  user: z.string().optional(),
  file: z.string().optional(),
  input: z.string().optional(),
  max_input_tokens: z.int().optional(),
  truncate: z.strictObject({ column: z.string(), side: z.enum(["start", "end"]) }).optional(),
  answer_columns: z.array(z.enum(["prompt_tokens", "completion_tokens", "finish_reason", "model"])).optional(),
  sampling: z.record(z.string(), z.unknown()),
  response: z
    .record(
      z.string(),
      z.strictObject({
        type: z.enum(["string", "number", "integer", "boolean"]),
        enum: z.array(z.string()).optional(),
        minimum: z.number().optional(),
        maximum: z.number().optional(),
        max_length: z.int().optional(),
        description: z.string().optional(),
      }),
    )
    .optional(),
});

const pinnedRun = z.strictObject({ runId: z.string(), date: z.string(), sha256, place: z.string() });

const pinnedFile = z.strictObject({ uri: z.string(), sha256 });

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
    uniform: z.literal(true).optional(),
    shards: z.array(
      z.strictObject({ uri: z.string(), sizeBytes: rows, fingerprint: z.string(), rows, sha256: sha256.optional() }),
    ),
  }),
  model: z.strictObject(model),
  request: z.strictObject({
    ...modelRequest,
    passthrough: z.array(z.string()),
    partitions: z.record(z.string(), z.enum(["text", "date", "int64", "float64", "bool"])),
    columns: z.record(z.string(), z.string()),
    where: z.string().nullable(),
    prompt: prompted.optional(),
  }),
  contract,
  target: z.looseObject({ kind: z.string() }),
  commitRows: z.int().min(1),
  createdBy: z.string(),
  staged: z.boolean(),
  dateParam: z.string().nullable(),
  checks: z
    .strictObject({
      baseline: z.array(pinnedRun),
      leftOut: z
        .array(z.strictObject({ runId: z.string(), date: z.string(), why: z.enum(["approved", "expected"]) }))
        .optional(),
      olderModel: z
        .strictObject({ usedOn: z.string(), last: z.strictObject({ date: z.string(), modelSha256: z.string() }) })
        .optional(),
      profile: pinnedFile.optional(),
      golden: pinnedFile.optional(),
      slices: z.array(z.string()).optional(),
      sql: z.record(z.string(), z.string()).optional(),
      sampleEvery: z.int().min(1).optional(),
    })
    .nullable(),
  erasure: z.strictObject({ of: z.string(), at: z.string(), by: z.string(), writer: z.string() }).optional(),
  reuseFrom: pinnedRun.nullable().optional(),
}) satisfies z.ZodType<Plan>;

/** A plan as the text that the target stores. */
export function planToText(plan: Plan): string {
  return `${JSON.stringify(plan, undefined, 1)}\n`;
}

/** Parses a stored plan; undefined when the text is damaged, or of a version that this program does not know. */
export function parsePlan(text: string): Plan | undefined {
  const result = schema.safeParse(parseJson(text));
  if (!result.success) {
    return undefined;
  }
  const { params, input } = result.data;
  const inShards = input.shards.reduce((sum, shard) => sum + shard.rows, 0);
  return input.rows === Math.min(inShards, Number(params[limitParam] ?? inShards)) ? result.data : undefined;
}

/** Parses JSON; undefined when the text is not JSON. */
export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // a caller says what that means
  }
}
