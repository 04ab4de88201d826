import type { RunProfile } from "../checks/verdicts/run-profile.js";
import { columnsJson, parseColumns } from "../checks/profiles/profile-json.js";
import { publicSlices } from "../checks/slices/slices-json.js";
import type { SpanProfile } from "../checks/span-profile.js";
import { parseJson } from "../plan/parse-plan.js";
import type { Plan } from "../plan/plan.js";
import { z } from "../util/zod.js";
import { logicalDateOf } from "./published-run.js";

/** What is known of a run's rows when all spans are committed. */
export interface RunRows {
  readonly profile: SpanProfile;
  readonly rejected: number;
}

/** The profile of a run, for checks. A run without a logical date has an empty one. */
export function runProfileOf(plan: Plan, { profile, rejected }: RunRows): RunProfile {
  return {
    runId: plan.runId,
    date: logicalDateOf(plan) ?? "",
    modelSha256: plan.model.sha256,
    rows: profile.rows,
    rejected,
    outputs: profile.columns,
    features: profile.features ?? new Map(),
    ...(profile.slices === undefined ? {} : { slices: publicSlices(profile.slices) }),
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

/** The profile of a run as the text that stays after it is published; runs of equal predictions have equal texts. */
export function runProfileText(run: RunProfile): string {
  const { runId, date, modelSha256, rows, rejected, outputs, features, slices, model, challenger } = run;
  const facts = { format: "infer-batch-profile", version: 1, run_id: runId, date, model_sha256: modelSha256, model };
  const columns = {
    outputs: columnsJson(outputs),
    ...(features.size === 0 ? {} : { features: columnsJson(features) }),
    ...(slices === undefined ? {} : { slices: [...slices].map(([slice, of]) => [slice, columnsJson(of)] as const) }),
    ...(challenger === undefined
      ? {}
      : { challenger: { model_sha256: challenger.modelSha256, outputs: columnsJson(challenger.outputs) } }),
  };
  return `${JSON.stringify({ ...facts, rows, rejected, ...columns })}\n`;
}

const columns = z.array(z.tuple([z.string(), z.record(z.string(), z.unknown())]));
const schema = z.object({
  format: z.literal("infer-batch-profile"),
  version: z.literal(1),
  run_id: z.string(),
  date: z.string(),
  model_sha256: z.string(),
  rows: z.number(),
  rejected: z.number(),
  outputs: columns,
  /** Absent: the run was planned without checks, or a version of this program scored it that profiles no features. */
  features: columns.optional(),
  /** Absent: the run was planned without `checks.slices`. */
  slices: z.array(z.tuple([z.string(), columns])).optional(),
  /** Absent: an older version of this program made the profile. */
  model: z.object({ uri: z.string(), version: z.string().optional() }).optional(),
  /** Absent: the run had no challenger. */
  challenger: z.object({ model_sha256: z.string(), outputs: columns }).optional(),
});

/** Reads the text of a run's profile; undefined for another text. */
export function parseRunProfile(text: string): RunProfile | undefined {
  const { data } = schema.safeParse(parseJson(text));
  return data === undefined
    ? undefined
    : {
        runId: data.run_id,
        date: data.date,
        modelSha256: data.model_sha256,
        rows: data.rows,
        rejected: data.rejected,
        outputs: parseColumns(data.outputs),
        features: parseColumns(data.features ?? []),
        ...(data.slices && { slices: new Map(data.slices.map(([slice, of]) => [slice, parseColumns(of)])) }),
        ...(data.model && { model: data.model }),
        ...(data.challenger && {
          challenger: { modelSha256: data.challenger.model_sha256, outputs: parseColumns(data.challenger.outputs) },
        }),
      };
}
