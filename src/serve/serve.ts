import { isDeepStrictEqual } from "node:util";
import type { OpenedJob } from "../flow/opened-job.js";
import { messageOf } from "../base/errors.js";
import { settled } from "../base/promises.js";
import type { Plan } from "../run/plan/plan.js";
import { createServeMetrics } from "./metrics.js";
import { openServedRun, type ServedRun } from "./served-run.js";
import { type HttpOptions, openHttpServer } from "./server.js";

/* Answers requests for predictions with the last published run of a job. This is the door of the folder. */

export interface ServeOptions extends Omit<HttpOptions, "metrics" | "current"> {
  /** Finds the plan of the run that readers have now; undefined: none is published. */
  readonly findPublished: () => Promise<Plan | undefined>;
  /** Opens the job with the params of a run. */
  readonly openRun: (plan: Plan) => Promise<OpenedJob & AsyncDisposable>;
  /** Rejects when the server is to stop. */
  readonly sleep: (ms: number) => Promise<void>;
  readonly signal: AbortSignal;
}

/**
 * Serves until the signal is aborted, then answers the requests that it has. A run that is published later, or comes back
 * by a rollback, takes the place of the one before it, which answers the requests that it has.
 * @throws the signal's reason; JobError if the first run cannot be loaded
 */
export async function serve(options: ServeOptions): Promise<void> {
  const { job, spec, log, signal, findPublished, openRun, sleep } = options;
  const metrics = createServeMetrics(job);
  let current: ServedRun | undefined;
  const retired = new Set<Promise<void>>();

  const retire = (run: ServedRun): void => {
    const closing = Promise.resolve(run[Symbol.asyncDispose]())
      .catch((error: unknown) => log.warn(`closing run ${run.plan.runId}: ${messageOf(error)}`))
      .finally(() => retired.delete(closing));
    retired.add(closing);
  };
  /** Loads the published run unless it is the one that answers; one that was removed and made anew has the same id. */
  const load = async (): Promise<void> => {
    for (let plan = await findPublished(); plan !== undefined && !isDeepStrictEqual(plan, current?.plan); ) {
      const loaded = await openServedRun(await openRun(plan), plan);
      const now = await findPublished().catch((error: unknown) => {
        retire(loaded);
        throw error;
      });
      if (now !== undefined && !isDeepStrictEqual(now, plan)) {
        retire(loaded); // its rows may be those of the later run
        plan = now;
        continue;
      }
      const before = current;
      current = loaded;
      log.info(`serving run ${plan.runId}${before === undefined ? "" : ` in place of ${before.plan.runId}`}`);
      if (before !== undefined) {
        retire(before);
      }
    }
  };
  const follow = async (): Promise<void> => {
    await load();
    if (current === undefined) {
      log.warn(`no run of ${job} is published yet: requests are answered 503 until one is`);
    }
    for (;;) {
      await sleep(spec.poll);
      try {
        await load();
      } catch (error) {
        if (current === undefined) {
          throw error;
        }
        metrics.reloadFailed();
        log.warn(`run ${current.plan.runId} is served on: ${messageOf(error)}`);
      }
    }
  };

  const server = await openHttpServer({ ...options, metrics, current: () => current });
  log.info(`listening on ${server.url}`);
  const following = follow();
  const stopped = new Promise<void>((resolve) => {
    signal.addEventListener("abort", () => resolve(), { once: true });
  });
  try {
    await Promise.race([following, stopped]);
  } finally {
    await server.drain();
    await settled(following);
    await current?.[Symbol.asyncDispose]();
    await Promise.all(retired);
  }
  signal.throwIfAborted();
}
