import type { SafeIo } from "../io.js";
import { type JobOptions, openJob } from "../../app/job-context.js";

export async function rollbackCommand(
  spec: string,
  options: JobOptions & { readonly json?: boolean },
  io: SafeIo,
): Promise<void> {
  await using job = await openJob(spec, options);
  const undone = await job.sink.rollback();
  io.stdout.write(
    options.json === true
      ? `${JSON.stringify({ output: job.sink.target, undone })}\n`
      : `${job.sink.target} holds again what it held before; what was rolled back is kept as ${undone}\n`,
  );
}
