import { mkdtemp, readFile, readdir, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, extname, join, resolve } from "node:path";
import { fileError } from "../job/reading.js";
import { refuseAmongPredictions } from "../job/reporting.js";
import { parseProfileName } from "../models/onnx/protocol.js";
import { type Stage, type StageTimes, stages } from "../report/stage-times.js";
import { JobError, errnoOf, messageOf } from "../base/errors.js";
import { table } from "../report/table.js";
import type { Log } from "../flow/opened-job.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { z } from "../base/zod.js";

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
  file: string,
  { spec, folder: specFolder, log }: { readonly spec: JobSpec; readonly folder: string; readonly log: Log },
): Promise<Profile> {
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
    const parsed = runtimeEvents.safeParse(text === "" ? [] : JSON.parse(text));
    for (const { tid, ts, ...event } of parsed.success ? parsed.data : []) {
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

/** An event of the Trace Event Format; times in microseconds. */
export interface TraceEvent {
  readonly name: string;
  readonly cat?: string | undefined;
  readonly ph: string;
  readonly ts?: number;
  readonly dur?: number | undefined;
  readonly pid: number;
  readonly tid: number;
  readonly args?: Readonly<Record<string, unknown>> | undefined;
}

/** A trace of an attempt for Perfetto and chrome://tracing. */
interface Trace {
  readonly addWork: (stage: Stage, startedMs: number, endedMs: number) => void;
  readonly dropped: number;
  /**
   * The trace as a JSON object in the Trace Event Format
   * (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), with `others` added.
   */
  toJson(others: readonly TraceEvent[]): string;
}

/** The most pieces of a trace, about 12 MB; a run of 4 M rows has some thousands. */
const maxEvents = 500_000;

const tracks: Readonly<Record<Stage, string>> = {
  read: "feed",
  decode: "feed",
  pack: "feed",
  wait: "feed",
  infer: "infer",
  encode: "publish",
  commit: "publish",
};

const tracePid = 1;
const otherTids = 1000;

/** Makes an empty trace. @public so that tests reach it */
export function createTrace(limit = maxEvents): Trace {
  const worked: Stage[] = [];
  const times: number[] = [];
  let dropped = 0;
  return {
    addWork(stage, startedMs, endedMs) {
      if (worked.length >= limit) {
        dropped += 1;
        return;
      }
      worked.push(stage);
      times.push(startedMs, endedMs);
    },
    get dropped() {
      return dropped;
    },
    toJson(others) {
      const pieces = worked
        .map((stage, index) => ({ stage, from: times[index * 2] ?? 0, to: times[index * 2 + 1] ?? 0 }))
        .toSorted((left, right) => left.from - right.from);
      // Work on one track that overlaps is drawn on several lines, which are numbered from 1.
      const lines: { readonly track: string; busyUntil: number }[] = [];
      const events = pieces.map(({ stage, from, to }): TraceEvent => {
        const track = tracks[stage];
        let line = lines.find((each) => each.track === track && each.busyUntil <= from);
        if (line === undefined) {
          line = { track, busyUntil: to };
          lines.push(line);
        }
        line.busyUntil = to;
        const tid = lines.indexOf(line) + 1;
        return { name: stage, ph: "X", ts: micros(from), dur: micros(to - from), pid: tracePid, tid };
      });
      const names = lines.map(({ track }, index) => trackName(index + 1, track));
      const all = [...names, ...events, ...others];
      return `{"displayTimeUnit":"ms","traceEvents":[\n${all.map((event) => JSON.stringify(event)).join(",\n")}\n]}\n`;
    },
  };
}

/** Microseconds, rounded to nanoseconds. */
function micros(ms: number): number {
  return Math.round(ms * 1e6) / 1000;
}

function trackName(tid: number, name: string): TraceEvent {
  return { name: "thread_name", ph: "M", pid: tracePid, tid, args: { name } };
}
