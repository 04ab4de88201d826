import type { RunProfile } from "../checks/verdicts/run-profile.js";
import { type ColumnsJson, columnsJson, parseColumns } from "../checks/profiles/profile-json.js";
import { hideRareValues } from "../checks/profiles/rare-values.js";
import { publicSlices } from "../checks/slices/slices-json.js";
import type { SpanProfile } from "../checks/span-profile.js";
import { parseJson } from "../plan/parse-plan.js";
import type { Plan } from "../plan/plan.js";
import { z } from "../util/zod.js";
import { logicalDateOf } from "./published-run.js";

/** The profile of a run whose spans are all committed. */
export interface CommittedProfile {
  /** The profiles of the spans, merged. */
  readonly profile: SpanProfile;
  /**
   * The profile that was stored when the rows were published. Set if the profiles that spans have of features and
   * slices can no longer be read; `profile` then has none of them.
   */
  readonly published?: RunProfile | undefined;
}

/** What is known of a run's rows when all spans are committed. */
export interface RunRows extends CommittedProfile {
  readonly rejected: number;
  /** Rows that are neither predicted nor rejected. Default: they are not known. */
  readonly filtered?: number;
}

/** The profile of a run, for checks. A run without a logical date has an empty one. */
export function runProfileOf(plan: Plan, { profile, published, rejected, filtered }: RunRows): RunProfile {
  const slices = published?.slices ?? (profile.slices && publicSlices(profile.slices));
  return {
    runId: plan.runId,
    date: logicalDateOf(plan) ?? "",
    modelSha256: plan.model.sha256,
    rows: profile.rows,
    rejected,
    ...(filtered === undefined ? {} : { filtered }),
    outputs: profile.columns,
    carried: profile.carried,
    features: published?.features ?? hideRareValues(profile.features ?? new Map()),
    ...(slices === undefined ? {} : { slices }),
    model: { uri: plan.model.uri, version: plan.model.version },
    ...challengersOutputs(plan, profile),
  };
}

/** With a smaller share of the rows, a challenger's predictions do not represent the run. */
const leastCompared = 0.9;

/** The outputs of the challenger whose distributions are known: numbers and labels that the champion predicts, too. */
function challengersOutputs(
  { challenger }: Pick<Plan, "challenger">,
  { rows, agreement }: SpanProfile,
): Pick<RunProfile, "challenger"> {
  if (challenger === undefined || agreement === undefined || agreement.compared < leastCompared * rows) {
    return {};
  }
  const outputs = [...agreement.columns].flatMap(([name, column]) =>
    column.kind === "numbers" || column.kind === "labels" ? [[name, column.other] as const] : [],
  );
  return outputs.length === 0 ? {} : { challenger: { modelSha256: challenger.sha256, outputs: new Map(outputs) } };
}

/** The first facts of each profile. */
const kind = { format: "infer-batch-profile", version: 1 } as const;
const beginning = `${JSON.stringify(kind).slice(0, -1)},`;

/** Whether a text that `runProfileText` may have written is a profile; tells without reading all of it. */
export function isRunProfile(text: string): boolean {
  return text.startsWith(beginning);
}

/** The profile of a run as the text that stays after it is published; runs of equal predictions have equal texts. */
export function runProfileText(run: RunProfile): string {
  const { runId, date, modelSha256, rows, rejected, outputs, carried, features, slices, model, challenger } = run;
  const facts = { ...kind, run_id: runId, date, model_sha256: modelSha256, model };
  const columns = {
    outputs: columnsJson(outputs),
    carried: columnsJson(carried),
    ...(features.size === 0 ? {} : { features: columnsJson(features) }),
    ...(slices === undefined ? {} : { slices: [...slices].map(([slice, of]) => [slice, columnsJson(of)] as const) }),
    ...(challenger === undefined
      ? {}
      : { challenger: { model_sha256: challenger.modelSha256, outputs: columnsJson(challenger.outputs) } }),
  };
  return `${JSON.stringify({ ...facts, rows, rejected, ...columns })}\n`;
}

/** Not checked value by value: a night reads the profiles of up to 64 earlier ones, and their digests are pinned. */
const columns = z.custom<ColumnsJson>(
  (json) =>
    Array.isArray(json) &&
    json.every((column) => Array.isArray(column) && typeof column[0] === "string" && column[1] instanceof Object),
);
const schema = z.object({
  format: z.literal(kind.format),
  version: z.literal(kind.version),
  run_id: z.string(),
  date: z.string(),
  model_sha256: z.string(),
  rows: z.number(),
  rejected: z.number(),
  outputs: columns,
  carried: columns,
  /** Absent: the run was planned without checks. */
  features: columns.optional(),
  /** Absent: the run was planned without `checks.slices`. */
  slices: z.array(z.tuple([z.string(), columns])).optional(),
  model: z.object({ uri: z.string(), version: z.string().optional() }),
  /** Absent: the run had no challenger. */
  challenger: z.object({ model_sha256: z.string(), outputs: columns }).optional(),
});

/**
 * Reads the text of a run's profile; undefined for another text. Columns are read when they are asked for: of most earlier
 * runs, only the number of rows is.
 */
export function parseRunProfile(text: string): RunProfile | undefined {
  const { data } = schema.safeParse(parseJson(text));
  if (data === undefined) {
    return undefined;
  }
  const { carried, slices, challenger, model } = data;
  const outputs = once(() => parseColumns(data.outputs));
  const features = once(() => parseColumns(data.features ?? []));
  const carriedOf = once(() => parseColumns(carried));
  const slicesOf = slices && once(() => new Map(slices.map(([slice, of]) => [slice, parseColumns(of)])));
  return {
    runId: data.run_id,
    date: data.date,
    modelSha256: data.model_sha256,
    rows: data.rows,
    rejected: data.rejected,
    get outputs() {
      return outputs();
    },
    get features() {
      return features();
    },
    get carried() {
      return carriedOf();
    },
    get slices() {
      return slicesOf?.();
    },
    model,
    ...(challenger && {
      challenger: { modelSha256: challenger.model_sha256, outputs: parseColumns(challenger.outputs) },
    }),
  };
}

/** Reads a profile that a person names, with all of its columns; undefined for another text, or a damaged one. */
export function parseWholeProfile(text: string): RunProfile | undefined {
  try {
    const profile = parseRunProfile(text);
    void [profile?.outputs, profile?.features, profile?.carried, profile?.slices];
    return profile;
  } catch {
    return undefined; // a column is not as this version writes them
  }
}

/** Calls `make` the first time, and returns what it returned from then on. */
function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}
