/**
 * Runs in a process of its own: scores the first rows of a job on one execution provider, into a temporary folder, and
 * prints how fast the whole job is. The first argument is a `MeasureTask`.
 */
import { rmSync } from "node:fs";
import { join } from "node:path";
import { paramTexts } from "../../plan/identity.js";
import type { RunReport } from "../../report/report.js";
import { runJob } from "../../run/run.js";
import { limitParam, limitedSpec } from "../../spec/limited-spec.js";
import type { LoadedSpec } from "../../spec/load.js";
import { JobError, messageOf } from "../../util/errors.js";
import { alone, openLoaded } from "../job-context.js";
import { machineError } from "../machine-errors.js";
import { readSpec } from "../reading/read-spec.js";
import type { MeasureRequest, MeasureTask } from "./measure-provider.js";

/** A trial with more rows than the one before has at most so many times as many, whose speed may be very different. */
const largestStep = 16;
/** A trial that took this share of the target is long enough. */
const enough = 0.5;

async function main(task: MeasureTask): Promise<void> {
  endWithParent(task.folder);
  try {
    process.stdout.write(`${JSON.stringify(await measure(task))}\n`);
  } catch (error) {
    process.stdout.write(`${JSON.stringify(reasonOf(error))}\n`);
  }
}

/** Ends this process, and removes its folder, if the run that waits for it is killed: no other process does that. */
function endWithParent(folder: string): void {
  process.stdin.on("close", () => {
    rmSync(folder, { recursive: true, force: true });
    process.kill(process.pid, "SIGKILL"); // an exit would wait for the model
  });
  process.stdin.on("error", () => undefined); // it closes
  process.stdin.resume();
  process.stdin.unref();
}

/** Scores more and more rows, until they take long enough or the job has no more. */
async function measure(request: MeasureTask): Promise<object> {
  const { provider, firstRows, targetSeconds, folder } = request;
  const { [limitParam]: _, ...params } = request.params;
  const param = paramTexts(params);
  const loaded = trialSpec(await readSpec(request.specPath, { param }), request);
  for (let [rows, round] = [firstRows, 0]; ; round += 1) {
    const startedMs = performance.now();
    const report = await scoreFirst(loaded, request, { rows, folder: join(folder, String(round)) });
    const wholeSeconds = (performance.now() - startedMs) / 1000;
    if (report.provider !== provider) {
      return {
        reason: `it has none of the operators of the model, which ${report.provider} computes`,
        isLasting: true,
      };
    }
    const rowsPerSecond = report.rowsScored / report.seconds;
    if (report.seconds >= targetSeconds * enough || report.rowsPlanned < rows) {
      return { rowsPerSecond, startSeconds: wholeSeconds - report.seconds };
    }
    rows = Math.ceil(Math.min(rows * largestStep, Math.max(rows * 2, rowsPerSecond * targetSeconds)));
  }
}

/** A row that cannot be scored is none of this trial's business, and the files are not verified for it. */
function trialSpec(loaded: LoadedSpec, { provider }: MeasureRequest): LoadedSpec {
  const { spec } = loaded;
  return {
    ...loaded,
    spec: {
      ...spec,
      input: { ...spec.input, verify: "pinned" },
      engine: { ...spec.engine, providers: [provider] },
      on_bad_row: "reject",
      max_rejects: "100%",
    },
  };
}

async function scoreFirst(
  loaded: LoadedSpec,
  { specPath }: MeasureRequest,
  limited: { readonly rows: number; readonly folder: string },
): Promise<RunReport> {
  await using job = await openLoaded(limitedSpec(loaded, limited), specPath, { attempt: { ...alone, limited } });
  return await runJob(job);
}

function reasonOf(error: unknown): object {
  const known = machineError(error) ?? error;
  const isLasting = known instanceof JobError && known.exitCode === 64;
  return { reason: messageOf(known), isLasting };
}

const [, , given = "{}"] = process.argv;
void main(JSON.parse(given) as MeasureTask); // by `measureProvider`, which has one
