import type { Stage } from "./stage-times.js";

/** A piece of work, as the Trace Event Format has it; times in microseconds. */
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

/** What an attempt did, for Perfetto and chrome://tracing. */
export interface Trace {
  /** A stage worked from then until then, in milliseconds. */
  readonly piece: (stage: Stage, startedMs: number, endedMs: number) => void;
  /** Pieces that came when there was no more room. */
  readonly dropped: number;
  /**
   * A JSON object in the Trace Event Format
   * (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU), with `others` beside ours.
   */
  text(others: readonly TraceEvent[]): string;
}

/** 12 MB; a run of 4 M rows has some thousands. */
const mostPieces = 500_000;

/** What works one after the other is drawn as one track, what overlaps itself as several. */
const tracks: Readonly<Record<Stage, string>> = {
  read: "feed",
  decode: "feed",
  pack: "feed",
  wait: "feed",
  infer: "infer",
  encode: "publish",
  commit: "publish",
};

export const tracePid = 1;
/** Numbers of tracks from here on are free for others. */
export const otherTids = 1000;

export function createTrace(limit = mostPieces): Trace {
  const stages: Stage[] = [];
  const times: number[] = [];
  let dropped = 0;
  return {
    piece(stage, startedMs, endedMs) {
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
    text(others) {
      const lanes = createLanes();
      const pieces = stages
        .map((stage, index) => ({ stage, from: times[index * 2] ?? 0, to: times[index * 2 + 1] ?? 0 }))
        .toSorted((one, other) => one.from - other.from);
      const events = pieces.map(({ stage, from, to }): TraceEvent => {
        const tid = lanes.take(tracks[stage], from, to);
        return { name: stage, ph: "X", ts: micros(from), dur: micros(to - from), pid: tracePid, tid };
      });
      const all = [...lanes.names(), ...events, ...others];
      return `{"displayTimeUnit":"ms","traceEvents":[\n${all.map((event) => JSON.stringify(event)).join(",\n")}\n]}\n`;
    },
  };
}

/** To a nanosecond. */
function micros(ms: number): number {
  return Math.round(ms * 1e6) / 1000;
}

interface Lanes {
  /** The number of a lane of this track that is free from then on. */
  take(track: string, from: number, to: number): number;
  names(): TraceEvent[];
}

function createLanes(): Lanes {
  const lanes: { track: string; busyUntil: number }[] = [];
  return {
    take(track, from, to) {
      const free = lanes.findIndex((lane) => lane.track === track && lane.busyUntil <= from);
      const index = free < 0 ? lanes.push({ track, busyUntil: to }) - 1 : free;
      const lane = lanes[index];
      if (lane !== undefined) {
        lane.busyUntil = to;
      }
      return index + 1;
    },
    names: () => lanes.map(({ track }, index) => trackName(index + 1, track)),
  };
}

/** Says what a track is called. */
export function trackName(tid: number, name: string): TraceEvent {
  return { name: "thread_name", ph: "M", pid: tracePid, tid, args: { name } };
}
