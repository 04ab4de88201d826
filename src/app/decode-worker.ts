/** Runs in a worker thread that does nothing but decode. */
import { parentPort } from "node:worker_threads";
import { serveUnits } from "../scoring/workers/unit-server.js";
import { openUnitReader } from "./unit-readers.js";

if (parentPort === null) {
  throw new Error("decode-worker runs in a worker thread only");
}
serveUnits(parentPort, { openReader: openUnitReader });
