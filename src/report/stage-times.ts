/**
 * Where the time of an attempt goes. The lane that feeds the model reads, decodes, packs or waits: these four add up
 * to the time that scoring takes. Beside it, and each other, sessions infer and spans are encoded and committed.
 *
 * read: until the bytes of the next rows are there (files on a disk are read while they are decoded). decode: until
 * the next rows are columns. pack: copying them into batches, and what is carried through. wait: until a session takes
 * one more batch, or the target one more span. infer: inside the model, all sessions together. encode: from a span's
 * last prediction until its bytes are ready. commit: until they are durable.
 */
export const stages = ["read", "decode", "pack", "infer", "encode", "commit", "wait"] as const;

export type Stage = (typeof stages)[number];

/** Told what stages took: for a batch, a chunk or a span at a time, never for a row. */
export interface StageWatch {
  /** The clock that all of them are told by. */
  readonly nowMs: () => number;
  /** A stage worked from `startedMs` until `endedMs`, or until now. Returns its end, where the next one may begin. */
  took(stage: Stage, startedMs: number, endedMs?: number): number;
}

export interface StageTimes extends StageWatch {
  /** Of each stage so far. */
  readonly ms: Readonly<Record<Stage, number>>;
}

/** `also` is told of every piece: for a trace. */
export function createStageTimes(
  nowMs: () => number,
  also?: (stage: Stage, startedMs: number, endedMs: number) => void,
): StageTimes {
  const ms = { read: 0, decode: 0, pack: 0, infer: 0, encode: 0, commit: 0, wait: 0 };
  return {
    ms,
    nowMs,
    took(stage, startedMs, endedMs = nowMs()) {
      ms[stage] += endedMs - startedMs;
      also?.(stage, startedMs, endedMs);
      return endedMs;
    },
  };
}

/** Seconds of each stage, to the millisecond. */
export function secondsByStage({ ms }: StageTimes): Record<Stage, number> {
  const seconds = stages.map((stage) => [stage, Math.round(ms[stage]) / 1000]);
  return Object.fromEntries(seconds) as Record<Stage, number>;
}

/** Where nobody asks. */
export const untimed: StageWatch = { nowMs: () => 0, took: () => 0 };
