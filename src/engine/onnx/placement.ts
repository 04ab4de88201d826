import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Provider } from "../../spec/engine-spec.js";
import { messageOf } from "../../util/errors.js";
import type { Operators } from "../port.js";
import { blankBatch, tensorOutputs } from "./blank-batch.js";
import type { WorkerSettings } from "./protocol.js";
import { type OnnxSession, openSession, type Runtime } from "./session.js";

/** Providers that leave operators to the CPU without saying so. CUDA and TensorRT do, too: `doctor` counts theirs. */
const placing: ReadonlySet<Provider> = new Set(["webgpu", "coreml", "dml"]);
/** core/session/inference_session.cc, where `disable_cpu_ep_fallback` is set. */
const leftToCpu = /fallback to CPU EP has been explicitly disabled/;
/** core/providers/webgpu: found when the first batch is computed, not when the session is opened. */
const unsupportedType = /requires \w+ but the device does not support it/;

/**
 * Opens a session, and finds out whether the CPU computes a part of the model. Rejects with what ONNX Runtime says, also
 * if the device lacks a type that the model uses.
 */
export async function openPlaced(
  runtime: Runtime,
  settings: WorkerSettings,
): Promise<{ readonly session: OnnxSession; readonly operators: Operators }> {
  const { modelPath, providers, profile } = settings;
  if (!placing.has(providers[0] ?? "cpu")) {
    return { session: await openSession(runtime, settings, modelPath), operators: undefined };
  }
  try {
    const session = await openSession(runtime, { ...settings, wholeModel: true }, modelPath);
    await (profile === undefined ? refuseUnsupported(session) : undefined);
    return { session, operators: undefined };
  } catch (error) {
    if (!leftToCpu.test(messageOf(error))) {
      throw error;
    }
  }
  const operators = await countOperators(runtime, settings);
  return { session: await openSession(runtime, settings, modelPath), operators };
}

/** Runs a blank batch. A model may refuse blank rows and still score others: only a missing type is an error. */
async function refuseUnsupported(session: OnnxSession): Promise<void> {
  const { signature } = session;
  try {
    await session.run({ inputs: blankBatch(signature), outputs: tensorOutputs(signature) });
  } catch (error) {
    if (unsupportedType.test(messageOf(error))) {
      await session.close();
      throw error;
    }
  }
}

async function countOperators(runtime: Runtime, settings: WorkerSettings): Promise<Operators> {
  const { operatorsByProvider } = await import("./operators.js");
  const folder = await mkdtemp(join(tmpdir(), "infer-batch-operators-"));
  try {
    const session = await openSession(runtime, { ...settings, profile: { folder, session: 0 } }, settings.modelPath);
    await refuseUnsupported(session);
    await session.close(); // writes the profile
    const operators = await operatorsByProvider(folder);
    return Object.keys(operators).length === 0 ? undefined : operators; // a model that refuses blank rows tells nothing
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}
