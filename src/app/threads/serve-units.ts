import { serveUnits, type UnitModels } from "../../scoring/workers/unit-server.js";
import type { WorkerPort } from "../../util/rpc.js";
import { addressSpaceBytes } from "../process-limits.js";
import { openUnitReader } from "./unit-readers.js";

/** Reads units in this thread for the other end of a port, and scores them with the models that the thread has. */
export function serveUnitsOn(port: WorkerPort, models: UnitModels = {}): void {
  serveUnits(port, {
    ...models,
    openReader: openUnitReader,
    isAddressSpaceLimited: Number.isFinite(addressSpaceBytes()),
  });
}
