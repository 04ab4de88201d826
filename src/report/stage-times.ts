/**
 * The stages of an attempt. One loop feeds the model, and reads, decodes, packs or waits: these four add up to the time
 * of scoring. At the same time sessions infer, and spans are encoded and committed.
 *
 * read: until the bytes of the next rows arrive (files on a disk are read while they are decoded). decode: until the next
 * rows are columns. pack: copying rows into batches, and carried columns into spans. wait: until a session takes another
 * batch, or the target another span. infer: inside the model, all sessions together. encode: from a span's last prediction
 * until its bytes are ready. commit: until they are durable.
 */
export const stages = ["read", "decode", "pack", "infer", "encode", "commit", "wait"] as const;

/** One of the stages. */
export type Stage = (typeof stages)[number];

/** Records how long stages take: once for a batch, chunk or span, never for a row. */
export interface StageTimer {
  /** The clock of all times, in milliseconds. */
  readonly nowMs: () => number;
  /** Records that a stage ran from `startedMs` until `endedMs`, by default now. Returns the end. */
  took(stage: Stage, startedMs: number, endedMs?: number): number;
}

/** The times of all stages. */
export interface StageTimes extends StageTimer {
  readonly ms: Readonly<Record<Stage, number>>;
}

/** Makes a timer with all totals 0. `onStage` receives every recorded piece of work. */
export function createStageTimes(
  nowMs: () => number,
  onStage?: (stage: Stage, startedMs: number, endedMs: number) => void,
): StageTimes {
  const ms = { read: 0, decode: 0, pack: 0, infer: 0, encode: 0, commit: 0, wait: 0 };
  return {
    ms,
    nowMs,
    took(stage, startedMs, endedMs = nowMs()) {
      ms[stage] += endedMs - startedMs;
      onStage?.(stage, startedMs, endedMs);
      return endedMs;
    },
  };
}

/** The totals in seconds, rounded to milliseconds. */
export function secondsByStage({ ms }: StageTimes): Record<Stage, number> {
  const seconds = stages.map((stage) => [stage, Math.round(ms[stage]) / 1000]);
  return Object.fromEntries(seconds) as Record<Stage, number>;
}

/** A timer that records nothing. */
export const untimed: StageTimer = { nowMs: () => 0, took: () => 0 };
