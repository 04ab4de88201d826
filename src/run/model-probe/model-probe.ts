import { outputTensors } from "../../binding/contract.js";
import type { Engine, EngineResponse, UnversionedServer } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { ModelProbe, Plan, ProbedOutputs } from "../../plan/plan.js";
import { rowsOfSpans, spanCount } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import { JobError } from "../../util/errors.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";
import { copyInputs, findChange, inputsDigest, probedOutputs, type ProbedCall } from "./probe-values.js";

/** Rows whose predictions are compared. */
const probeRows = 16;
/** Rows that are read to find them, if many cannot be scored. */
const mostRowsRead = 256;

interface ProbeTools {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

/** The first rows of a run that the model scored. */
interface Recorded {
  readonly calls: readonly ProbedCall[];
  readonly inputs: string;
  readonly outputs: ProbedOutputs;
}

/**
 * Adds predictions of the run's first rows to a new plan, if the server names no version of its model: later predictions
 * of these rows show whether it is still the same model.
 * @throws JobError MODEL_INVALID if several servers predict different values
 */
export async function planProbe(context: JobContext, { plan, engine, decoder }: ProbeTools): Promise<Plan> {
  const { unversioned } = engine;
  if (unversioned === undefined || plan.input.rows === 0) {
    return plan;
  }
  const recorded = await recordRows(context, { plan, engine, decoder });
  if (recorded === undefined || recorded.calls.length === 0) {
    context.log.warn(
      "the server names no version of its model, and no row was found whose prediction could be compared: a change of the model during this run would not be noticed",
    );
    return plan;
  }
  const { calls, inputs, outputs } = recorded;
  const [first, ...others] = await replayAll(context, { plan, engine }, calls);
  if (first !== undefined && findChange(outputs, first.outputs) !== undefined && others.length === 0) {
    context.log.warn(
      "the server names no version of its model, and predicts other values when it is asked again: a change of the model during this run would not be noticed",
    );
    return plan;
  }
  for (const { url, outputs: found } of others) {
    const change = findChange(first?.outputs ?? outputs, found);
    if (change !== undefined) {
      throw new JobError(
        "MODEL_INVALID",
        `planning: ${url} predicts other values than ${first?.url ?? ""}: ${change}`,
        {
          hint: "serve the same model at each URL",
        },
      );
    }
  }
  const rows = Math.min(probeRows, ...Object.values(outputs).map((one) => one.length));
  return { ...plan, model: { ...plan.model, probe: { rows, inputs, outputs } } };
}

/** Compares the model with that of the plan, as often as it is asked. */
export interface ProbeCheck {
  /** @throws JobError MODEL_CHANGED */
  check(): Promise<void>;
}

/**
 * Compares the predictions of the run's first rows with those of the plan. undefined: the plan has none, or the rows
 * can no longer be read.
 * @throws JobError MODEL_CHANGED (66) if they differ
 */
export async function openProbe(context: JobContext, tools: ProbeTools): Promise<ProbeCheck | undefined> {
  const { plan, engine } = tools;
  const { probe } = plan.model;
  if (probe === undefined) {
    return undefined;
  }
  const recorded = await recordRows(context, tools);
  if (recorded === undefined || recorded.inputs !== probe.inputs) {
    context.log.warn(
      "the rows that show whether the server still has the planned model are no longer those of the plan: its predictions are not compared",
    );
    return undefined;
  }
  const { calls, outputs } = recorded;
  requireSame(plan, probe, { url: plan.model.uri, outputs });
  const check = async (): Promise<void> => {
    for (const one of await replayAll(context, { plan, engine }, calls)) {
      requireSame(plan, probe, one);
    }
  };
  if ((engine.unversioned?.length ?? 0) > 1) {
    await check();
  }
  context.log.info(`the predictions of ${count(probe.rows, "row")} are those of the planned model`);
  return { check };
}

interface ServerOutputs {
  readonly url: string;
  readonly outputs: ProbedOutputs;
}

function requireSame(plan: Plan, probe: ModelProbe, { url, outputs }: ServerOutputs): void {
  const change = findChange(probe.outputs, outputs);
  if (change !== undefined) {
    throw new JobError("MODEL_CHANGED", `comparing the model of ${url} with the plan: ${change}`, {
      hint: `serve the planned model of ${plan.model.uri} again and run the same command; or abandon this run with --new-run`,
      damage: { runId: plan.runId },
    });
  }
}

/** Scores the first rows of a run on the path of all rows. undefined: they cannot be read. */
async function recordRows(context: JobContext, { plan, engine, decoder }: ProbeTools): Promise<Recorded | undefined> {
  const calls: ProbedCall[] = [];
  let serverError: unknown;
  const recording: Engine = {
    signature: engine.signature,
    provider: engine.provider,
    concurrency: 1, // calls end in the order of their rows
    mostRows: engine.mostRows,
    traffic: engine.traffic,
    async run(request) {
      const response = await engine.run(request).catch((error: unknown) => {
        serverError = error;
        throw error;
      });
      if (response.kind === "done") {
        calls.push({ inputs: copyInputs(response.inputs), outputs: response.outputs });
      }
      return response;
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const rowsOfSpan = { ...plan, commitRows: probeRows };
  const spans = Math.min(spanCount(rowsOfSpan), mostRowsRead / probeRows);
  try {
    for (let from = 0; from < spans && rowsIn(calls) < probeRows; from += 1) {
      const ranges = [rowsOfSpans(rowsOfSpan, { from, to: from + 1 })];
      await scoreWithoutPublishing(context, { plan: rowsOfSpan, engine: recording, decoder, ranges }, () => undefined);
    }
  } catch (error) {
    if (serverError !== undefined || !(error instanceof JobError) || ![64, 65, 66].includes(error.exitCode)) {
      throw error;
    }
    context.log.debug(`the rows that are compared cannot be read: ${error.message}`);
    return undefined;
  }
  const outputs = outputsOf(context, plan, calls);
  return { calls, inputs: inputsDigest(calls, context.sha256), outputs };
}

function rowsIn(calls: readonly ProbedCall[]): number {
  return calls.reduce((sum, { inputs }) => sum + (inputs[0]?.dims[0] ?? 0), 0);
}

function outputsOf({ sha256 }: JobContext, { contract }: Plan, calls: readonly ProbedCall[]): ProbedOutputs {
  return probedOutputs(outputTensors(contract), calls, { rows: probeRows, sha256 });
}

/** Has each server that answers compute the recorded rows; if none does, any of them, after retries. */
async function replayAll(
  context: JobContext,
  { plan, engine }: Omit<ProbeTools, "decoder">,
  calls: readonly ProbedCall[],
): Promise<ServerOutputs[]> {
  const found: ServerOutputs[] = [];
  for (const server of engine.unversioned ?? []) {
    try {
      found.push(await replay(context, { plan, server }, calls));
    } catch (error) {
      if (!(error instanceof JobError) || error.code !== "NETWORK") {
        throw error;
      }
    }
  }
  const any: UnversionedServer = { url: plan.model.uri, run: (request) => engine.run(request) };
  return found.length > 0 ? found : [await replay(context, { plan, server: any }, calls)];
}

async function replay(
  context: JobContext,
  { plan, server }: { readonly plan: Plan; readonly server: UnversionedServer },
  calls: readonly ProbedCall[],
): Promise<ServerOutputs> {
  const replayed: ProbedCall[] = [];
  for (const { inputs } of calls) {
    const response = await server.run({ inputs, outputs: outputTensors(plan.contract) });
    replayed.push({ inputs, outputs: outputsIn(response) });
  }
  return { url: server.url, outputs: outputsOf(context, plan, replayed) };
}

/** A model that refuses rows which it scored before is another one: it has no predictions of them. */
function outputsIn(response: EngineResponse): ProbedCall["outputs"] {
  return response.kind === "done" ? response.outputs : [];
}
