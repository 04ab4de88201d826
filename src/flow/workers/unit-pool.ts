import type { Unit } from "../../formats/format.js";
import type { ReadBatch } from "../pack/packer.js";
import { rowsRead } from "../pack/select-rows.js";
import { messageOf } from "../../base/errors.js";
import { type Condition, createCondition } from "../../base/promises.js";
import { openRpcClient, type RpcClient, type WorkerPort } from "../../base/rpc.js";
import type { SentRows, UnitFailure, UnitProtocol, UnitRequest } from "./protocol.js";

/** Shares units out among workers, which read them and may score them. */
export interface UnitPool {
  /**
   * Yields the rows of consecutive units, in order. Returns the next row, which is before the end of the last unit if a
   * worker could not continue. A batch is valid until the next one is requested.
   * @param most the number of workers that fit into memory; default: all
   */
  read(units: readonly Unit[], request: UnitRequest, most?: number): AsyncGenerator<ReadBatch, number>;
}

interface UnitPoolOptions {
  /** Rows of a batch for the model, where the workers have one; it may change. */
  readonly batchRows?: (() => number) | undefined;
  /** Called once for each unit that is needed and was not read to its end. */
  readonly onFailure?: ((failure: UnitFailure) => void) | undefined;
}

/** One unit is read and one waits, so that a worker never waits for the main thread. */
const unitsPerWorker = 2;

interface Job {
  readonly id: number;
  readonly unit: Unit;
  /** See `Unit.group`. */
  readonly group: string;
  readonly request: UnitRequest;
  /** Another worker gets the job only while fewer workers than this have jobs. */
  readonly maxWorkers: number;
  worker: PoolWorker | undefined;
  /** Set while a worker has the job. */
  cancel: (() => void) | undefined;
  readonly arrived: SentRows[];
  hasEnded: boolean;
  hasFailed: boolean;
  isCancelled: boolean;
  /** A batch came, or the job has ended. */
  readonly changed: Condition;
}

interface PoolWorker {
  readonly client: RpcClient<UnitProtocol>;
  readonly jobs: Set<Job>;
  /** The group of the unit that it was given last. */
  group: string | undefined;
}

interface Pool extends UnitPoolOptions {
  readonly workers: readonly PoolWorker[];
  /** Jobs that no worker has, in the order in which their rows are needed, so that workers read rows that are due first. */
  readonly waiting: Job[];
  readonly jobs: Set<Job>;
  nextId: number;
  isBroken: boolean;
}

/** @param ports to workers that serve units */
export function openUnitPool(ports: readonly WorkerPort[], options: UnitPoolOptions = {}): UnitPool {
  const workers: PoolWorker[] = [];
  const pool: Pool = { ...options, workers, waiting: [], jobs: new Set(), nextId: 0, isBroken: false };
  for (const port of ports) {
    const client = openRpcClient<UnitProtocol>(port, {
      doing: "reading units",
      onNotice: {},
      onBroken(error) {
        breakDown(pool, error);
      },
    });
    workers.push({ client, jobs: new Set(), group: undefined });
  }
  return {
    async *read(units, request, most = workers.length) {
      let due = units[0]?.rowStart ?? 0;
      const jobs = pool.isBroken ? [] : units.map((unit) => addJob(pool, unit, { request, maxWorkers: most }));
      assign(pool);
      try {
        for (const job of jobs) {
          due = yield* rowsOf(pool, job);
          if (due !== job.unit.rowEnd) {
            reportFailure(pool, job, {
              kind: "defect",
              message: `the rows of a unit end with row ${due}, ${job.unit.rowEnd} were due`,
            });
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

function addJob(
  pool: Pool,
  unit: Unit,
  { request, maxWorkers }: { readonly request: UnitRequest; readonly maxWorkers: number },
): Job {
  const id = pool.nextId;
  pool.nextId += 1;
  const job: Job = {
    id,
    unit,
    group: unit.group ?? String(id),
    request,
    maxWorkers,
    worker: undefined,
    cancel: undefined,
    arrived: [],
    hasEnded: false,
    hasFailed: false,
    isCancelled: false,
    changed: createCondition(),
  };
  pool.jobs.add(job);
  pool.waiting.push(job);
  return job;
}

/** First to those that have the fewest. */
function assign(pool: Pool): void {
  for (let next = nextJob(pool); next !== undefined; next = nextJob(pool)) {
    const { worker, place } = next;
    const [job] = pool.waiting.splice(place, 1) as [Job];
    job.worker = worker;
    worker.jobs.add(job);
    worker.group = job.group;
    start(pool, job, worker);
  }
}

function nextJob(pool: Pool): { readonly worker: PoolWorker; readonly place: number } | undefined {
  const busy = pool.workers.filter(({ jobs }) => jobs.size > 0).length;
  for (const worker of pool.workers.toSorted((one, other) => one.jobs.size - other.jobs.size)) {
    const place = worker.jobs.size < unitsPerWorker ? placeOfNext(pool, worker) : -1;
    if (place >= 0 && (worker.jobs.size > 0 || busy < (pool.waiting[place]?.maxWorkers ?? 0))) {
      return { worker, place };
    }
  }
  return undefined;
}

/**
 * The index in `waiting` of a worker's next job: one of the row group that it has open; else one of a row group that no
 * worker has; else the first. But no job whose rows come before those that the worker is at: it may have to wait until
 * these are collected, and the rows that are due would wait behind them for ever. -1: there is none.
 */
function placeOfNext({ workers, waiting }: Pool, { group, jobs }: PoolWorker): number {
  const last = Math.max(-1, ...Array.from(jobs, ({ id }) => id));
  const taken = new Set(workers.map((worker) => worker.group));
  const isLater = ({ id }: Job): boolean => id > last;
  const own = waiting.findIndex((job) => job.group === group && isLater(job));
  const free = own < 0 ? waiting.findIndex((job) => !taken.has(job.group) && isLater(job)) : own;
  return free < 0 ? waiting.findIndex((job, place) => place === 0 && isLater(job)) : free;
}

function start(pool: Pool, job: Job, { client }: PoolWorker): void {
  const { unit, request } = job;
  const call = client.call("read", { body: { unit, ...request } }, (rows) => {
    if (job.hasEnded) {
      return; // another worker broke: no worker is trusted from then on
    }
    if (job.isCancelled) {
      releaseRows(pool, job, rows);
    } else {
      job.arrived.push(rows);
      job.changed.notify();
    }
  });
  job.cancel = call.cancel;
  const end = (failure: UnitFailure | undefined): void => {
    if (failure !== undefined) {
      reportFailure(pool, job, failure);
    }
    endJob(pool, job);
    assign(pool);
  };
  void call.result.then(end, (error: unknown) => {
    end({ kind: "defect", message: messageOf(error) });
  });
}

/** Reports a failure once a unit, and only where its rows are needed. */
function reportFailure(pool: Pool, job: Job, failure: UnitFailure): void {
  if (!job.isCancelled && !job.hasFailed) {
    job.hasFailed = true;
    pool.onFailure?.(failure);
  }
}

function endJob(pool: Pool, job: Job): void {
  job.hasEnded = true;
  job.worker?.jobs.delete(job);
  pool.jobs.delete(job);
  job.changed.notify();
}

function releaseRows({ batchRows }: Pool, { worker }: Job, { buffers, bytes }: SentRows): void {
  const body = { buffers, bytes, batchRows: batchRows?.() };
  worker?.client.notify("released", { body, transfer: buffers });
}

/** After one worker is gone, none is trusted: the main thread reads all units. */
function breakDown(pool: Pool, { message, cause }: Error): void {
  pool.isBroken = true;
  const why = cause === undefined ? message : `${message}: ${messageOf(cause)}`;
  for (const job of pool.jobs) {
    reportFailure(pool, job, { kind: "worker_gone", message: why });
    endJob(pool, job);
  }
  pool.waiting.length = 0;
}

function cancel(pool: Pool, job: Job): void {
  for (const message of job.arrived.splice(0)) {
    releaseRows(pool, job, message);
  }
  if (job.hasEnded) {
    return;
  }
  job.isCancelled = true;
  if (job.worker === undefined) {
    pool.waiting.splice(pool.waiting.indexOf(job), 1);
    endJob(pool, job);
  } else {
    job.cancel?.();
  }
}

async function* rowsOf(pool: Pool, job: Job): AsyncGenerator<ReadBatch, number> {
  let due = job.unit.rowStart;
  for (;;) {
    const message = job.arrived.shift();
    if (message === undefined) {
      if (job.hasEnded) {
        return due;
      }
      await job.changed.wait();
      continue;
    }
    const { rowStart, batch } = message;
    try {
      if (rowStart !== due || rowStart + rowsRead(batch) > job.unit.rowEnd) {
        return due;
      }
      due += rowsRead(batch);
      yield batch;
    } finally {
      releaseRows(pool, job, message);
    }
  }
}
