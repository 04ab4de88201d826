import { type CommandLine, paramFlag, runFlag } from "../flags.js";
import type { RejectedRow } from "../../columns/types.js";
import { rejectsText } from "../../report/rejects-text.js";
import { rejectedRows } from "../../run/status.js";
import { type SafeIo, writeRejects } from "../io.js";
import { openLoaded, readRunSpec, type RunOptions } from "../../job/open.js";

export const rejectsCommand: CommandLine = {
  flags: { ...paramFlag, ...runFlag, "--json": "Print one line of JSON for each row" },
  run: rejects,
};

async function rejects(spec: string, options: RunOptions & { readonly json?: boolean }, io: SafeIo): Promise<void> {
  await using opened = await openLoaded(await readRunSpec(spec, options), spec);
  const rows: AsyncIterable<RejectedRow> = rejectedRows(opened.job, opened.sink, options.run);
  if (options.json === true) {
    for await (const rejected of rows) {
      io.stdout.write(`${JSON.stringify(rejected)}\n`);
    }
    return;
  }
  writeRejects(io.stdout, await rejectsText(rows));
}
