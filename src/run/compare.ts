import {
  type Agreement,
  compareRows,
  matchColumns,
  measure,
  type Measures,
  mergeAgreements,
  type MatchedColumns,
} from "../checks/agreement/agreement.js";
import { gatherColumn } from "../columnar/column-builder.js";
import type { NamedColumn, RejectedRow } from "../columnar/types.js";
import type { Engine } from "../engine/port.js";
import type { Decoder } from "../formats/port.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import type { JobContext } from "../scoring/context.js";
import { describeFaults } from "../scoring/rejects.js";
import { openSliceReader, type SliceReader } from "../scoring/workers/slice-reader.js";
import { bindingCompared, type ComparedModel } from "./planning/compared-model.js";
import { wholeInput } from "./planning/input.js";
import { planRun } from "./planning/planning.js";
import { readShards, type SeenShards } from "./planning/read-shards.js";
import { openScorer, predictedColumns, type ScoredSpan, type SpanScorer } from "./timed-scorer.js";

/** The comparison of two models on the same rows. */
export interface Comparison {
  readonly rows: {
    /** The number of rows of the input; of its first rows, which were read; and of rows that both models scored. */
    readonly input: number;
    readonly read: number;
    readonly compared: number;
    /** The number of rows that only one of the models could score. */
    readonly onlyOne: number;
    readonly onlyOther: number;
  };
  readonly one: ModelSpeed;
  readonly other: ModelSpeed;
  readonly apart: MatchedColumns["apart"];
  readonly columns: ReadonlyMap<string, Measures>;
  /** The shard, the row in it and the key columns of each row that is listed among the rows that differ most. */
  readonly keys: ReadonlyMap<number, Pick<RejectedRow, "shard" | "row" | "columns">>;
}

export interface ModelSpeed {
  /** The model as messages name it. */
  readonly name: string;
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly provider: string;
  readonly batchRows: number;
  /**
   * The speed of all sessions together, from the median time of a batch inside the model; undefined: no batch was
   * scored.
   */
  readonly rowsPerSecond: number | undefined;
}

export interface CompareOptions {
  readonly one: ComparedModel;
  readonly other: ComparedModel;
  /** The limit of rows to score, from the beginning of the input. */
  readonly limit: number;
  /** The largest difference of two numbers that count as equal. */
  readonly tolerance: number;
}

/** The number of rows that one model scores before the other model's turn. */
const turnRows = 16_384;
/** The time inside each model to measure. A small input is scored several times, until this time is reached. */
const measuredMs = 300;
const mostRounds = 20;
/** The time after which no further round begins. */
const repeatedMs = 2000;

interface Tools extends Pick<CompareOptions, "limit" | "tolerance"> {
  readonly decoder: Decoder;
  readonly reader: SliceReader;
  readonly shards: SeenShards;
  readonly listed: Parameters<typeof planRun>[1]["listed"];
}

interface OpenModel {
  readonly engine: Engine;
  readonly plan: Plan;
  readonly scorer: SpanScorer;
}

/**
 * Scores the first rows of the job's input with two models, in turns, and compares the predictions. Writes nothing.
 * Models on a GPU are scored one after the other, because both may not fit into its memory, and a process can have only
 * one session on WebGPU. The predictions of the first model are held until the second one has scored the rows.
 */
export async function compareModels(given: JobContext, options: CompareOptions): Promise<Comparison> {
  const context = comparingContext(given);
  const { limit, tolerance, one, other } = options;
  const listing = await wholeInput(context);
  await using decoder = await context.openDecoder(listing.folders);
  const shards = await readShards(context, decoder, listing.shards);
  await using reader = openSliceReader({ decoder, ...context.decodeWorkers, memory: context.memory });
  const tools: Tools = { decoder, reader, shards, listed: listing.shards, limit, tolerance };
  const pairs = createPairs(tolerance);
  const openOn = async (model: ComparedModel, engine: Engine): Promise<OpenModel> =>
    await openModel(context, tools, { model, engine });
  const { providers } = context.spec.engine;
  const isTogether = providers !== "auto" && providers[0] === "cpu";
  let scored: Scored | undefined;
  let found: readonly [ModelSpeed, ModelSpeed];
  if (isTogether) {
    await using first = await context.openEngine(one.model, { inputBytes: Number.POSITIVE_INFINITY });
    await using second = await context.openEngine(other.model, { inputBytes: Number.POSITIVE_INFINITY });
    const models = [await openOn(one, first), await openOn(other, second)] as const;
    await scoreTurns(context, models, pairs.add);
    found = [speedOf(one, models[0]), speedOf(other, models[1])];
    scored = models[0];
  } else {
    const alone = async (model: ComparedModel, side: Side): Promise<ModelSpeed> => {
      await using engine = await context.openEngine(model.model, { inputBytes: Number.POSITIVE_INFINITY });
      const opened = await openOn(model, engine);
      scored ??= opened;
      await scoreTurns(context, [opened], (span, _side, scorer, rows) => pairs.add(span, side, scorer, rows));
      return speedOf(model, opened);
    };
    found = [await alone(one, 0), await alone(other, 1)];
  }
  const { agreement, apart, counts } = pairs.end();
  const columns = new Map([...agreement].map(([name, column]) => [name, measure(column)] as const));
  return {
    rows: { input: shards.rows, read: Math.min(limit, shards.rows), ...counts },
    one: found[0],
    other: found[1],
    apart,
    columns,
    keys: scored === undefined ? new Map() : await keysOf(context, tools, { columns, scored }),
  };
}

type Scored = Pick<OpenModel, "scorer" | "plan">;

/**
 * Returns the context for a comparison: rows that cannot be scored are left out, there are no checks, and a span is a
 * turn.
 */
function comparingContext(given: JobContext): JobContext {
  const { checks: _checks, challenger: _challenger, reuse: _reuse, ...spec } = given.spec;
  return {
    ...given,
    challenger: undefined,
    spec: {
      ...spec,
      on_bad_row: "reject",
      max_rejects: "100%",
      commit_rows: turnRows,
      output: { ...spec.output, lineage: false },
    },
  };
}

async function openModel(
  context: JobContext,
  { decoder, reader, shards, listed, limit }: Tools,
  { model, engine }: { readonly model: ComparedModel; readonly engine: Engine },
): Promise<OpenModel> {
  await engine.local?.opened();
  const runId = runIdOf(context.spec.name, context.spec.params, context.sha256);
  const loaded = Promise.resolve(engine);
  const input = { runId, listed, decoder, resolved: model, engine: loaded, shards };
  const whole = await bindingCompared(model, () => planRun(context, input));
  const plan = { ...whole, input: { ...whole.input, rows: Math.min(whole.input.rows, limit) } };
  return { engine, plan, scorer: await openScorer(context, { plan, engine, decoder, reader }) };
}

type Side = 0 | 1;
type AddSpan = (index: number, side: Side, scorer: SpanScorer, rows: ScoredSpan) => void;

/** Scores all spans with both models in turns. Each model first scores a span that is not measured. */
async function scoreTurns({ signal, nowMs }: JobContext, models: readonly OpenModel[], add: AddSpan): Promise<void> {
  const [first] = models;
  const spans = first === undefined ? 0 : spanCount(first.plan);
  const scorers = models.map(({ scorer }, index) => ({ scorer, side: index as Side }));
  for (const { scorer } of spans === 0 ? [] : scorers) {
    await scorer.score(0);
    scorer.restart();
  }
  const startedMs = nowMs();
  const isMeasured = (): boolean =>
    nowMs() - startedMs >= repeatedMs || scorers.every(({ scorer }) => scorer.time.ms >= measuredMs);
  for (let round = 0; round < mostRounds && (round === 0 || !isMeasured()); round += 1) {
    for (let index = 0; index < spans; index += 1) {
      // The models take turns at being first, so that neither always has the warmer cache.
      for (const { scorer, side } of (round + index) % 2 === 0 ? scorers : scorers.toReversed()) {
        signal.throwIfAborted();
        const rows = await scorer.score(index);
        if (round === 0) {
          add(index, side, scorer, rows);
        }
      }
    }
  }
}

function speedOf({ model }: ComparedModel, { engine, scorer }: OpenModel): ModelSpeed {
  const { msPerRow = 0 } = scorer.time;
  const sessions = engine.local?.sessions ?? 1;
  return {
    name: model.name,
    sha256: model.sha256,
    sizeBytes: model.sizeBytes,
    provider: engine.provider,
    batchRows: scorer.batchRows,
    rowsPerSecond: msPerRow === 0 ? undefined : Math.round((sessions * 1000) / msPerRow),
  };
}

interface Counts {
  compared: number;
  onlyOne: number;
  onlyOther: number;
}

interface Pairs {
  readonly add: AddSpan;
  end(): { readonly agreement: Agreement; readonly apart: MatchedColumns["apart"]; readonly counts: Counts };
}

interface HeldSpan {
  readonly side: Side;
  readonly scorer: SpanScorer;
  readonly rows: ScoredSpan;
}

/** Compares a span once both models have scored it. */
function createPairs(tolerance: number): Pairs {
  const held = new Map<number, HeldSpan>();
  const counts: Counts = { compared: 0, onlyOne: 0, onlyOther: 0 };
  let matched: MatchedColumns = { compared: [], apart: [] };
  let agreement: Agreement | undefined;
  return {
    add(index, side, scorer, rows) {
      const before = held.get(index);
      if (before === undefined) {
        held.set(index, { side, scorer, rows });
        return;
      }
      held.delete(index);
      const now = { side, scorer, rows };
      const [one, other] = side === 1 ? [before, now] : [now, before];
      matched = matchColumns(predictedColumns(one.scorer.contract), predictedColumns(other.scorer.contract));
      const common = commonRows(one.rows, other.rows);
      counts.compared += common.rowNumbers.length;
      counts.onlyOne += one.rows.rowCount - common.rowNumbers.length;
      counts.onlyOther += other.rows.rowCount - common.rowNumbers.length;
      const more = compareRows(common, { compared: matched.compared, tolerance });
      agreement = agreement === undefined ? more : mergeAgreements(agreement, more);
    },
    end: () => ({ agreement: agreement ?? new Map(), apart: matched.apart, counts }),
  };
}

/** Returns the rows that both models scored. */
function commonRows(one: ScoredSpan, other: ScoredSpan): Parameters<typeof compareRows>[0] {
  const [ofOne, ofOther] = [new Set(one.rowNumbers), new Set(other.rowNumbers)];
  return {
    rowNumbers: one.rowNumbers.filter((row) => ofOther.has(row)),
    one: columnsOf(one, ofOther),
    other: columnsOf(other, ofOne),
  };
}

/** Returns the columns of the rows with these numbers. */
function columnsOf({ rowNumbers, rowCount, columns }: ScoredSpan, numbers: ReadonlySet<number>): NamedColumn[] {
  const indices = Uint32Array.from(rowNumbers, (_row, index) => index).filter((index) =>
    numbers.has(rowNumbers[index] as number),
  );
  return indices.length === rowCount
    ? [...columns]
    : columns.map(({ name, type, column }) => ({ name, type, column: gatherColumn(type, column, indices) }));
}

/** Reads the key columns of the rows that differ most. */
async function keysOf(
  { source }: JobContext,
  { decoder }: Tools,
  { columns, scored }: { readonly columns: Comparison["columns"]; readonly scored: Scored },
): Promise<Comparison["keys"]> {
  const { contract, spans } = scored.scorer;
  const numbers = [...new Set([...columns.values()].flatMap(({ most }) => most.map(({ row }) => row)))];
  const rows = numbers.toSorted((one, other) => one - other);
  // `describeFaults` returns the shard and the carried columns of any rows.
  const faults = rows.map((row) => ({ reason: "model" as const, column: undefined, row, value: undefined }));
  const found = await describeFaults({ spans, decoder, source, contract, kept: "" }, faults);
  return new Map(found.map((row, index) => [rows[index] as number, row]));
}
