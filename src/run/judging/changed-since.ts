import { compareListing, compareSpec } from "../../plan/compare.js";
import { shortDigest } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import type { RunVerdict } from "../../publish/run-verdict.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import { modelUri } from "../../spec/model-spec.js";
import { isModelUri } from "../../spec/model-uri.js";
import { messageOf } from "../../util/errors.js";
import { listInput } from "../planning/input.js";

/** Keys of `checks` that may change until a run has its verdict; `expect` may name other dates. */
const limits = ["on_fail", "factor", "rejects", "outputs", "unique", "inputs"] as const;

/** Says how the spec differs from the one that a run was planned and judged with, since only another run takes it into account. */
export function specChanges(
  { spec }: Pick<JobContext, "spec">,
  plan: Plan,
  { thresholds }: Pick<RunVerdict, "thresholds">,
): string[] {
  const planned = compareSpec(plan, spec);
  const { checks } = spec;
  const changed = limits.filter((key) => checks !== undefined && textOf(thresholds[key]) !== textOf(checks[key]));
  return [
    ...(planned.length === 0
      ? []
      : [`the spec has changed since this run was planned (${planned.join("; ")}): run --new-run applies it`]),
    ...(changed.length === 0
      ? []
      : [
          `the limits in the spec are not those of this verdict (${changed.map((key) => `checks.${key}`).join(", ")}): run --new-run applies them`,
        ]),
  ];
}

/**
 * Says how the input differs from that of a run. Nothing if none of its files is left, or they cannot be listed. A store is not
 * asked: if it is away, the command would wait for it.
 */
export async function inputChanges(context: JobContext, plan: Plan): Promise<string[]> {
  if (plan.input.shards.some(({ uri }) => uri.startsWith("s3://"))) {
    return [];
  }
  try {
    const { shards } = await listInput(context);
    const { added, missing, changed } = compareListing(plan, shards);
    const found = [
      [added.length, "added"],
      [changed.length, "replaced"],
      [missing.length, "removed"],
    ] as const;
    const texts = found.flatMap(([files, what]) =>
      files === 0 ? [] : [`${count(files, "file")} ${files === 1 ? "was" : "were"} ${what}`],
    );
    return shards.length === 0 || texts.length === 0
      ? []
      : [`the input has changed since this run was planned (${texts.join(", ")}): run --new-run scores it`];
  } catch (error) {
    context.signal.throwIfAborted();
    context.log.debug(`comparing the input with the plan of a held run: ${messageOf(error)}`);
    return [];
  }
}

/**
 * Says that the model, a file on this machine, is not that of a run. Nothing if it is gone. A store, a registry or a server is
 * not asked: if it is away, the command would wait for it.
 */
export async function modelChanges(
  { spec, resolveModel, signal, log }: Pick<JobContext, "spec" | "resolveModel" | "signal" | "log">,
  { model: planned }: Pick<Plan, "model">,
): Promise<string[]> {
  const uri = modelUri(spec.model);
  // A file that `model.sha256` does not allow is scored by no run.
  if (isModelUri(uri) || spec.model.sha256 !== undefined) {
    return [];
  }
  try {
    // With a pin: the model is not looked for to plan a run.
    const { model } = await resolveModel({ sha256: planned.sha256 });
    const digests = `sha256 ${shortDigest(model.sha256)}, planned ${shortDigest(planned.sha256)}`;
    return model.sha256 === planned.sha256
      ? []
      : [`the model has changed since this run was planned (${uri}: ${digests}): run --new-run scores with it`];
  } catch (error) {
    signal.throwIfAborted();
    log.debug(`comparing the model with the plan of a held run: ${messageOf(error)}`);
    return [];
  }
}

/** JSON with sorted keys, without those that are undefined. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}
