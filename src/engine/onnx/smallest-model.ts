import type { Provider } from "../../spec/engine-spec.js";
import { onnxOptions, type Runtime } from "./session.js";

/** A model of one node, y = Identity(x), for float32 [1]. */
const smallestModel = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

/** Opens and releases the smallest model on the CPU: ONNX Runtime then makes what all sessions share. */
export async function openSmallestModel(runtime: Pick<Runtime, "InferenceSession">): Promise<void> {
  const session = await runtime.InferenceSession.create(smallestBytes(), onnxOptions);
  await session.release();
}

/** Opens, runs and releases the smallest model on one provider. Rejects with what ONNX Runtime says. */
export async function runSmallestModel({ InferenceSession, Tensor }: Runtime, provider: Provider): Promise<void> {
  const session = await InferenceSession.create(smallestBytes(), { ...onnxOptions, executionProviders: [provider] });
  await session.run({ x: new Tensor("float32", new Float32Array(1), [1]) });
  await session.release();
}

function smallestBytes(): Uint8Array {
  return Uint8Array.from(atob(smallestModel), (letter) => letter.charCodeAt(0));
}
