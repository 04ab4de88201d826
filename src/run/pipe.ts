import { createColumnBuilder } from "../columnar/columns.js";
import { type Contract, outputColumns } from "../binding/contract.js";
import type { RecordBatch, RejectedRow } from "../columnar/types.js";
import type { Decoder, RowStream, ShardFile, StreamedBatch } from "../formats/port.js";
import type { Engine } from "../engine/port.js";
import type { FoundModel } from "../models/port.js";
import { runIdOf } from "../plan/identity.js";
import type { PipeReport } from "../report/report.js";
import type { RowWriter } from "../sink/port.js";
import type { JobSpec } from "../spec/job-spec.js";
import { JobError } from "../util/errors.js";
import { type DecodedRows, rowsRead } from "../scoring/read.js";
import { openBatchLimit, warmUp } from "../scoring/batch-size.js";
import type { ScoringContext, ShardFiles } from "../scoring/context.js";
import { bindFirstShard } from "./bind-model.js";
import { warnOfModel } from "./planning.js";
import { seenSchema } from "./read-shards.js";
import { type RejectLimit, createRejectBudget } from "../scoring/rejects.js";
import { openPinnedModel } from "./model.js";
import { type SpanTarget, scorePieces } from "../scoring/score.js";
import type { PlannedShard, Span } from "../plan/plan.js";
import { awaitedLater } from "../util/promises.js";

/** The context of scoring a stream. The function that opens a resource closes it. */
export interface PipeContext extends ScoringContext {
  readonly input: RowStream;
  readonly output: RowWriter;
  /** Opens the decoder of the stream's batches. */
  readonly openDecoder: () => Promise<Decoder>;
  /** Is called with rejected rows. */
  readonly onRejected: (rows: readonly RejectedRow[]) => Promise<void>;
}

/**
 * Scores a stream of record batches: for each batch that comes in one goes out, in order, as soon as it is scored. The
 * output gets its end marker only if the input has had one.
 * @throws JobError
 */
export async function runPipe(context: PipeContext): Promise<PipeReport> {
  const { signal, nowMs, input } = context;
  const startedMs = nowMs();
  try {
    refuseBudget(context);
    const model = await openPinnedModel(context);
    await using engine = await context.openEngine(model.model, { inputBytes: Number.POSITIVE_INFINITY });
    await using decoder = await context.openDecoder();
    const rows = await scoreStream(context, { model, engine, decoder });
    const { rowsScored, rowsRejected, rowsFiltered } = context.record.counts;
    const seconds = (nowMs() - startedMs) / 1000;
    return { rowsRead: rows, rowsScored, rowsRejected, rowsFiltered, seconds };
  } catch (error) {
    signal.throwIfAborted(); // the abort caused the failure
    throw error;
  } finally {
    input[Symbol.dispose]();
  }
}

/** A pipe has no place that says what was spent, or keeps what was paid for. @throws JobError SPEC_INVALID */
function refuseBudget({ spec: { model }, where }: PipeContext): void {
  const { max_tokens: tokens, max_cost: cost } = model.budget ?? {};
  if (tokens !== undefined || cost !== undefined) {
    throw new JobError(
      "SPEC_INVALID",
      `reading ${where(["model", "budget"])}: a pipe keeps no answers, so the next pipe could not count what this one has spent`,
      {
        hint: "use run, which counts what all attempts spend",
      },
    );
  }
}

const unfinished = "What was written so far has no end-of-stream marker";

interface StreamParts {
  readonly model: FoundModel;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

/** Scores all batches of the stream and returns how many rows came. */
async function scoreStream(context: PipeContext, parts: StreamParts): Promise<number> {
  const { spec, input, output, dateMs, sha256, onRejected } = context;
  const {
    model: { model },
    engine,
    decoder,
  } = parts;
  const contract = await bindStream(context, parts);
  await output.begin(outputColumns(contract));
  const batches = streamedBatches(input);
  const rows = (await batches.begin()) ? 1 : 0;
  const batchLimit = await openBatchLimit(context, { engine, contract, modelSha256: model.sha256 });
  const plan = { contract, commitRows: Number.MAX_SAFE_INTEGER };
  const sizer = await warmUp(context, { plan, engine, batchLimit, rows });
  const runId = runIdOf(spec.name, spec.params, sha256);
  const target: SpanTarget = {
    async commit({ index }, { rows: scored, rejects }) {
      await onRejected(rejects);
      await output.write(scored);
      batches.release(index);
      return "committed";
    },
  };
  const budget = createRejectBudget(rejectLimit(spec, { rows: undefined, already: 0 }));
  await scorePieces(
    context,
    {
      contract,
      engine,
      sizer,
      batchLimit,
      target,
      commits: 1, // one at a time keeps their order
      spanOf: () => batches.span,
      lineage: () => ({ runId, modelSha256: model.sha256, scoredAtMs: dateMs() }),
      rejects: { spans: batches, decoder, source: batches, contract, kept: unfinished },
      onReject: spec.on_bad_row === "reject" ? budget.spend : undefined,
      pieceBytes: context.memory.pieceBytes,
    },
    piecesOf(batches, decoder, contract),
  );
  createRejectBudget(rejectLimit(spec, { rows: batches.rows, already: context.record.counts.rowsRejected }));
  await output.end();
  return batches.rows;
}

/** Returns the limit of rejected rows. A percentage has no limit until the end, when the number of rows is known. */
function rejectLimit(
  { max_rejects: limit }: Pick<JobSpec, "max_rejects">,
  { rows, already }: { rows: number | undefined; already: number },
): RejectLimit {
  const unknown = rows === undefined && typeof limit === "string";
  const shownBy = "--rejects FILE keeps the rows";
  return { limit: unknown ? Number.POSITIVE_INFINITY : limit, rows: rows ?? 0, already, shownBy };
}

async function bindStream(context: PipeContext, { decoder, engine, model }: StreamParts): Promise<Contract> {
  const head = await context.input.head();
  const shard = { uri: head.name, sizeBytes: 0, fingerprint: "" };
  const source: ShardFiles = { open: () => Promise.resolve(withoutClosing(head)) };
  for await (const footer of decoder.footers([head])) {
    const seen = seenSchema(context.spec, { shard, name: head.name }, footer);
    const contract = await bindFirstShard({ ...context, source }, seen, { decoder, model: model.model, engine });
    warnOfModel(context, model, engine.signature);
    return contract;
  }
  throw new Error("a stream without a schema");
}

/** Decodes the batches of a stream. */
async function* piecesOf(
  batches: StreamedBatches,
  decoder: Decoder,
  projection: Contract,
): AsyncGenerator<DecodedRows> {
  for (let batch = await batches.next(); batch !== undefined; batch = await batches.next()) {
    const { file, rowStart, rowEnd } = batch;
    if (rowStart === rowEnd) {
      yield { rowStart, batch: emptyBatch(projection), shards };
    }
    let at = rowStart;
    for await (const rows of decoder.read([{ file, rowStart, rowEnd, projection, partitions: new Map() }])) {
      yield { rowStart: at, batch: rows, shards };
      at += rowsRead(rows);
    }
  }
}

/** A stream has no shards that could change while they are read. */
const shards: DecodedRows["shards"] = [];

function emptyBatch({ passthrough }: Contract): RecordBatch {
  const carried = passthrough.map(({ source }) => createColumnBuilder(source.type, 0).finish());
  return { rowCount: 0, inputs: [], carried };
}

/** The batches of a stream: each is a span, and a shard of its own, until it is released. */
interface StreamedBatches extends ShardFiles {
  /** The number of rows of all batches so far. */
  readonly rows: number;
  /** The span of the last batch. */
  readonly span: Span;
  /** Waits for the first batch. Returns whether there is one. */
  begin(): Promise<boolean>;
  /** Takes the next batch and starts to read the one after it; undefined at the end of the stream. */
  next(): Promise<StreamedBatch | undefined>;
  locate(row: number): { shard: PlannedShard; row: number };
  /** Releases a span's batch. */
  release(index: number): void;
}

interface HeldBatch {
  readonly batch: StreamedBatch;
  readonly span: Span;
  readonly shard: PlannedShard;
}

function streamedBatches(stream: RowStream): StreamedBatches {
  const source = readingAhead(stream.batches());
  const held = new Map<number, HeldBatch>();
  let last: Span = { index: -1, rowStart: 0, rowEnd: 0 };
  const find = (what: string, isIt: (taken: HeldBatch) => boolean): HeldBatch => {
    const found = [...held.values()].find(isIt);
    if (found === undefined) {
      throw new RangeError(`${what} is of no batch that is held`);
    }
    return found;
  };
  return {
    get rows() {
      return last.rowEnd;
    },
    get span() {
      return last;
    },
    begin: async () => (await source.look()) !== undefined,
    async next() {
      const batch = await source.take();
      if (batch === undefined) {
        return undefined;
      }
      const { file, rowStart, rowEnd } = batch;
      last = { index: last.index + 1, rowStart, rowEnd };
      const shard = { uri: file.name, sizeBytes: 0, fingerprint: "", rows: rowEnd - rowStart };
      held.set(last.index, { batch, span: last, shard });
      return batch;
    },
    locate(row) {
      const { shard } = find(`row ${row}`, ({ span }) => row >= span.rowStart && row < span.rowEnd);
      return { shard, row };
    },
    open(listed) {
      const { batch } = find("a shard", ({ shard }) => shard === listed);
      return Promise.resolve(withoutClosing(batch.file));
    },
    release(index) {
      held.get(index)?.batch.release();
      held.delete(index);
    },
  };
}

interface ReadingAhead<T> {
  /** The next item, which stays the next one. */
  look(): Promise<T | undefined>;
  /** Takes the next item, and starts to make the one after it. */
  take(): Promise<T | undefined>;
}

function readingAhead<T>(iterator: AsyncGenerator<T, void>): ReadingAhead<T> {
  const step = async (): Promise<T | undefined> => {
    const { value } = await iterator.next();
    return value ?? undefined;
  };
  let next: Promise<T | undefined> | undefined;
  const look = (): Promise<T | undefined> => (next ??= awaitedLater(step()));
  return {
    look,
    async take() {
      const taken = await look();
      next = taken === undefined ? next : awaitedLater(step());
      return taken;
    },
  };
}

/** A file that is closed by its owner, not by those who open it. */
function withoutClosing(file: ShardFile): ShardFile & AsyncDisposable {
  return { ...file, [Symbol.asyncDispose]: () => Promise.resolve() };
}
