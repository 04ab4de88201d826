import type { Contract } from "../../binding/contract.js";
import { showType } from "../../columnar/types.js";
import type { FoundModel } from "../../models/port.js";
import type { PinnedRun } from "../../plan/plan.js";
import { type DatedRun, logicalDateOf, pinOf, runsOfSeries } from "../../publish/published-run.js";
import type { JobContext } from "../../scoring/context.js";
import { JobError } from "../../util/errors.js";

/**
 * Finds the published run whose predictions are reused: the one of the same params, which the new run takes the place of,
 * or the last of the series with an earlier date. Returns null if there is none, and undefined without `reuse`.
 * @throws JobError USAGE for a model without a version, CONTRACT for a key that is no scalar
 */
export async function planReuse(
  context: JobContext,
  { contract, resolved }: { readonly contract: Contract; readonly resolved: FoundModel },
): Promise<PinnedRun | null | undefined> {
  const { spec, log } = context;
  if (contract.reuse === undefined) {
    return undefined;
  }
  if (spec.model.server !== undefined && (resolved.version === undefined || resolved.version === "*")) {
    throw new JobError(
      "USAGE",
      `planning ${spec.name}: the server names no version of the model, so a changed model could not be detected`,
      { hint: "remove `reuse` from the spec, or serve the model with a version" },
    );
  }
  requireScalarKey(contract);
  if (context.newRun && !context.reuse) {
    log.info("--new-run scores all rows; with --reuse, unchanged rows take their predictions from an earlier run");
    return null;
  }
  const found = (await ownRun(context)) ?? (await lastOfSeries(context));
  return found === undefined ? null : pinOf(found);
}

/** The published run of the same params; undefined: there is none. */
async function ownRun({ spec: { name: job, params }, sink }: JobContext): Promise<DatedRun | undefined> {
  return runsOfSeries(await sink.published("here"), { job, params, dateParam: undefined }).at(-1);
}

/** The last published run of the series with an earlier date; undefined: there is none. */
async function lastOfSeries({ spec, sink, dateParam, log }: JobContext): Promise<DatedRun | undefined> {
  const date = logicalDateOf({ params: spec.params, dateParam: dateParam ?? null });
  if (dateParam === undefined || date === undefined) {
    log.warn(
      dateParam === undefined
        ? "no predictions can be reused: no param is a date, so runs have no order; add one to the spec: ds: { type: date }, or ds: ${today}"
        : `no predictions can be reused: param ${dateParam} is ${spec.params[dateParam] ?? ""}, not a date such as 2026-11-23`,
    );
    return undefined;
  }
  const series = { job: spec.name, params: spec.params, dateParam, date };
  const last = runsOfSeries(await sink.published("everywhere"), series).at(-1);
  if (last === undefined) {
    log.info("no predictions can be reused: no run with an earlier date is published");
  }
  return last;
}

/** @throws JobError CONTRACT for a key column that is a list or a struct */
function requireScalarKey({ passthrough, reuse }: Contract): void {
  for (const { column, source } of passthrough) {
    const { type } = source;
    if (reuse?.key.includes(column) === true && typeof type === "object" && type.kind !== "decimal") {
      throw new JobError("CONTRACT", `planning: column \`${column}\` of reuse.key is ${showType(type)}`, {
        hint: "a key is made of numbers, texts, dates and times; take fields of a struct by their paths",
      });
    }
  }
}
