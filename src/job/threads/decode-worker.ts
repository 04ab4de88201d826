/** Runs in a worker thread that does nothing but decode. */
import { parentPort } from "node:worker_threads";
import { serveUnitsOn } from "./serve-units.js";

if (parentPort === null) {
  throw new Error("decode-worker runs in a worker thread only");
}
serveUnitsOn(parentPort);
