/** The time limit of work that only informs people. */
const briefMs = 3000;

/**
 * Does work that only informs people. It ends after a few seconds, and never fails.
 * @param work its signal is aborted at the time limit
 */
export async function bestEffort(work: (stop: AbortSignal) => Promise<unknown>): Promise<void> {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<void>((resolve) => {
    timer = setTimeout(() => {
      controller.abort(new Error(`it takes more than ${briefMs / 1000} s`));
      resolve();
    }, briefMs);
  });
  await Promise.race([work(controller.signal).catch(() => undefined), tooLate]);
  clearTimeout(timer);
}
