import { openArrowUnitReader } from "../../formats/arrow/units.js";
import { openParquetUnitReader } from "../../formats/parquet/units.js";
import type { Unit, UnitReader } from "../../formats/format.js";
import { type UnitModels, serveUnits } from "../../flow/workers/unit-server.js";
import { addressSpaceBytes } from "../machine.js";
import type { WorkerPort } from "../../base/rpc.js";

/** Reads units in this thread for the other end of a port, and scores them with the models that the thread has. */
export function serveUnitsOn(port: WorkerPort, models: UnitModels = {}): void {
  serveUnits(port, {
    ...models,
    openReader: openUnitReader,
    isAddressSpaceLimited: Number.isFinite(addressSpaceBytes()),
  });
}

const readers = { parquet: openParquetUnitReader, arrow: openArrowUnitReader } as const;

/** Opens the reader of a format's units for a worker thread. @public so that tests reach it */
export function openUnitReader(format: Unit["format"]): UnitReader {
  return readers[format]();
}
