import type { Stage } from "./stage-times.js";

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
export interface Trace {
  /** Adds a piece of work of a stage; times in milliseconds. */
  readonly addWork: (stage: Stage, startedMs: number, endedMs: number) => void;
  /** The number of pieces that did not fit. */
  readonly dropped: number;
  /**
   * The trace as a JSON object in the Trace Event Format
   * (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), with `others` added.
   */
  toJson(others: readonly TraceEvent[]): string;
}

/** The most pieces of a trace, about 12 MB; a run of 4 M rows has some thousands. */
const maxEvents = 500_000;

/** The track of each stage. Work on one track that overlaps is drawn on several lines. */
const tracks: Readonly<Record<Stage, string>> = {
  read: "feed",
  decode: "feed",
  pack: "feed",
  wait: "feed",
  infer: "infer",
  encode: "publish",
  commit: "publish",
};

/** The process id in all events. */
export const tracePid = 1;
/** The first thread id that is free for `others`. */
export const otherTids = 1000;

/** Makes an empty trace. */
export function createTrace(limit = maxEvents): Trace {
  const stages: Stage[] = [];
  const times: number[] = [];
  let dropped = 0;
  return {
    addWork(stage, startedMs, endedMs) {
      if (stages.length >= limit) {
        dropped += 1;
        return;
      }
      stages.push(stage);
      times.push(startedMs, endedMs);
    },
    get dropped() {
      return dropped;
    },
    toJson(others) {
      const lines = createLines();
      const pieces = stages
        .map((stage, index) => ({ stage, from: times[index * 2] ?? 0, to: times[index * 2 + 1] ?? 0 }))
        .toSorted((one, other) => one.from - other.from);
      const events = pieces.map(({ stage, from, to }): TraceEvent => {
        const tid = lines.assign(tracks[stage], from, to);
        return { name: stage, ph: "X", ts: micros(from), dur: micros(to - from), pid: tracePid, tid };
      });
      const all = [...lines.names(), ...events, ...others];
      return `{"displayTimeUnit":"ms","traceEvents":[\n${all.map((event) => JSON.stringify(event)).join(",\n")}\n]}\n`;
    },
  };
}

/** Microseconds, rounded to nanoseconds. */
function micros(ms: number): number {
  return Math.round(ms * 1e6) / 1000;
}

interface TrackLines {
  /** Returns the line of this track that is free from `from` on, and reserves it until `to`. */
  assign(track: string, from: number, to: number): number;
  names(): TraceEvent[];
}

/** Makes lines, numbered from 1; each belongs to a track. */
function createLines(): TrackLines {
  const lines: { track: string; busyUntil: number }[] = [];
  return {
    assign(track, from, to) {
      const free = lines.findIndex((line) => line.track === track && line.busyUntil <= from);
      const index = free < 0 ? lines.push({ track, busyUntil: to }) - 1 : free;
      const line = lines[index];
      if (line !== undefined) {
        line.busyUntil = to;
      }
      return index + 1;
    },
    names: () => lines.map(({ track }, index) => trackName(index + 1, track)),
  };
}

/** The metadata event that names a line. */
export function trackName(tid: number, name: string): TraceEvent {
  return { name: "thread_name", ph: "M", pid: tracePid, tid, args: { name } };
}
