import { createColumnBuilder } from "../columns/columns.js";
import { type Contract, outputColumns } from "../models/binding/contract.js";
import type { RecordBatch, RejectedRow, SpanOutput } from "../columns/types.js";
import type { Decoder, RowStream, ShardFile, StreamedBatch } from "../formats/format.js";
import type { Engine } from "../models/engine.js";
import type { FoundModel } from "../models/places/place.js";
import type { PipeReport } from "../report/report.js";
import type { RowWriter } from "../targets/target.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { DecodedRows } from "../flow/read.js";
import { rowsRead } from "../flow/pack/select-rows.js";
import { measureEngine } from "../flow/batch-size.js";
import type { Models, PlacedSpec, Reporter, ShardFiles } from "../flow/opened-job.js";
import { bindFirstShard } from "./model.js";
import { openPinnedModel } from "./find-model.js";
import { warnOfModel } from "./planning.js";
import { seenSchema } from "./input.js";
import { createRejectBudget, type RejectLimit } from "../flow/rejects.js";
import { scorePieces } from "../flow/score.js";
import type { ListedShard } from "./plan/compare.js";
import type { PlannedShard, RunId, Span } from "./plan/plan.js";
import type { MemoryBudget } from "../base/memory-budget.js";
import { awaitedLater } from "../base/promises.js";

/** A stream, where its predictions go, and what scores it. The function that opens a resource closes it. */
export interface OpenedPipe {
  readonly job: PlacedSpec;
  readonly runId: RunId;
  readonly models: Models;
  readonly reporter: Reporter;
  readonly memory: MemoryBudget;
  /** Aborted by a signal; its reason is the JobError to end with. */
  readonly signal: AbortSignal;
  readonly nowMs: () => number;
  readonly dateMs: () => number;
  readonly input: RowStream;
  readonly output: RowWriter;
  readonly openDecoder: () => Promise<Decoder>;
  readonly onRejected: (rows: readonly RejectedRow[]) => Promise<void>;
}

/**
 * Scores a stream of record batches: for each batch that comes in one goes out, in order, as soon as it is scored. The
 * output gets its end marker only if the input has had one.
 */
export async function runPipe(pipe: OpenedPipe): Promise<PipeReport> {
  const { models, signal, nowMs, input } = pipe;
  const startedMs = nowMs();
  try {
    const model = await openPinnedModel(pipe.job, models);
    await using engine = await models.openEngine(model.model, { inputBytes: Number.POSITIVE_INFINITY });
    await using decoder = await pipe.openDecoder();
    const rows = await scoreStream(pipe, { model, engine, decoder });
    const { rowsScored, rowsRejected, rowsFiltered } = pipe.reporter.record.counts;
    const seconds = (nowMs() - startedMs) / 1000;
    return { rowsRead: rows, rowsScored, rowsRejected, rowsFiltered, seconds };
  } catch (error) {
    signal.throwIfAborted(); // the abort caused the failure
    throw error;
  } finally {
    input[Symbol.dispose]();
  }
}

const unfinished = "What was written so far has no end-of-stream marker";

interface StreamParts {
  readonly model: FoundModel;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

/** A batch of the stream, which is a span, and a shard of its own, until it is released. */
interface HeldBatch {
  readonly batch: StreamedBatch;
  readonly span: Span;
  readonly shard: PlannedShard;
}

async function scoreStream(pipe: OpenedPipe, parts: StreamParts): Promise<number> {
  const {
    job: { spec },
    runId,
    input,
    output,
    dateMs,
    reporter,
    memory,
    onRejected,
  } = pipe;
  const { model, engine, decoder } = parts;
  const { sha256: modelSha256 } = model.model;
  const contract = await bindStream(pipe, parts);
  await output.begin(outputColumns(contract));

  const batches = input.batches();
  const step = async (): Promise<StreamedBatch | undefined> => (await batches.next()).value ?? undefined;
  let next = await step();
  const plan = { contract, commitRows: Number.MAX_SAFE_INTEGER, model: { sha256: modelSha256 } };
  const measured = await measureEngine(pipe.models.batchLimits, reporter.log, plan, {
    engine,
    batchSize: spec.engine.batch_size,
    rows: next === undefined ? 0 : 1,
  });
  const held = new Map<number, HeldBatch>();
  let last: Span = { index: -1, rowStart: 0, rowEnd: 0 };
  const heldBatch = (what: string, isIt: (taken: HeldBatch) => boolean): HeldBatch => {
    const taken = [...held.values()].find(isIt);
    if (taken === undefined) {
      throw new RangeError(`${what} is of no batch that is held`);
    }
    return taken;
  };

  /** Decodes the batches; the one after a batch is read meanwhile. */
  async function* pieces(): AsyncGenerator<DecodedRows> {
    while (next !== undefined) {
      const batch: StreamedBatch = next;
      const { file, rowStart, rowEnd } = batch;
      last = { index: last.index + 1, rowStart, rowEnd };
      const shard = { uri: file.name, sizeBytes: 0, fingerprint: "", rows: rowEnd - rowStart };
      held.set(last.index, { batch, span: last, shard });
      const following = awaitedLater(step());
      if (rowStart === rowEnd) {
        yield { rowStart, batch: emptyBatch(contract), shards };
      }
      let at = rowStart;
      const request = { file, rowStart, rowEnd, projection: contract, partitions: new Map<string, string>() };
      for await (const rows of decoder.read([request])) {
        yield { rowStart: at, batch: rows, shards };
        at += rowsRead(rows);
      }
      next = await following;
    }
  }

  const budget = createRejectBudget(rejectLimit(spec, { rows: undefined, already: 0 }));
  const options = {
    contract,
    engine,
    ...measured,
    target: {
      async commit({ index }: Span, { rows: scored, rejects }: SpanOutput) {
        await onRejected(rejects);
        await output.write(scored);
        held.get(index)?.batch.release();
        held.delete(index);
        return "committed" as const;
      },
    },
    commits: 1, // one at a time keeps their order
    spanOf: () => last,
    lineage: () => ({ runId, modelSha256, scoredAtMs: dateMs() }),
    rejects: {
      spans: {
        locate: (row: number) => {
          const { shard } = heldBatch(`row ${row}`, ({ span }) => row >= span.rowStart && row < span.rowEnd);
          return { shard, row };
        },
      },
      source: {
        open: (listed: ListedShard) =>
          Promise.resolve(withoutClosing(heldBatch("a shard", ({ shard }) => shard === listed).batch.file)),
      },
      decoder,
      contract,
      kept: unfinished,
    },
    onReject: spec.on_bad_row === "reject" ? budget.spend : undefined,
    pieceBytes: memory.pieceBytes,
  };
  await scorePieces(pipe.signal, reporter, options, pieces());
  createRejectBudget(rejectLimit(spec, { rows: last.rowEnd, already: reporter.record.counts.rowsRejected }));
  await output.end();
  return last.rowEnd;
}

/** A stream has no shards that could change while they are read. */
const shards: DecodedRows["shards"] = [];

/** A percentage has no limit until the end, when the number of rows is known. */
function rejectLimit(
  { max_rejects: limit }: Pick<JobSpec, "max_rejects">,
  { rows, already }: { rows: number | undefined; already: number },
): RejectLimit {
  const unknown = rows === undefined && typeof limit === "string";
  const shownBy = "--rejects FILE keeps the rows";
  return { limit: unknown ? Number.POSITIVE_INFINITY : limit, rows: rows ?? 0, already, shownBy };
}

async function bindStream(
  { job, reporter, input }: OpenedPipe,
  { decoder, engine, model }: StreamParts,
): Promise<Contract> {
  const head = await input.head();
  const shard = { uri: head.name, sizeBytes: 0, fingerprint: "" };
  const source: ShardFiles = { open: () => Promise.resolve(withoutClosing(head)) };
  for await (const footer of decoder.footers([head])) {
    const seen = seenSchema(job.spec, { shard, file: head }, footer);
    const contract = await bindFirstShard(job, source, seen, { decoder, model: model.model, engine });
    warnOfModel(job.spec, reporter.log, model, engine.signature);
    return contract;
  }
  throw new Error("a stream without a schema");
}

function emptyBatch({ passthrough }: Contract): RecordBatch {
  const carried = passthrough.map(({ source }) => createColumnBuilder(source.type, 0).finish());
  return { rowCount: 0, inputs: [], carried };
}

/** A file that is closed by its owner, not by those who open it. */
function withoutClosing(file: ShardFile): Awaited<ReturnType<ShardFiles["open"]>> {
  return { ...file, partitions: new Map(), [Symbol.asyncDispose]: () => Promise.resolve() };
}
