import { type ColumnsJson, columnsJson, parseColumns } from "../../checks/profile/column.js";
import { jsonLimits, namedSlices, type SpanProfile } from "../../checks/profile/profile.js";
import type { ColumnProfiles, RunProfile } from "../../checks/profile/run-profile.js";
import { repeatedShare } from "../../checks/profile/profile-loops.js";
import { parseJson } from "../plan/parse-plan.js";
import type { Plan } from "../plan/plan.js";
import { z } from "../../base/zod.js";
import { byChecks, type Decision } from "./lifecycle.js";
import { comparedDateOf } from "./published-run.js";

/** What is known of a run's rows when all spans are committed. */
export interface KnownRows {
  readonly profile: SpanProfile;
  readonly rejected: number;
  /** Rows that are neither predicted nor rejected. Default: they are not known. */
  readonly filtered?: number;
  /** What was decided on the run; default: nothing yet. */
  readonly decision?: Decision | undefined;
}

/** The profile of a run, for checks. One that is not compared has an empty date. */
export function runProfileOf(plan: Plan, { profile, rejected, filtered, decision }: KnownRows): RunProfile {
  const isApproved = decision?.kind === "approved" && decision.by !== byChecks && plan.erasure === undefined;
  const repeated = repeatedShare(profile.sketch);
  return {
    runId: plan.runId,
    date: comparedDateOf(plan) ?? "",
    modelSha256: plan.model.sha256,
    model: { uri: plan.model.uri, version: plan.model.version },
    rows: profile.rows,
    rejected,
    ...(filtered === undefined ? {} : { filtered }),
    ...(repeated === undefined ? {} : { repeated }),
    ...(isApproved ? { isApproved } : {}),
    outputs: profile.columns,
    carried: profile.carried,
    features: profile.features ?? new Map(),
    slices: profile.slices === undefined ? new Map() : namedSlices(profile.slices),
  };
}

const kind = { format: "infer-batch-profile", version: 1 } as const;
const beginning = `${JSON.stringify(kind).slice(0, -1)},`;

/** Whether a text that `runProfileText` may have written is a profile; tells without reading all of it. */
export function isRunProfile(text: string): boolean {
  return text.startsWith(beginning);
}

/** The profile of a run as the text that stays after it is published; runs of equal predictions have equal texts. */
export function runProfileText(run: RunProfile): string {
  const { runId, date, modelSha256, model, rows, rejected, repeated, isApproved, outputs, carried, features, slices } =
    run;
  const limits = jsonLimits(outputs.size + features.size, 1);
  const json = (columns: ColumnProfiles): ColumnsJson => columnsJson(columns, limits);
  const facts = {
    ...kind,
    run_id: runId,
    date,
    model_sha256: modelSha256,
    model,
    rows,
    rejected,
    repeated,
    approved: isApproved,
  };
  const columns = {
    outputs: json(outputs),
    carried: json(carried),
    ...(features.size === 0 ? {} : { features: json(features) }),
    ...(slices.size === 0 ? {} : { slices: [...slices].map(([slice, of]) => [slice, json(of)] as const) }),
  };
  return `${JSON.stringify({ ...facts, ...columns })}\n`;
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
  repeated: z.number().optional(),
  /** Set if a person approved the run after its checks had held it. */
  approved: z.literal(true).optional(),
  outputs: columns,
  carried: columns,
  /** Absent: the run was planned without checks. */
  features: columns.optional(),
  /** Absent: the run was planned without `checks.slices`. */
  slices: z.array(z.tuple([z.string(), columns])).optional(),
  model: z.object({ uri: z.string(), version: z.string().optional() }),
});

/** undefined for another text. Columns are read when they are asked for: of most runs, only the number of rows is. */
export function parseRunProfile(text: string): RunProfile | undefined {
  const { data } = schema.safeParse(parseJson(text));
  if (data === undefined) {
    return undefined;
  }
  const { carried, slices = [], model, repeated, approved } = data;
  const outputs = once(() => parseColumns(data.outputs));
  const features = once(() => parseColumns(data.features ?? []));
  const carriedOf = once(() => parseColumns(carried));
  const slicesOf = once(() => new Map(slices.map(([slice, of]) => [slice, parseColumns(of)])));
  return {
    runId: data.run_id,
    date: data.date,
    modelSha256: data.model_sha256,
    rows: data.rows,
    rejected: data.rejected,
    ...(repeated === undefined ? {} : { repeated }),
    ...(approved === undefined ? {} : { isApproved: approved }),
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
      return slicesOf();
    },
    model,
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

function once<T>(make: () => T): () => T {
  let made: { readonly value: T } | undefined;
  return () => (made ??= { value: make() }).value;
}
