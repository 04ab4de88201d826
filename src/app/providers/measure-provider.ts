import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "../../util/zod.js";
import { parseJson } from "../../plan/parse-plan.js";
import type { ProviderTrial } from "../../scoring/provider-trials.js";
import type { Provider } from "../../spec/engine-spec.js";

/** The file that runs in a process which scores a job's first rows. */
const workerFile = fileURLToPath(new URL("./measure-worker.js", import.meta.url));
/** Loading a large model and preparing it for a device takes minutes at most; a driver that takes longer hangs. */
const longestMs = 600_000;

/** What such a process is to measure. */
export interface MeasureRequest {
  readonly specPath: string;
  readonly params: Readonly<Record<string, string>>;
  readonly provider: Provider;
  readonly firstRows: number;
  /** Scoring has to take about this long to be measured. */
  readonly targetSeconds: number;
}

/** What such a process is given. */
export interface MeasureTask extends MeasureRequest {
  /** A temporary folder for its output. It is removed by the run, or by the process itself if the run was killed. */
  readonly folder: string;
}

/** What such a process prints. */
const answer = z.union([
  z.strictObject({ rowsPerSecond: z.number().positive(), startSeconds: z.number() }),
  z.strictObject({ reason: z.string(), isLasting: z.boolean() }),
]);

/** Scores a job's first rows on one provider in a process of its own, where a bad driver may crash. */
export async function measureProvider(request: MeasureRequest, signal: AbortSignal): Promise<ProviderTrial> {
  const { provider } = request;
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-measure-"));
  let ended: Ended;
  try {
    ended = await runWorker({ ...request, folder }, signal);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  signal.throwIfAborted();
  const said = answer.safeParse(parseJson(ended.stdout.trim().split("\n").at(-1) ?? ""));
  if (!said.success) {
    return { kind: "left_out", provider, reason: whyNoAnswer(ended), isLasting: false };
  }
  return "reason" in said.data
    ? { kind: "left_out", provider, ...said.data }
    : { kind: "measured", speed: { provider, ...said.data } };
}

interface Ended {
  readonly killed: boolean;
  readonly killedBy: NodeJS.Signals | null | undefined;
  readonly stdout: string;
}

/** Waits until the process is gone, so that it writes no more into its folder. */
async function runWorker(task: MeasureTask, signal: AbortSignal): Promise<Ended> {
  let closed: Promise<unknown> = Promise.resolve();
  const ended = await new Promise<Ended>((resolve) => {
    const options = { timeout: longestMs, signal, maxBuffer: 64 * 1024 * 1024 };
    const child = execFile(process.execPath, [workerFile, JSON.stringify(task)], options, (error, stdout) => {
      resolve({ killed: error?.killed === true, killedBy: error?.signal, stdout });
    });
    closed = child.pid === undefined ? closed : once(child, "close").catch(() => undefined);
  });
  await closed;
  return ended;
}

function whyNoAnswer({ killed, killedBy }: Ended): string {
  if (killed) {
    return `scoring the first rows took longer than ${longestMs / 60_000} minutes`;
  }
  return killedBy == null
    ? "the process that scored the first rows ended without an answer"
    : `the process that scored the first rows ended with ${killedBy}`;
}
