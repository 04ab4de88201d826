import { Worker } from "node:worker_threads";
import type { ScoredBatch } from "../../packing/scored.js";
import type { Line } from "../../util/worker-port.js";
import { groupOf } from "../../formats/parquet/units.js";
import type { FromDecodeThread, ToDecodeThread, Unit, UnitRequest } from "./decode-protocol.js";

/** Threads that decode. */
export interface DecodeThreads {
  /**
   * The rows of units that follow on each other, in order. Ends with the row that is due then: before the last one's
   * end where something is in the way, which is not told. A batch holds until the next one is asked for.
   */
  read(units: readonly Unit[], request: UnitRequest): AsyncGenerator<ScoredBatch, number>;
}

/** A unit at work and one waiting, so that a thread never waits for the main one. */
const unitsPerThread = 2;

interface Job {
  readonly id: number;
  readonly unit: Unit;
  /** Units with the same one are cheaper where the one before was read. */
  readonly group: string;
  readonly message: ToDecodeThread;
  thread: Thread | undefined;
  readonly arrived: Extract<FromDecodeThread, { kind: "rows" }>[];
  hasEnded: boolean;
  isCancelled: boolean;
  /** Told when something arrives. */
  wake: (() => void) | undefined;
}

interface Thread {
  readonly line: Line;
  readonly jobs: Set<Job>;
  /** Of the unit that it was given last. */
  group: string | undefined;
}

interface Pool {
  readonly threads: readonly Thread[];
  /** Rows of a batch that is scored; undefined: none is. */
  readonly batchRows: (() => number) | undefined;
  /** In the order in which their rows are taken: so whatever is waited for is at work. */
  readonly waiting: Job[];
  /** Those that have not ended. */
  readonly jobs: Map<number, Job>;
  nextId: number;
  isBroken: boolean;
}

/** Threads of our own. They end when they are told to. */
export function startThreads(count: number): { readonly lines: readonly Line[]; readonly stop: () => Promise<void> } {
  const workers = Array.from(
    { length: count },
    () => new Worker(new URL("./decode-worker.js", import.meta.url), { name: "decode" }),
  );
  return {
    lines: workers,
    async stop() {
      await Promise.all(workers.map((worker) => worker.terminate()));
    },
  };
}

/**
 * @param lines to threads that serve units
 * @param batchRows of a batch for the model, where they have one; it may change
 */
export function openDecodeThreads(lines: readonly Line[], batchRows?: () => number): DecodeThreads {
  const threads = lines.map((line): Thread => ({ line, jobs: new Set(), group: undefined }));
  const pool: Pool = { threads, batchRows, waiting: [], jobs: new Map(), nextId: 0, isBroken: false };
  for (const { line } of threads) {
    line.on("message", (message) => {
      receive(pool, message as FromDecodeThread);
    });
    for (const event of ["close", "exit", "error", "messageerror"]) {
      line.on(event, () => {
        breakDown(pool);
      });
    }
  }
  return {
    async *read(units, request) {
      let due = units[0]?.rowStart ?? 0;
      const jobs = pool.isBroken ? [] : units.map((unit) => addJob(pool, unit, request));
      assign(pool);
      try {
        for (const job of jobs) {
          due = yield* rowsOf(pool, job);
          if (due !== job.unit.rowEnd) {
            break;
          }
        }
        return due;
      } finally {
        for (const job of jobs) {
          cancel(pool, job);
        }
      }
    },
  };
}

function addJob(pool: Pool, unit: Unit, request: UnitRequest): Job {
  const id = pool.nextId;
  pool.nextId += 1;
  const job: Job = {
    id,
    unit,
    group: unit.kind === "parquet" ? groupOf(unit) : String(id),
    message: { kind: "read", id, unit, ...request },
    thread: undefined,
    arrived: [],
    hasEnded: false,
    isCancelled: false,
    wake: undefined,
  };
  pool.jobs.set(id, job);
  pool.waiting.push(job);
  return job;
}

/** Gives jobs to threads, first to those that have the fewest. */
function assign(pool: Pool): void {
  for (let next = nextJob(pool); next !== undefined; next = nextJob(pool)) {
    const { thread, place } = next;
    const [job] = pool.waiting.splice(place, 1) as [Job];
    job.thread = thread;
    thread.jobs.add(job);
    thread.group = job.group;
    thread.line.postMessage(job.message);
  }
}

function nextJob(pool: Pool): { readonly thread: Thread; readonly place: number } | undefined {
  for (const thread of pool.threads.toSorted((one, other) => one.jobs.size - other.jobs.size)) {
    const place = thread.jobs.size < unitsPerThread ? placeOfNext(pool, thread) : -1;
    if (place >= 0) {
      return { thread, place };
    }
  }
  return undefined;
}

/**
 * Where among those that wait a thread's next job is: of the row group that it has open; else of one that nobody has;
 * else it helps with the first. But none whose rows come before those that it is at: it may have to wait until these are
 * taken, and those that are due would wait behind them for ever. -1: there is none.
 */
function placeOfNext({ threads, waiting }: Pool, { group, jobs }: Thread): number {
  const last = Math.max(-1, ...Array.from(jobs, ({ id }) => id));
  const taken = new Set(threads.map((thread) => thread.group));
  const isLater = ({ id }: Job): boolean => id > last;
  const own = waiting.findIndex((job) => job.group === group && isLater(job));
  const free = own < 0 ? waiting.findIndex((job) => !taken.has(job.group) && isLater(job)) : own;
  return free < 0 ? waiting.findIndex((job, place) => place === 0 && isLater(job)) : free;
}

function receive(pool: Pool, message: FromDecodeThread): void {
  const job = pool.jobs.get(message.id);
  if (job === undefined) {
    return;
  }
  if (message.kind === "end") {
    endJob(pool, job);
    assign(pool);
  } else if (job.isCancelled) {
    giveBack(pool, job, message);
  } else {
    job.arrived.push(message);
    job.wake?.();
  }
}

function endJob(pool: Pool, job: Job): void {
  job.hasEnded = true;
  job.thread?.jobs.delete(job);
  pool.jobs.delete(job.id);
  job.wake?.();
}

function giveBack({ batchRows }: Pool, { thread }: Job, { buffers, bytes }: Job["arrived"][number]): void {
  const message: ToDecodeThread = { kind: "taken", buffers, bytes, batchRows: batchRows?.() };
  thread?.line.postMessage(message, [...buffers]);
}

/** None of the threads is trusted any more: what they were to read is read in another way. */
function breakDown(pool: Pool): void {
  pool.isBroken = true;
  for (const job of pool.jobs.values()) {
    endJob(pool, job);
  }
  pool.waiting.length = 0;
}

/** Nobody takes more of its rows. */
function cancel(pool: Pool, job: Job): void {
  for (const message of job.arrived.splice(0)) {
    giveBack(pool, job, message);
  }
  if (job.hasEnded) {
    return;
  }
  job.isCancelled = true;
  if (job.thread === undefined) {
    pool.waiting.splice(pool.waiting.indexOf(job), 1);
    endJob(pool, job);
  } else {
    job.thread.line.postMessage({ kind: "cancel", id: job.id } satisfies ToDecodeThread);
  }
}

/** Rows of a job, as they come; returns the row that is due then. */
async function* rowsOf(pool: Pool, job: Job): AsyncGenerator<ScoredBatch, number> {
  let due = job.unit.rowStart;
  for (;;) {
    const message = job.arrived.shift();
    if (message === undefined) {
      if (job.hasEnded) {
        return due;
      }
      await new Promise<void>((resolve) => {
        job.wake = resolve;
      });
      continue;
    }
    const { rowStart, batch } = message;
    try {
      if (rowStart !== due || rowStart + batch.rowCount > job.unit.rowEnd) {
        return due;
      }
      due += batch.rowCount;
      yield batch;
    } finally {
      giveBack(pool, job, message);
    }
  }
}
