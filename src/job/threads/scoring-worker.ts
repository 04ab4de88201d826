/** Runs in a worker thread that has a session of the model, and reads the units that it scores. */
import { parentPort } from "node:worker_threads";
import * as onnxruntime from "onnxruntime-node";
import { serveSession } from "../../models/onnx/session-server.js";
import { serveUnitsOn } from "./serve-units.js";

// Node 24 has Float16Array, and onnxruntime-common wraps the bits that it is given in one. Node-API does not know such
// arrays and takes them for empty. Without the class in this thread, the bits stay a Uint16Array.
Reflect.deleteProperty(globalThis, "Float16Array");

if (parentPort === null) {
  throw new Error("scoring-worker runs in a worker thread only");
}
serveSession(parentPort, { runtime: onnxruntime, serveUnits: serveUnitsOn });
