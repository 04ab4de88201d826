import { mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, extname, join, resolve } from "node:path";
import { z } from "../util/zod.js";
import { parseProfileName } from "../engine/onnx/protocol.js";
import { errnoOf, JobError, messageOf } from "../util/errors.js";
import { type StageTimes, stages } from "../report/stage-times.js";
import { table } from "../report/table.js";
import { createTrace, otherTids, type Trace, type TraceEvent, tracePid, trackName } from "../report/trace.js";
import type { Log } from "../scoring/context.js";
import type { JobSpec } from "../spec/job-spec.js";
import { fileError } from "../app/given-files.js";
import { refuseAmongPredictions } from "../app/report-files.js";

/** `run --profile FILE`: where the time goes, as a table and as a trace. */
export interface Profile extends AsyncDisposable {
  readonly onStage: Trace["piece"];
  /** Where sessions leave their own profiles. */
  readonly folder: string;
  /** Writes the trace, and the table to the log. Sessions are closed by now. */
  end(times: StageTimes): Promise<void>;
}

/** @throws JobError USAGE, PERMISSION when the file cannot be written: said before anything is scored */
export async function openProfile(
  file: string | undefined,
  { spec, folder: specFolder, log }: { readonly spec: JobSpec; readonly folder: string; readonly log: Log },
): Promise<Profile | undefined> {
  if (file === undefined) {
    return undefined;
  }
  const path = resolve(file);
  const doing = `writing --profile ${path}`;
  if (extname(path) !== ".json") {
    throw new JobError("USAGE", `${doing}: expected a name that ends in .json`, {
      hint: "the file is written over: it should be no other's, such as trace.json",
    });
  }
  await refuseAmongPredictions(spec, { folder: specFolder, path: dirname(path), doing });
  const folder = await emptyTrace(path, doing);
  const trace = createTrace();
  return {
    onStage: trace.piece,
    folder,
    async end(times) {
      try {
        await writeFile(path, trace.text(await sessionEvents(folder, log)));
      } catch (error) {
        log.warn(`writing --profile ${path}: ${errnoOf(error) ?? messageOf(error)}`); // the run is what it was
        return;
      }
      if (trace.dropped > 0) {
        log.warn(`${file} has the first pieces of work only: ${trace.dropped} more did not fit`);
      }
      log.info([`profile: ${file}, to be opened in https://ui.perfetto.dev`, ...stageTable(times)].join("\n"));
    },
    async [Symbol.asyncDispose]() {
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Makes the file, and a folder for what sessions write. */
async function emptyTrace(path: string, doing: string): Promise<string> {
  try {
    await writeFile(path, "");
    return await mkdtemp(join(tmpdir(), "infer-batch-profile-"));
  } catch (cause) {
    const hint = "name a file in a folder that is there and can be written to; TMPDIR takes what sessions write";
    throw fileError(doing, cause, hint);
  }
}

const meanings: Readonly<Record<(typeof stages)[number], string>> = {
  read: "until bytes were there",
  decode: "until rows were columns, or scored by who decodes them",
  pack: "copying them into batches",
  infer: "in the model, of all sessions together",
  encode: "until a span was bytes",
  commit: "until it was durable",
  wait: "for the model or the target",
};

function stageTable({ ms }: StageTimes): string[] {
  const rows = stages.map((stage) => [stage, (ms[stage] / 1000).toFixed(2), meanings[stage]]);
  return table([["stage", "seconds", ""], ...rows], { right: [1] });
}

/** Larger ones would take more memory than the job. */
const mostBytes = 64 * 1024 * 1024;

/** ONNX Runtime's own, on tracks of their own. */
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
    const about = parseProfileName(name);
    if (about === undefined) {
      continue;
    }
    const { session, startedMs } = about;
    const path = join(folder, name);
    if ((await stat(path)).size > mostBytes) {
      log.warn(`the profile of session ${session} is larger than ${mostBytes} bytes and left out of the trace`);
      continue;
    }
    const text = await readFile(path, "utf8");
    const found = runtimeEvents.safeParse(text === "" ? [] : JSON.parse(text)); // empty: of a session that was not opened
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
