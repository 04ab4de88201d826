import { contractText } from "../../report/plan-text.js";
import { previewContract } from "../../run/previewing/preview.js";
import type { SafeIo } from "../io.js";
import { openJob } from "../../app/job-context.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { createWarningLog } from "../logger.js";

export async function validateCommand(spec: string, options: JobOptions, io: SafeIo): Promise<void> {
  await using job = await openJob(spec, options, { log: createWarningLog(io.stderr) });
  const contract = await previewContract(job);
  io.stdout.write(
    contract === undefined
      ? `${spec} is valid; no shard is there yet, so the binding was not checked\n`
      : `${spec} is valid\n${contractText(contract)}`,
  );
}
