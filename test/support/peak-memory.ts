import { readFileSync } from "node:fs";
import { type CliResult, runCli } from "./cli.js";

export interface Measured extends CliResult {
  /** Resident memory at its highest. */
  readonly peakMiB: number;
}

/** Runs a command as a process of its own, and measures the memory that it takes. Linux only. */
export async function runMeasured(args: readonly string[]): Promise<Measured> {
  let peakMiB = 0;
  let sampling: NodeJS.Timeout | undefined;
  const result = await runCli(args, {
    onStart({ pid }) {
      sampling = setInterval(() => {
        peakMiB = Math.max(peakMiB, residentMiB(pid));
      }, 10);
    },
  });
  clearInterval(sampling);
  return { ...result, peakMiB };
}

function residentMiB(pid: number | undefined): number {
  try {
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    return Number(/^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1] ?? 0) / 1024;
  } catch {
    return 0; // it has ended
  }
}
