import { dirname, resolve } from "node:path";
import type { OpenedJob } from "../../flow/opened-job.js";
import { interruptibleSleep, programVersion } from "../../job/attempt.js";
import { refuseChain } from "../../job/chain.js";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, readHeaderValue, readPem, readSpec } from "../../job/reading.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { everyRun, isInFrontOfReaders, latestFirst } from "../../run/lifecycle/recorded-run.js";
import { logicalDateOf, replacedBy } from "../../run/lifecycle/published-run.js";
import { paramTexts } from "../../run/plan/identity.js";
import type { Plan } from "../../run/plan/plan.js";
import { type ServeOptions, serve } from "../../serve/serve.js";
import { abortOnSignals } from "../failure.js";
import { type CommandLine, countOf, logFlags, paramFlag } from "../flags.js";
import type { SafeIo } from "../io.js";
import { createLog, type LogOptions } from "../logger.js";

export const serveCommand: CommandLine = {
  flags: {
    ...paramFlag,
    "--port <n>": ["Port to listen on, in place of serve.port", countOf(65_535)],
    ...logFlags,
  },
  examples: ["infer-batch serve job.yaml", "infer-batch serve job.yaml --param region=EU --port 9000"],
  run: serveJob,
};

interface ServeCommandOptions extends JobOptions, LogOptions {
  readonly port?: number;
}

/** So long requests are answered after a signal: with the 5 s of `deploy/kubernetes/serve`, less than Kubernetes' 30 s. */
const drainMs = 20_000;

async function serveJob(path: string, options: ServeCommandOptions, io: SafeIo): Promise<void> {
  const stopText = { kept: "open requests are answered", hint: "start it again" };
  using stop = abortOnSignals(io, options, stopText, drainMs + 4000);
  const log = createLog(io.stderr, options);
  const loaded = await readSpec(path, options, { standIns: "all" });
  refuseChain(loaded, "serving", "serve a job that scores whole tables");
  const { spec } = loaded;
  await using opened = await openLoaded(loaded, path, { log, signal: stop.signal }); // finds runs only
  await serve({
    job: spec.name,
    spec: { ...spec.serve, ...(options.port !== undefined && { port: options.port }) },
    ...(await secretsOf(loaded, dirname(resolve(path)))),
    program: { name: "infer-batch", version: programVersion },
    log,
    drainMs,
    signal: stop.signal,
    nowMs: () => performance.now(),
    sleep: (ms) => interruptibleSleep(ms, stop.signal),
    findPublished: async () =>
      (await lastPublished(opened, loaded, options, 64)) ?? (await lastPublished(opened, loaded, options, everyRun)),
    async openRun({ params }) {
      return await openLoaded(await readSpec(path, { param: paramTexts(params) }), path, { log });
    },
  });
}

async function lastPublished(
  { job, sink }: OpenedJob,
  { hourParam }: LoadedSpec,
  { param }: JobOptions,
  lookedAt: number,
): Promise<Plan | undefined> {
  const hasParams = (texts: readonly string[]): boolean => param.every((text) => texts.includes(text));
  const recorded = latestFirst(await sink.history({ job: job.spec.name, last: lookedAt }));
  const plans = recorded.flatMap((run) =>
    run.plan !== undefined && isInFrontOfReaders(run) && hasParams(paramTexts(run.plan.params)) ? [run.plan] : [],
  );
  const [first] = plans;
  if (first !== undefined && replacedBy(first.target) === "all") {
    // The table has the rows of the run that was published last, also where that is one of an earlier date.
    const shown = (await sink.published("here")).at(-1);
    return plans.find(({ runId }) => runId === shown?.runId);
  }
  if (first === undefined || hourParam === undefined) {
    return first;
  }
  const isOfDate = (plan: Plan): boolean => logicalDateOf(plan) === logicalDateOf(first);
  if (recorded.length >= lookedAt && recorded.every(({ plan }) => plan === undefined || isOfDate(plan))) {
    return undefined; // the date may have more runs
  }
  const hourOf = ({ params }: Plan): string => params[hourParam] ?? "";
  return plans.filter(isOfDate).reduce((latest, plan) => (hourOf(plan) > hourOf(latest) ? plan : latest));
}

async function secretsOf(
  { spec, where }: LoadedSpec,
  folder: string,
): Promise<Pick<ServeOptions, "token" | "readTls">> {
  const { token, tls } = spec.serve;
  const read = (name: "cert" | "key"): Promise<string> =>
    readPem(tls?.[name] ?? "", { folder, key: where(["serve", "tls", name]) });
  const readTls = async () => ({ cert: await read("cert"), key: await read("key") });
  return {
    token: token === undefined ? undefined : await readHeaderValue(token, { folder, key: where(["serve", "token"]) }), // an empty one is refused
    readTls: tls && readTls,
  };
}
