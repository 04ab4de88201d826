import { z } from "../../base/zod.js";
import { didYouMean } from "../../base/suggest.js";
import { isCalendarDate } from "../../run/plan/identity.js";
import type { PostgresMode } from "./output-spec.js";
import { anyNumber, attempt, name, percentage, plan, type Refuse, showFound, text } from "./values.js";

export interface ChecksSpec {
  /** `hold`: the run is staged, and published after its verdict. `warn`: it is published, with warnings. */
  readonly on_fail: "hold" | "warn";
  /** `published`: the published runs of the series. Otherwise a file with the profile that every run is compared with. */
  readonly baseline: string;
  /** How many times as far from the nearest earlier run as earlier runs were from theirs a run may be. */
  readonly factor: number;
  /** Share of rejected rows. */
  readonly rejects: number;
  /** Limits by the name of the output column; `ignore`: it is not compared. */
  readonly outputs: Readonly<Record<string, OutputCheckSpec | "ignore">>;
  /** Conditions of aggregates over the rows of the output, by name. */
  readonly sql?: Readonly<Record<string, string>> | undefined;
  /** Each value's predictions are compared with earlier runs. undefined: there are no slices. */
  readonly slices?: readonly string[] | undefined;
  /** Output columns that together identify a row; undefined: no key is checked. */
  readonly unique?: readonly string[] | undefined;
  /** Rows with known predictions, which each attempt scores before rows of the input. */
  readonly golden?: GoldenSpec | undefined;
  /** Factors by the name of a column that the model reads; `ignore`: it is not compared. */
  readonly inputs: Readonly<Record<string, { readonly factor?: number | undefined } | "ignore">>;
  /** Runs whose comparisons only warn. */
  readonly expect: readonly ExpectedRun[];
}

export interface GoldenSpec {
  /** A Parquet file, relative to the spec's folder, or in a store of objects. */
  readonly path: string;
  /** A number differs if it is further from the expected one than `atol + rtol * |expected|`. */
  readonly atol: number;
  readonly rtol: number;
}

export interface OutputCheckSpec {
  readonly range?: readonly [min: number, max: number] | undefined;
  readonly in?: readonly string[] | undefined;
  /** Share of rows. */
  readonly nulls?: number | undefined;
  readonly factor?: number | undefined;
}

interface ExpectedRun {
  /** Values of params that the run has: { ds: "2026-11-27" }. */
  readonly params: Readonly<Record<string, string>>;
  readonly reason: string;
  /** Later runs are compared with it, although it would have been held. */
  readonly asBaseline: boolean;
}

const number = z.number({ error: "expected a number" });

function columnsSuchAs(example: string): z.ZodArray<typeof name> {
  return z
    .array(name, { error: `expected a list of columns, such as [${example}]` })
    .min(1, { error: "expected at least one column" })
    .refine((columns) => new Set(columns).size === columns.length, { error: "a column is named twice" });
}

const factorError = "expected a number greater than 0, such as 4";
const factor = z.number({ error: factorError }).positive({ error: factorError });
const factorText =
  "How many times as far from the nearest earlier run as earlier runs were from theirs the column may be before the run is held";

const tolerance = anyNumber.refine((given) => given >= 0, { error: "expected a number from 0", params: showFound });

const goldenError = "expected a mapping such as { path: golden.parquet }";
const golden = z.strictObject(
  {
    path: text
      .regex(/^[^*?[\]{}]*$/, "expected a path without wildcards")
      .meta(plan)
      .describe(
        "Parquet file with the input columns that the job uses and the expected predictions, relative to the spec or in a store, as input.path.",
      ),
    atol: tolerance
      .default(1e-5)
      .describe(
        "Absolute tolerance: a number may differ by atol + rtol · |expected|. Texts, booleans and integers may not.",
      ),
    rtol: tolerance.default(1e-5).describe("Relative tolerance."),
  },
  { error: goldenError },
);

const rangeError = "expected [least, most], such as [0, 1]";

const columnError = "expected a mapping such as { factor: 10 }, or ignore";
const outputChecks = z.strictObject({
  range: z
    .tuple([number, number], { error: rangeError })
    .refine(([least, most]) => least <= most, { error: `${rangeError}: the least comes first`, params: showFound })
    .optional()
    .describe("Least and greatest finite value that a prediction may have."),
  in: z
    .array(z.union([z.string(), z.int(), z.boolean()], { error: "expected a text, a whole number, true or false" }), {
      error: "expected a list of values, such as [churn, stay]",
    })
    .min(1, { error: "expected at least one value" })
    .refine((values) => new Set(values.map((value) => typeof value)).size <= 1, {
      error: 'expected values of one type; write a number that is a text in quotes, such as "1"',
    })
    .transform((values) => values.map(String))
    .optional()
    .describe("Values that a column of texts, whole numbers or booleans may have."),
  nulls: percentage(100).optional().describe("Largest share of NULLs, such as 0%."),
  factor: factor.optional().describe(`${factorText}. Default: that of \`checks.factor\`.`),
});

const ignore = z.literal("ignore");

export const checks = z.strictObject(
  {
    on_fail: z
      .enum(["hold", "warn"])
      .default("hold")
      .describe(
        "hold stages every run, and publishes it once its checks have passed; a run that fails them is held (exit code 67) until a person approves or discards it. warn publishes it with warnings.",
      ),
    baseline: text
      .refine((path) => !path.includes("://"), "expected published, or a file on this machine")
      .default("published")
      .meta(plan)
      .describe(
        "What a run is compared with. published: the published runs of the job with earlier dates. Otherwise a file with a profile, relative to the spec: profile.json of a run, such as one over the training data.",
      ),
    factor: factor
      .default(4)
      .describe(
        "How many times as far from the nearest of the last 35 runs as any of these was from its nearest a run may be before it is held: the one knob of all comparisons. `infer-batch checks SPEC --last 60` shows what another factor would have held.",
      ),
    rejects: percentage(100)
      .prefault("1%")
      .describe(
        "Largest share of rejected rows; a run with more is held. If the spec does not set max_rejects, that key has no limit, so rejected rows do not end the run with exit code 65.",
      ),
    outputs: z
      .record(name, z.union([ignore, outputChecks], { error: columnError }))
      .default({})
      .describe(
        "Limits for single output columns, by name: { score: { range: [0, 1], nulls: 0%, factor: 2 }, code: ignore }. A column that is ignored is not compared with earlier runs.",
      ),
    sql: z
      .record(name, text.max(1000, "expected at most 1,000 characters"), {
        error: "expected conditions by name, such as { some_rows: count(*) > 0 }",
      })
      .refine((given) => Object.keys(given).length <= 16, { error: "expected at most 16 conditions" })
      .optional()
      .meta(plan)
      .describe(
        "Conditions of count, sum, avg, min and max over DuckDB SQL of the output columns, by name: { churners: avg(case when score > 0.5 then 1 else 0 end) between 0.05 and 0.2 }.",
      ),
    slices: columnsSuchAs("country")
      .refine((columns) => columns.length <= 4, { error: "expected at most 4 columns" })
      .optional()
      .meta(plan)
      .describe(
        "Output columns with few different values, such as [country]. For each value, the predictions of its rows are compared with earlier runs. A difference only warns.",
      ),
    unique: columnsSuchAs("customer_id")
      .optional()
      .describe(
        "Output columns that together identify a row, such as [customer_id]. The run fails the check if two rows have the same values, or a row has a NULL in one of them.",
      ),
    golden: golden
      .optional()
      .meta(attempt)
      .describe(
        "Rows with known predictions. Each attempt scores them before any row of the input; if a prediction differs, it ends with exit code 65.",
      ),
    inputs: z
      .record(
        name,
        z.union([ignore, z.strictObject({ factor: factor.optional().describe(`${factorText}.`) })], {
          error: columnError,
        }),
      )
      .default({})
      .describe(
        "Factors for single columns that the model reads, by name: { temperature: { factor: 10 }, season: ignore }.",
      ),
    expect: z
      .array(
        z
          .object({
            reason: text.describe("Why the predictions differ from those of other days."),
            as_baseline: z
              .boolean()
              .default(false)
              .describe("Compare later runs with this one, too, although it would have been held without this entry."),
          })
          .catchall(z.string("expected the value of a param"))
          .refine((entry) => Object.keys(entry).length > 2, {
            error: "expected a param and its value next to reason",
            abort: true, // entries that are wrong are not compared with the params
          })
          .transform(({ reason, as_baseline: asBaseline, ...params }) => ({
            params: params as Record<string, string>,
            reason,
            asBaseline,
          })),
      )
      .default([])
      .describe(
        "Runs that are expected to differ, named by their params: [{ ds: 2026-11-27, reason: Black Friday }]. If such a run differs from earlier runs, it is published with a warning, and later runs are not compared with it. The limits that you set, on rejects, ranges, values, NULLs, unique keys and SQL conditions, still hold it.",
      ),
  },
  { error: "expected a mapping; `checks: {}` has all defaults" },
) satisfies z.ZodType<ChecksSpec>;

/** Refuses checks that the target cannot make, and runs of `expect` that never come. */
export function checkChecks(
  { on_fail: onFail, unique, expect }: ChecksSpec,
  mode: PostgresMode | undefined,
  params: Readonly<Record<string, string>>,
  refuse: Refuse,
): void {
  if (unique !== undefined && onFail === "warn" && (mode === "append" || mode === "upsert")) {
    const message = `expected on_fail: hold, since the rows of other runs are in the same table in mode ${mode}`;
    refuse(["checks", "unique"], message);
  }
  const names = Object.keys(params);
  const known = names.length === 0 ? ", which has no params" : `; its params are ${names.join(", ")}`;
  for (const [index, entry] of (expect as readonly Partial<ExpectedRun>[]).entries()) {
    // An entry that was refused has no params yet.
    for (const [param, value] of Object.entries(entry.params ?? {})) {
      const now = params[param];
      if (now === undefined) {
        refuse(
          ["checks", "expect", index],
          `\`${param}\` is no param of this spec${didYouMean(param, names) || known}`,
        );
      } else if (isCalendarDate(now) && !isCalendarDate(value)) {
        refuse(["checks", "expect", index], `\`${param}\` is a date such as ${now}, and ${value} is not`);
      }
    }
  }
}
