import type { RunModel } from "../../engine/port.js";
import { serveUnits } from "../../scoring/workers/unit-server.js";
import type { WorkerPort } from "../../util/worker-port.js";
import { addressSpaceBytes } from "../process-limits.js";
import { openUnitReader } from "./unit-readers.js";

/** Reads units in this thread for the other end of a port. `run`: the model that scores them here. */
export function serveUnitsOn(port: WorkerPort, run?: RunModel): void {
  serveUnits(port, { openReader: openUnitReader, run, isAddressSpaceLimited: Number.isFinite(addressSpaceBytes()) });
}
