import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import type { Log } from "../flow/opened-job.js";
import type { JobSpec } from "./jobfile/job-spec.js";
import { tokenizerUris } from "./jobfile/model-spec.js";
import { JobError } from "../base/errors.js";
import type { RetryTools } from "../base/retry.js";
import { isDeadWriter, newWriter } from "../base/spool.js";
import type { Worker } from "../run/plan/spans.js";

export interface AttemptServices {
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly retry: RetryTools;
  readonly warn: (message: string) => void;
  readonly signal: AbortSignal;
}

export interface Tools extends AttemptServices {
  readonly folder: string;
}

export function attemptServices(
  { retry: { max_seconds: maxSeconds } }: Pick<JobSpec, "retry">,
  log: Log,
  signal: AbortSignal,
): AttemptServices {
  const warn = (message: string): void => {
    log.warn(message);
  };
  const retry = {
    maxSeconds,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: (ms: number) => interruptibleSleep(ms, signal),
    warn,
    warnedMs: new Map(),
  };
  return { writer: newWriter(), isDead: isDeadWriter, retry, warn, signal };
}

/** Sleeps until the time is over. @throws the signal's reason if the job is stopped first */
export async function interruptibleSleep(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw error;
  });
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * From `--worker i/n`, else Kubernetes (Indexed Job, INFER_BATCH_WORKERS) or AWS Batch (array job). @throws JobError
 * USAGE
 */
export function findWorker(option: string | undefined, env: Environment): Worker {
  if (option !== undefined) {
    const [, index, count] = /^(\d{1,6})\/(\d{1,6})$/.exec(option) ?? [];
    return checked(`--worker ${option}`, { index, count });
  }
  const kubernetes = env["JOB_COMPLETION_INDEX"];
  if (kubernetes !== undefined) {
    const count = env["INFER_BATCH_WORKERS"];
    if (count === undefined) {
      throw new JobError("USAGE", "reading JOB_COMPLETION_INDEX: INFER_BATCH_WORKERS is not set", {
        hint: "set INFER_BATCH_WORKERS to the Job's completions, or pass --worker i/n (--worker 0/1 for one worker)",
      });
    }
    return checked(`JOB_COMPLETION_INDEX=${kubernetes}, INFER_BATCH_WORKERS=${count}`, { index: kubernetes, count });
  }
  const batch = env["AWS_BATCH_JOB_ARRAY_INDEX"];
  if (batch !== undefined) {
    const count = env["AWS_BATCH_JOB_ARRAY_SIZE"];
    return checked(`AWS_BATCH_JOB_ARRAY_INDEX=${batch}, AWS_BATCH_JOB_ARRAY_SIZE=${count ?? ""}`, {
      index: batch,
      count,
    });
  }
  return { index: 0, count: 1 };
}

function checked(what: string, texts: { index: string | undefined; count: string | undefined }): Worker {
  const index = numberOf(texts.index);
  const count = numberOf(texts.count);
  if (index === undefined || count === undefined || index >= count) {
    throw new JobError("USAGE", `reading ${what}: expected i/n with i from 0 to n - 1`, {
      hint: "such as --worker 0/4 to --worker 3/4 for four workers",
    });
  }
  return { index, count };
}

function numberOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,6}$/.test(text) ? Number(text) : undefined;
}

/**
 * A param from the clock could differ around midnight; `--new-run` would open a run for each. @throws JobError USAGE
 */
export function checkSeveral(
  { worker, newRun }: { readonly worker: Worker; readonly newRun: boolean },
  clock: readonly string[],
): void {
  if (worker.count === 1) {
    return;
  }
  if (newRun) {
    throw new JobError("USAGE", `reading --new-run: one of several workers cannot open a new run for the others`, {
      hint: "run it with one worker, without --worker",
    });
  }
  const [key] = clock;
  if (key !== undefined) {
    throw new JobError(
      "USAGE",
      `reading the spec: ${key} comes from the clock, and ${worker.count} workers share the run`,
      {
        hint: key.startsWith("params.")
          ? `give all of them the same: --param ${key.slice("params.".length)}=…`
          : "name it under params, and give all of them the same with --param",
      },
    );
  }
}

const manifest = createRequire(import.meta.url)("../../package.json") as {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly peerDependencies: Readonly<Record<"tokenizers" | "onnxruntime-node", string>>;
};

export const programVersion: string = manifest.version;

/** The version of the package that makes tokens of texts. Users install it if their jobs need it. */
export const tokenizersVersion: string = manifest.peerDependencies.tokenizers;

/** Of everything that predictions may depend on. package.json pins the packages, so these are the installed ones. */
export const componentVersions: Readonly<Record<string, string>> = {
  "infer-batch": programVersion,
  node: process.versions.node,
  ...manifest.dependencies,
  "onnxruntime-node": manifest.peerDependencies["onnxruntime-node"],
};

export function versionsFor({ model }: Pick<JobSpec, "model">): Readonly<Record<string, string>> {
  return tokenizerUris(model).size === 0 ? componentVersions : { ...componentVersions, tokenizers: tokenizersVersion };
}
