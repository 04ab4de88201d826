import { checkLines, contractText, secondPlanLines, secondPlanOf, targetText } from "../../report/plan-text.js";
import { nextRunId } from "../../plan/identity.js";
import { checkStoredRun, checkTarget, plannedChecks, previewFirst, untriedGolden } from "../../run/preview.js";
import type { SafeIo } from "../io.js";
import { openLoaded } from "../../app/job-context.js";
import { type JobOptions, readSpec } from "../../app/reading/read-spec.js";
import { forPerson, foundText } from "../dry-run.js";
import { createWarningLog } from "../logger.js";

export async function validateCommand(spec: string, options: JobOptions, io: SafeIo): Promise<void> {
  const log = createWarningLog(io.stderr);
  const loaded = forPerson(await readSpec(spec, options));
  await using job = await openLoaded(loaded, spec, { log });
  const planned = await previewFirst(job);
  if (planned === undefined) {
    io.stdout.write(`${spec} is valid; no shard is there yet, so the binding and the target were not checked\n`);
    return;
  }
  const { plan, second } = planned;
  const golden = await untriedGolden(job);
  const { next, stored, refusal } = await checkStoredRun(job);
  const isNew = next === "plan" && stored !== undefined; // `run` abandons the stored run
  const tried = isNew ? { ...plan, runId: nextRunId(stored.plan.runId) } : plan;
  const { state, untried } = await checkTarget(job, tried, isNew);
  if (state?.error !== undefined) {
    throw refusal ?? state.error; // `state.error` of a held run: it has lost spans
  }
  const found = state && foundText(plan.runId, state);
  const target = targetText({ target: job.sink.target, found, untried: [...golden, ...untried] });
  const lines = [...secondPlanLines(secondPlanOf(plan, second)), ...checkLines(plannedChecks(job, plan))];
  const more = lines.map((line) => `${line}\n`).join("");
  io.stdout.write(`${spec} is valid\n${contractText(plan.contract)}${more}${target}`);
}
