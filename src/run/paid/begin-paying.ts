import type { Engine } from "../../engine/port.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunWriter } from "../../sink/port.js";

/**
 * Takes over the answers that attempts of a run have kept, and keeps those of this attempt at the target. Disposing keeps
 * what is left. undefined: predictions are free.
 * @throws JobError MODEL_CHANGED, DISK, OBJECT_STORE, DATABASE
 */
export async function beginPaying(
  { worker, log }: Pick<JobContext, "worker" | "log">,
  { engine: { paid }, writer }: { readonly engine: Engine; readonly writer: RunWriter },
): Promise<AsyncDisposable | undefined> {
  if (paid === undefined) {
    return undefined;
  }
  const journal = await writer.answers?.();
  if (journal === undefined) {
    log.warn(
      "the target keeps no answers: an attempt that is killed pays again for the spans that it has not committed",
    );
  }
  const begun = await paid.begin(journal, worker);
  const { answers } = paid.spending.earlier;
  if (answers > 0) {
    log.info(`${count(answers, "answer")} of earlier attempts are kept, and not asked for again`);
  }
  return {
    async [Symbol.asyncDispose]() {
      await begun[Symbol.asyncDispose]();
      await journal?.[Symbol.asyncDispose]();
    },
  };
}
