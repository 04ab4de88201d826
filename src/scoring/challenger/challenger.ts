import { type Contract, outputTensors } from "../../binding/contract.js";
import type { SharedProjection } from "../../binding/shared-projection.js";
import type { AgreementPlan } from "../../checks/agreement/span-agreement.js";
import type { Engine } from "../../engine/port.js";
import { createPacker, type FeatureBatch, type Packer } from "../../packing/packer.js";
import type { RowRange } from "../../packing/input-target.js";
import type { Predictions, ScoredBatch } from "../../packing/scored-batch.js";
import { messageOf } from "../../util/errors.js";
import type { BatchLimit } from "../batch-limit.js";
import type { BatchSizer } from "../batch-size.js";
import type { Log } from "../context.js";
import { createInFlight, type InFlight } from "../in-flight.js";
import { type BatchOptions, scoreBatch, tensorsByName } from "../score-batch.js";
import { predictedParts } from "../predicted-parts.js";
import { compareOutputs, notRunning } from "./compare-outputs.js";
import { type ChallengedRows, createChallengedRows } from "./challenged-rows.js";
import type { Challenger, ChallengerPiece, PredictionKeeper } from "./port.js";

export interface ChallengerParts {
  /** The challenger as messages name it. */
  readonly name: string;
  readonly contract: Contract;
  readonly engine: Engine;
  readonly sizer: BatchSizer;
  readonly batchLimit: BatchLimit;
  readonly shared: SharedProjection;
  readonly agreement: AgreementPlan;
  /** Output columns whose values are shown for the rows that differ most. */
  readonly keys: readonly string[];
  /** Default: the predictions are not kept. */
  readonly keeper?: PredictionKeeper | undefined;
}

/** Scores rows with the challenger until it fails: its failure ends no run. */
export function createChallenger({ log }: { readonly log: Pick<Log, "warn"> }, parts: ChallengerParts): Challenger {
  const { contract, engine, sizer, shared } = parts;
  const inFlight = createInFlight(engine.concurrency);
  const packer = createPacker({
    contract,
    batchRows: () => sizer.rows,
    onFault: ({ row, reason }) => scorer.filled?.miss(row, reason),
  });
  const scorer: Scorer = { ...parts, log, inFlight, packer, isStopped: false, filled: undefined };
  const tensors = outputTensors(contract);
  return {
    shared,
    inWorkers:
      engine.local?.isGuest === true
        ? () => (scorer.isStopped ? undefined : { contract, tensors, batchRows: sizer.rows })
        : undefined,
    settled: () => inFlight.settled(),
    openPiece: (piece) => openPiece(scorer, createChallengedRows(contract, piece)),
  };
}

/** A challenger that scores no row in this attempt. */
export function absentChallenger(shared: Challenger["shared"]): Challenger {
  return {
    shared,
    settled: () => Promise.resolve(),
    openPiece: () => ({
      bytes: 0,
      take: () => Promise.resolve(),
      end: () => Promise.resolve(),
      compare: (_champion, output) => Promise.resolve(notRunning(output)),
    }),
  };
}

interface Scorer extends ChallengerParts {
  readonly log: Pick<Log, "warn">;
  readonly inFlight: InFlight;
  readonly packer: Packer;
  /** It has failed, and is not called again. */
  isStopped: boolean;
  /** The rows that are packed now. */
  filled: ChallengedRows | undefined;
}

function openPiece(scorer: Scorer, rows: ChallengedRows): ChallengerPiece {
  const { packer, shared } = scorer;
  return {
    get bytes() {
      return rows.bytes;
    },
    take: (batch, range) =>
      guarded(scorer, rows, async () => {
        scorer.filled = rows;
        rows.take(batch, range, shared.projection);
        if (batch.challenged !== undefined) {
          await scoreRest(scorer, rows); // the packer takes consecutive rows only
          takePredictions(scorer, rows, { predictions: batch.challenged, range });
          return;
        }
        for (const full of packer.push(challengersInputs(shared, batch), range)) {
          await score(scorer, rows, full);
        }
      }),
    end: () => guarded(scorer, rows, () => scoreRest(scorer, rows)),
    async compare(champion, output) {
      const { agreement, kept } = await compareOutputs(scorer, { champion, output, rows });
      await scorer.keeper?.keep(champion.span, kept);
      return agreement;
    },
  };
}

/** Does work of a piece. If it fails, the piece has not all of its predictions, and the challenger stops. */
async function guarded(scorer: Scorer, rows: ChallengedRows, work: () => Promise<void>): Promise<void> {
  try {
    if (scorer.isStopped) {
      rows.abandon();
    } else {
      await work();
    }
  } catch (error) {
    rows.abandon();
    if (!scorer.isStopped) {
      scorer.isStopped = true;
      scorer.log.warn(`the challenger ${scorer.name} stops scoring in this attempt: ${messageOf(error)}`);
    }
  }
}

async function scoreRest(scorer: Scorer, rows: ChallengedRows): Promise<void> {
  const rest = scorer.packer.flush();
  if (rest !== undefined) {
    await score(scorer, rows, rest);
  }
}

interface WorkersPredictions {
  readonly predictions: readonly Predictions[];
  readonly range: RowRange;
}

/** Takes predictions of a worker that has scored a batch. */
function takePredictions(
  { contract, sizer }: Scorer,
  rows: ChallengedRows,
  { predictions, range }: WorkersPredictions,
): void {
  const tensors = outputTensors(contract);
  for (const { part, isBegun, outputs, ...taken } of predictedParts(predictions, range)) {
    if (isBegun) {
      sizer.took(part.packedRows, part.ms);
    }
    rows.predict(tensorsByName(tensors, outputs), taken);
  }
}

/** Starts to score a batch, once fewer batches than the bound are under way. */
async function score(scorer: Scorer, rows: ChallengedRows, batch: FeatureBatch): Promise<void> {
  const { done } = await scorer.inFlight.start(() => guarded(scorer, rows, () => predict(scorer, rows, batch)));
  rows.waitFor(done);
}

/** A batch with the challenger's inputs. Workers that scored the batch sent those alone. */
function challengersInputs({ places, sent }: SharedProjection, batch: ScoredBatch): ScoredBatch {
  const indices = batch.predictions === undefined ? places : places.map((place) => sent.indexOf(place));
  return { ...batch, inputs: indices.flatMap((index) => batch.inputs[index] ?? []) };
}

async function predict(
  { contract, engine, sizer, batchLimit, packer }: Scorer,
  rows: ChallengedRows,
  batch: FeatureBatch,
): Promise<void> {
  const tensors = outputTensors(contract);
  const { fixedBatchRows } = contract;
  const onDone: BatchOptions["onDone"] = (done, response) => {
    sizer.took(done.packedRows, response.ms);
    if (done === batch) {
      packer.recycle(response.inputs); // those of a part have sizes of their own
    }
    rows.predict(tensorsByName(tensors, response.outputs), done);
  };
  const onRow: BatchOptions["onRow"] = (row, { message }) => {
    rows.refuse(row, message);
  };
  await scoreBatch({ engine, batchLimit, tensors, fixedBatchRows, onDone, onRow }, batch);
}
