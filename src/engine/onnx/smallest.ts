import type { Provider } from "../../spec/engine-spec.js";
import { onnxOptions, type Runtime } from "./session.js";

/** A model of one node, y = Identity(x), for float32 [1]. */
const smallestModel = "CAgSADo3ChAKAXgSAXkiCElkZW50aXR5EgFnWg8KAXgSCgoICAESBAoCCAFiDwoBeRIKCggIARIECgIIAUIECgAQEQ==";

/** Opens, runs and releases the smallest model on one provider. Rejects with what ONNX Runtime says. */
export async function runSmallest({ InferenceSession, Tensor }: Runtime, provider: Provider): Promise<void> {
  const bytes = Uint8Array.from(atob(smallestModel), (letter) => letter.charCodeAt(0));
  const session = await InferenceSession.create(bytes, { ...onnxOptions, executionProviders: [provider] });
  await session.run({ x: new Tensor("float32", new Float32Array(1), [1]) });
  await session.release();
}
