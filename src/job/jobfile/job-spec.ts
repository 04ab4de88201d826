import { lineageColumns, reuseColumn } from "../../models/binding/contract.js";
import { JobError } from "../../base/errors.js";
import { z } from "../../base/zod.js";
import { type ChecksSpec, checkChecks, checks } from "./checks-spec.js";
import { type EngineSpec, engine } from "./engine-spec.js";
import {
  type InputSpec,
  checkColumnNames,
  checkInput,
  checkInputPlaces,
  checkModelPlace,
  input,
  inputOf,
} from "./input-spec.js";
import { type ChallengerSpec, type ModelSpec, challenger, model, parseOutputReference } from "./model-spec.js";
import {
  type TargetSpecs,
  checkDelta,
  checkFiles,
  checkIceberg,
  deltaOutput,
  icebergOutput,
  checkPostgres,
  parquetOutput,
  postgresOutput,
  splitTable,
} from "./output-spec.js";
import { type PublishSpec, checkPublish, publish } from "./publish-spec.js";
import { type ReportSpec, report } from "./report-spec.js";
import { type ServeSpec, checkServe, serveSchema } from "./serve-spec.js";
import {
  attempt,
  autoOrCount,
  checking,
  countFrom,
  isTimeZone,
  plan,
  type Refuse,
  showFound,
  verdict,
} from "./values.js";

/** Rows whose key, features and model are those of an earlier run take its predictions. */
interface ReuseSpec {
  readonly key: readonly string[];
}

const reuse = z.strictObject({
  key: z
    .array(z.string())
    .min(1)
    .describe("Columns of output.columns, by their names in the output, that together name a row."),
}) satisfies z.ZodType<ReuseSpec>;

const plainParam = { type: ["string", "number", "boolean"] };

function typedParam(type: string, more: Readonly<Record<string, object>> = {}): object {
  return {
    type: "object",
    properties: { type: { const: type }, ...more, default: plainParam },
    required: ["type", ...Object.keys(more)],
    additionalProperties: false,
  };
}

/** The loader reads any plain value as text. */
const paramJsonSchema = {
  anyOf: [
    plainParam,
    typedParam("date"),
    typedParam("integer"),
    typedParam("enum", { values: { type: "array", minItems: 1, items: plainParam } }),
  ],
};

/** Version 1 of the job spec; keys are those of the YAML. */
export interface JobSpec {
  readonly version: 1;
  /** `[a-z0-9][a-z0-9-]*`; the first part of every run id. */
  readonly name: string;
  /** IANA name: the zone of `${today}` and of date expressions. */
  readonly timezone: string;
  /** Resolved, in spec order. They identify the run, so they are never secrets. */
  readonly params: Readonly<Record<string, string>>;
  readonly input: InputSpec;
  readonly model: ModelSpec;
  /** A model that scores the same rows, and whose predictions are not published. Default: there is none. */
  readonly challenger?: ChallengerSpec | undefined;
  readonly engine: EngineSpec;
  readonly output: OutputSpec;
  /** Rows a span; fixed in the plan by its writer. */
  readonly commit_rows: number | "auto";
  readonly on_bad_row: "fail" | "reject";
  /** A share of the planned rows ("0.1%"), or a count. */
  readonly max_rejects: number | string;
  readonly retry: { readonly max_seconds: number };
  /** Default: nothing is checked, and no run is held. */
  readonly checks?: ChecksSpec | undefined;
  /** Default: all rows are scored. */
  readonly reuse?: ReuseSpec | undefined;
  /** Default: readers find predictions at the target only. */
  readonly publish?: PublishSpec | undefined;
  readonly report: ReportSpec;
  /** How `serve` answers; it takes no part in runs. */
  readonly serve: ServeSpec;
}

interface OutputSpec extends TargetSpecs {
  readonly columns: readonly string[];
  readonly lineage: boolean;
  /** Adds the number of each row in the run, as the run that is compared with this one needs it. No spec says so. */
  readonly numbered?: true | undefined;
}

/** A column, or a field of a struct column; its dots become `_` in the output. */
const columnPath = z
  .string()
  .regex(
    /^(?!__proto__$)[A-Za-z_][A-Za-z0-9_.]{0,62}$/,
    "expected a column, or column.field, of letters, digits and _, at most 63",
  );

const output = z.strictObject({
  columns: z
    .array(columnPath)
    .default([])
    .meta(plan)
    .describe("Input columns that are copied to the output, with type and value unchanged."),
  lineage: z.boolean().default(false).meta(plan).describe("true adds the columns run_id, model_sha256 and scored_at."),
  parquet: parquetOutput.optional().meta(attempt),
  delta: deltaOutput.optional().meta(attempt),
  iceberg: icebergOutput.optional().meta(attempt),
  postgres: postgresOutput.optional().meta(attempt),
}) satisfies z.ZodType<OutputSpec>;

const rejectLimitError = "expected a count, or a percentage such as 0.1%";
const rejectLimit = z.union(
  [
    countFrom(0, Number.MAX_SAFE_INTEGER),
    z.string().refine(isPercentage, { error: rejectLimitError, params: showFound }),
  ],
  { error: rejectLimitError },
);

const job = z.strictObject({
  version: z.literal(1).meta(plan).describe("Version of the job spec format."),
  name: z
    .string()
    .regex(/^[a-z0-9][a-z0-9-]{0,62}$/, "expected lower-case letters, digits and -, at most 63")
    .meta(plan)
    .describe("Name of the job. Each run id starts with it."),
  timezone: z
    .string()
    .refine(isTimeZone, {
      error: "expected an IANA time zone such as Europe/Berlin",
      params: showFound,
    })
    .default("UTC")
    .meta(plan)
    .describe(
      "IANA time zone of ${today}, ${yesterday} and ${hour}, of the days that checks compare with input.since, and of expressions that extract a date or a time of day from a timestamp with time zone.",
    ),
  params: z
    .record(z.string().regex(/^[A-Za-z_][A-Za-z0-9_]*$/, "expected letters, digits and _"), z.string())
    .default({})
    .meta(plan)
    .describe(
      'Values for ${name} in the rest of the spec; --param name=value overrides one. A param can have a type, which checks its value: ds: { type: date, default: "${today}" }, top: { type: integer, default: 7 }, region: { type: enum, values: [EU, US] }; without default, --param must give the value. Params identify the run and are logged: never put a secret here.',
    ),
  input: input.meta(attempt),
  model: model.meta(plan),
  challenger: challenger
    .optional()
    .meta(attempt)
    .describe(
      "A second model that scores the same rows: how its predictions agree with the published ones is shown. See new-model.md.",
    ),
  engine: engine.prefault({}).meta(attempt),
  output,
  commit_rows: autoOrCount(1, 100_000_000)
    .default("auto")
    .meta(plan)
    .describe(
      "Rows in a span: they are committed together. auto takes 262,144, or fewer where rows are wide or the model is slow.",
    ),
  on_bad_row: z
    .enum(["fail", "reject"])
    .default("fail")
    .meta(attempt)
    .describe(
      "What happens to a row that cannot be scored. fail ends the run with exit code 65; reject sets the row aside, in _rejects/ or in infer_batch.rejects.",
    ),
  max_rejects: rejectLimit
    .optional()
    .meta(attempt)
    .describe(
      "Rejected rows that a run may have, over all its attempts: a count, or a percentage of the planned rows, which allows at least one row unless it is 0%. More end the run with exit code 65.",
    ),
  retry: z
    .strictObject({
      max_seconds: countFrom(0, 86_400)
        .default(300)
        .meta(attempt)
        .describe("Seconds to retry while the database or the object store is unavailable, before exit code 75."),
    })
    .prefault({}),
  checks: checks
    .optional()
    .meta(verdict)
    .describe("Checks of the predictions before they are published: {} has all defaults. See checks.md."),
  reuse: reuse
    .optional()
    .meta(plan)
    .describe(
      "Rows whose key, features and model are those of the last published run take its prediction; only the others are scored. Adds the column reuse_hash. See reuse.md.",
    ),
  publish: publish.optional(),
  report: report.prefault({}).meta(attempt),
  serve: serveSchema
    .prefault({})
    .meta(attempt)
    .describe("How infer-batch serve answers requests over HTTP. Runs ignore it. See serve.md."),
});

type GivenJob = z.output<typeof job>;

const named = job.superRefine(
  checking((spec: GivenJob, refuse) => {
    checkOutputNames(spec, refuse);
    checkReferences(spec, refuse);
    checkInput(spec.input, refuse);
    checkColumnNames(spec.input, refuse);
    checkPlaces(spec, refuse);
  }),
);
const schema = named.superRefine(checking(checkTarget)).transform(withDefaults) satisfies z.ZodType<JobSpec>;
const pipeSchema = named.transform(withDefaults) satisfies z.ZodType<JobSpec>;

/** With checks, a person decides on rejects. A challenger that took fewer rows would be compared on those only. */
function withDefaults({ max_rejects: given, challenger: other, ...spec }: z.output<typeof job>): JobSpec {
  const { cast, missing } = spec.model;
  return {
    ...spec,
    input: inputOf(spec.input),
    max_rejects: given ?? (spec.checks?.on_fail === "hold" ? "100%" : "0.1%"),
    ...(other && { challenger: { ...other, cast: other.cast ?? cast, missing: other.missing ?? missing } }),
  };
}

/** Of a table beside which a challenger has one: Postgres takes 63 bytes. */
const longestName = 63 - "_challenger".length;

function checkSince(
  { input: { since }, output: { delta, iceberg, postgres }, ...spec }: GivenJob,
  refuse: Refuse,
): void {
  if (since === undefined) {
    return;
  }
  for (const [target, given] of Object.entries({ delta, iceberg, postgres })) {
    if (given?.mode === "replace") {
      const message =
        "a run with input.since has new rows only, and mode replace would remove those of the runs before it: use append, or upsert in Postgres";
      refuse(["output", target, "mode"], message);
    }
  }
  for (const key of ["reuse", "challenger"] as const) {
    if (spec[key] !== undefined) {
      refuse([key], "it compares runs of all rows, and a run with input.since has new rows only; leave this key out");
    }
  }
  if (Object.hasOwn(spec.params, runParam)) {
    refuse(["params", runParam], "it names a run of a job with input.since; choose another name");
  }
}

/** The param of each run of a chain: its number. A spec with `input.since` has no other param of this name. */
export const runParam = "run";

function checkTarget(spec: GivenJob, refuse: Refuse): void {
  const { parquet, delta, iceberg, postgres, columns } = spec.output;
  checkSince(spec, refuse);
  const isShared = postgres !== undefined && postgres.mode !== "replace" && spec.checks?.on_fail !== "hold";
  if (spec.challenger !== undefined && isShared && !spec.output.lineage) {
    const message = `mode ${postgres?.mode} writes into one table with the rows of other runs: set output.lineage to true, so that the rows that a challenger is compared on can be told from those`;
    refuse(["challenger"], message);
  }
  if (
    spec.challenger !== undefined &&
    postgres !== undefined &&
    splitTable(postgres.table).table.length > longestName
  ) {
    const message = `output.postgres.table is longer than ${longestName} letters: with _challenger added, Postgres would cut the name of the challenger's table off, which may leave that of the table itself`;
    refuse(["challenger"], message);
  }
  if ([parquet, delta, iceberg, postgres].filter((target) => target !== undefined).length !== 1) {
    refuse(["output"], "expected exactly one of parquet, delta, iceberg and postgres");
  }
  if (postgres !== undefined) {
    checkPostgres(postgres, columns, spec.model.outputs, refuse);
  }
  if (spec.checks !== undefined) {
    checkChecks(spec.checks, postgres?.mode, spec.params, refuse);
  }
  if (spec.checks?.golden !== undefined && spec.model.prompt !== undefined) {
    refuse(["checks", "golden"], "golden rows of a language model would be paid for in each attempt");
  }
  if (spec.reuse !== undefined) {
    checkReuse(spec.reuse, spec.output, refuse);
  }
  checkServe(spec.serve, spec.output, spec.challenger !== undefined, refuse);
  checkPublish(spec.publish ?? {}, spec.input, spec.output, refuse);
}

function checkReuse({ key }: ReuseSpec, { columns, lineage, postgres }: GivenJob["output"], refuse: Refuse): void {
  const carried = new Set(columns.map((column) => column.replaceAll(".", "_")));
  for (const [index, column] of key.entries()) {
    if (!carried.has(column)) {
      refuse(["reuse", "key", index], `column \`${column}\` is not in output.columns, which must have it`);
    }
  }
  if (new Set(key).size < key.length) {
    refuse(["reuse", "key"], "a column is named twice");
  }
  if (postgres?.mode === "append" && !lineage) {
    const message =
      "mode append keeps the rows of all runs in one table: set output.lineage to true, which tells them apart";
    refuse(["reuse"], message);
  }
}

function checkPlaces(
  { input: from, model: by, output: { parquet, delta, iceberg }, params, checks: given }: GivenJob,
  refuse: Refuse,
): void {
  checkInputPlaces(from, given?.golden?.path, refuse);
  checkModelPlace(by, refuse);
  if (parquet !== undefined) {
    checkFiles("parquet", parquet, refuse);
  }
  if (delta !== undefined) {
    checkDelta(delta, params, refuse);
  }
  if (iceberg !== undefined) {
    checkIceberg(iceberg, params, refuse);
  }
}

/** Output columns come from two lists; names are unique ignoring case, since Postgres and Hive fold it. */
function checkOutputNames(spec: GivenJob, refuse: Refuse): void {
  const seen = new Set<string>();
  const add = (column: string, path: (string | number)[]): void => {
    if (seen.has(column.toLowerCase())) {
      refuse(path, `output column \`${column}\` is named twice (case does not count)`);
    }
    seen.add(column.toLowerCase());
  };
  for (const { name: column } of spec.output.lineage ? lineageColumns : []) {
    add(column, ["output", "lineage"]);
  }
  if (spec.reuse !== undefined) {
    add(reuseColumn.name, ["reuse"]);
  }
  for (const [index, column] of spec.output.columns.entries()) {
    add(column.replaceAll(".", "_"), ["output", "columns", index]);
  }
  for (const key of ["outputs", "response"] as const) {
    for (const column of Object.keys(spec.model[key] ?? {})) {
      add(column, ["model", key, column]);
    }
  }
}

function checkReferences(spec: GivenJob, refuse: Refuse): void {
  for (const key of ["model", "challenger"] as const) {
    for (const [column, reference] of Object.entries(spec[key]?.outputs ?? {})) {
      if (parseOutputReference(reference) === undefined) {
        refuse([key, "outputs", column], "expected a tensor's name or name[index]", showFound);
      }
    }
  }
}

function isPercentage(given: string): boolean {
  const [, number] = /^(\d{1,3}(?:\.\d{1,6})?)%$/.exec(given) ?? [];
  return number !== undefined && Number(number) <= 100;
}

export type SpecIssue = z.core.$ZodIssue;

/** Returns the spec, frozen all the way down, or what is wrong with it. @param pipe it needs no target */
export function checkSpec(
  raw: unknown,
  { pipe = false }: { readonly pipe?: boolean | undefined } = {},
): { spec: JobSpec } | { issues: readonly SpecIssue[] } {
  const result = (pipe ? pipeSchema : schema).safeParse(raw);
  return result.success ? { spec: deepFreeze(result.data) } : { issues: result.error.issues };
}

/** Whether no message shows the value of a key, even if it is invalid. Only such a key may be read from a file. */
export function isSecretKey(path: readonly (string | number)[]): boolean {
  let node: Schema | undefined = job as unknown as Schema;
  let found: unknown;
  for (const part of path) {
    node = node && keyIn(node, String(part));
    for (let around = node; around !== undefined; around = wrappedIn(around)) {
      found = around.meta()?.["class"] ?? found;
    }
  }
  return found === "secret";
}

interface Schema {
  readonly def: {
    readonly innerType?: Schema;
    readonly in?: Schema;
    readonly shape?: Readonly<Record<string, Schema>>;
    readonly valueType?: Schema;
  };
  meta(): Readonly<Record<string, unknown>> | undefined;
}

function wrappedIn({ def }: Schema): Schema | undefined {
  return def.innerType ?? def.in;
}

function keyIn(node: Schema, key: string): Schema | undefined {
  const wrapped = wrappedIn(node);
  return wrapped === undefined ? (node.def.shape?.[key] ?? node.def.valueType) : keyIn(wrapped, key);
}

/** JSON Schema (draft 2020-12) of the same definition, of a spec whose `${…}` are filled in. */
export function specJsonSchema(): object {
  const { properties, ...rest } = z.toJSONSchema(job, { io: "input" });
  const params = typeof properties?.["params"] === "object" ? properties["params"] : {};
  return {
    ...rest,
    // The loader takes any plain value of a param as text, and that of a typed one from its default.
    properties: {
      ...properties,
      params: { ...params, additionalProperties: paramJsonSchema },
    },
    title: "infer-batch job spec, version 1",
  };
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const child of Object.values(value)) {
      deepFreeze(child);
    }
  }
  return value;
}

const template = String.raw`\$\{.+\}`;

/** Keywords of JSON Schema whose value is a schema, a list of schemas or a mapping to schemas that values must match. */
const nested = new Set(["properties", "additionalProperties", "items", "prefixItems", "anyOf", "oneOf", "allOf"]);

/**
 * Also allows a text with `${…}` where a pattern or an enumeration restricts a value: an editor sees unfilled specs.
 */
export function editorSchema(): object {
  return withTemplates(specJsonSchema()) as object;
}

function withTemplates(node: unknown): unknown {
  if (typeof node !== "object" || node === null) {
    return node;
  }
  if (Array.isArray(node)) {
    return node.map(withTemplates);
  }
  const inner = Object.entries(node).flatMap(([keyword, value]: [string, unknown]): [string, unknown][] =>
    keyword === "class"
      ? []
      : [[keyword, keyword === "properties" ? eachValue(value) : nested.has(keyword) ? withTemplates(value) : value]],
  );
  const { enum: names, ...rest } = Object.fromEntries(inner);
  if (rest["type"] !== "string") {
    return Object.fromEntries(inner);
  }
  if (names !== undefined) {
    return { ...rest, anyOf: [{ enum: names }, { pattern: template }] };
  }
  return typeof rest["pattern"] === "string" ? { ...rest, pattern: `${rest["pattern"]}|${template}` } : rest;
}

/** A property may have the name of a keyword, such as `enum`. */
function eachValue(properties: unknown): unknown {
  return typeof properties !== "object" || properties === null
    ? properties
    : Object.fromEntries(Object.entries(properties).map(([name, value]) => [name, withTemplates(value)]));
}

type KeySpec = Pick<JobSpec, "checks" | "output" | "reuse">;

interface Candidate {
  readonly from: string;
  readonly columns: readonly string[];
}

function candidates(spec: KeySpec): readonly Candidate[] {
  return [
    { from: "output.postgres.key", columns: spec.output.postgres?.key ?? [] },
    { from: "checks.unique", columns: spec.checks?.unique ?? [] },
    { from: "reuse.key", columns: spec.reuse?.key ?? [] },
  ].filter(({ columns }) => columns.length > 0);
}

/** The table's key first, because the database enforces it; without any key `output.columns`, which may be empty. */
export function usualKey(spec: KeySpec): readonly string[] {
  return candidates(spec)[0]?.columns ?? spec.output.columns;
}

/** The only single-column key, else `usualKey`. @throws JobError USAGE for several: erased rows cannot come back */
export function keyOfValues(spec: KeySpec): readonly string[] {
  const single = candidates(spec).filter(({ columns }) => columns.length === 1);
  const names = [...new Set(single.map(({ columns }) => String(columns[0])))];
  if (names.length > 1) {
    const found = single.map(({ columns, from }) => `${columns.join()} (${from})`).join(" or ");
    throw new JobError("USAGE", `reading the keys: they may be values of ${found}`, {
      hint: `name the column: ${names.map((column) => `--key ${column}`).join(" or ")}`,
    });
  }
  return names.length === 1 ? names : usualKey(spec);
}
