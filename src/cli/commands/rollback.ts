import type { SafeIo } from "../io.js";
import { JobError } from "../../util/errors.js";
import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/reading/read-spec.js";

export async function rollbackCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  await using job = await openJob(spec, options);
  const { sink } = job;
  if (sink.rollback === undefined) {
    throw new JobError("USAGE", `rolling back ${sink.target}: a new run keeps nothing of the files that it replaces`, {
      hint: "rollback is for output.postgres with mode: replace",
    });
  }
  const undone = await sink.rollback();
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify({ output: sink.target, undone })}\n`
      : `${sink.target} holds again what it held before; what was rolled back is kept as ${undone}\n`,
  );
}
