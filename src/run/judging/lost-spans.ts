import type { Plan } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";

/**
 * Returns the error for a run that waits for a decision, or was approved, and has lost spans since: it cannot be published.
 * undefined: it is whole, or its spans are still being scored.
 */
export async function lostSpans(
  { command }: Pick<JobContext, "command">,
  plan: Plan,
  run: RunSink,
): Promise<JobError | undefined> {
  const { runId, params } = plan;
  const spans = spanCount(plan);
  const isJudged = run.state.kind === "held" || run.state.kind === "approved";
  if (!isJudged || run.spans.size === spans) {
    return undefined;
  }
  await run.refresh(); // the last ones may have been committed after they were counted, and before the state was read
  const lost = spans - run.spans.size;
  if (lost === 0) {
    return undefined;
  }
  const first = Array.from({ length: spans }, (_, span) => span).find((span) => !run.spans.has(span));
  const more = lost === 1 ? "" : `, and ${count(lost - 1, "more span")}`;
  const discard = run.state.kind === "held" ? `; or throw it away: ${command(params, { verb: "discard", runId })}` : "";
  return new JobError(
    "OUTPUT_DAMAGED",
    `checking run ${runId}: span ${first} of ${spans} is no longer committed${more}`,
    {
      hint: `it cannot be published: restore what was committed${discard}; or score again, as another run in its place: ${command(params)} --new-run`,
      damage: { runId },
    },
  );
}
