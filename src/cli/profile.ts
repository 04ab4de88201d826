import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, extname, join, resolve } from "node:path";
import { z } from "../util/zod.js";
import { parseProfileName } from "../engine/onnx/protocol.js";
import { errnoOf, JobError, messageOf } from "../util/errors.js";
import { stages, type StageTimes } from "../report/stage-times.js";
import { table } from "../report/table.js";
import { createTrace, otherTids, type Trace, type TraceEvent, tracePid, trackName } from "../report/trace.js";
import type { Log } from "../scoring/context.js";
import type { JobSpec } from "../spec/job-spec.js";
import { fileError } from "../app/reading/given-files.js";
import { refuseAmongPredictions } from "../app/reports/files.js";

/** The profile of `run --profile FILE`: a trace, and a table of the time that each stage took. */
export interface Profile extends AsyncDisposable {
  /** Receives each piece of work, for the trace. */
  readonly onStage: Trace["addWork"];
  /** The folder to which sessions write their own profiles. */
  readonly folder: string;
  /** Writes the trace, and logs the table. Sessions must be closed. */
  end(times: StageTimes): Promise<void>;
}

/** Creates the file before anything is scored. @throws JobError USAGE, PERMISSION when it cannot be written */
export async function openProfile(
  file: string | undefined,
  { spec, folder: specFolder, log }: { readonly spec: JobSpec; readonly folder: string; readonly log: Log },
): Promise<Profile | undefined> {
  if (file === undefined) {
    return undefined;
  }
  const path = resolve(file);
  const act = `writing --profile ${path}`;
  if (extname(path) !== ".json") {
    throw new JobError("USAGE", `${act}: expected a name that ends in .json`, {
      hint: "an existing file is replaced; choose a name such as trace.json",
    });
  }
  await refuseAmongPredictions(spec, { folder: specFolder, path: dirname(path), doing: act });
  const folder = await createTraceFile(path, act);
  const trace = createTrace();
  return {
    onStage: trace.addWork,
    folder,
    async end(times) {
      try {
        await writeFile(path, trace.toJson(await sessionEvents(folder, log)));
      } catch (error) {
        log.warn(`writing --profile ${path}: ${errnoOf(error) ?? messageOf(error)}`); // the run itself succeeded
        return;
      }
      if (trace.dropped > 0) {
        log.warn(`${file} has only the first events: ${trace.dropped} more did not fit`);
      }
      log.info([`profile: ${file}, to be opened in https://ui.perfetto.dev`, ...stageTable(times)].join("\n"));
    },
    async [Symbol.asyncDispose]() {
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function createTraceFile(path: string, act: string): Promise<string> {
  try {
    await writeFile(path, "");
    return await mkdtemp(join(tmpdir(), "infer-batch-profile-"));
  } catch (cause) {
    const hint = "name a file in an existing folder that can be written to; sessions write to TMPDIR";
    throw fileError(act, cause, hint);
  }
}

const meanings: Readonly<Record<(typeof stages)[number], string>> = {
  read: "until the bytes arrived",
  decode: "until rows were columns, or were scored by the worker that decoded them",
  pack: "copying rows into batches",
  infer: "in the model, all sessions together",
  encode: "until a span was encoded",
  commit: "until a span was durable",
  wait: "for the model or the target",
};

function stageTable({ ms }: StageTimes): string[] {
  const rows = stages.map((stage) => [stage, (ms[stage] / 1000).toFixed(2), meanings[stage]]);
  return table([["stage", "seconds", ""], ...rows], { right: [1] });
}

/** Larger profiles of sessions are left out: parsing them would take more memory than the job. */
const maxProfileBytes = 64 * 1024 * 1024;

/** Events of ONNX Runtime's profile, in the Trace Event Format. */
const runtimeEvents = z.array(
  z.object({
    name: z.string(),
    cat: z.string().optional(),
    ph: z.string(),
    ts: z.number(),
    dur: z.number().optional(),
    tid: z.number(),
    args: z.record(z.string(), z.unknown()).optional(),
  }),
);

async function sessionEvents(folder: string, log: Log): Promise<TraceEvent[]> {
  const events: TraceEvent[] = [];
  const threads = new Map<string, number>();
  for (const name of (await readdir(folder)).toSorted()) {
    const profile = parseProfileName(name);
    if (profile === undefined) {
      continue;
    }
    const { session, startedMs } = profile;
    const path = join(folder, name);
    if ((await stat(path)).size > maxProfileBytes) {
      log.warn(`the profile of session ${session} is larger than ${maxProfileBytes} bytes and left out of the trace`);
      continue;
    }
    const text = await readFile(path, "utf8");
    // A session that was never opened leaves an empty profile.
    const found = runtimeEvents.safeParse(text === "" ? [] : JSON.parse(text));
    for (const { tid, ts, ...event } of found.success ? found.data : []) {
      const thread = `session ${session}, thread ${tid}`;
      if (!threads.has(thread)) {
        threads.set(thread, otherTids + threads.size);
        events.push(trackName(otherTids + threads.size - 1, thread));
      }
      events.push({
        ...event,
        ts: ts + (startedMs - performance.timeOrigin) * 1000,
        pid: tracePid,
        tid: threads.get(thread) ?? otherTids,
      });
    }
  }
  return events;
}
