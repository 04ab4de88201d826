import { openArrowUnitReader } from "../../formats/arrow/units.js";
import { openParquetUnitReader } from "../../formats/parquet/units.js";
import type { Unit, UnitReader } from "../../formats/port.js";

const readers = { parquet: openParquetUnitReader, arrow: openArrowUnitReader } as const;

/** Opens the reader of a format's units for a worker thread. */
export function openUnitReader(format: Unit["format"]): UnitReader {
  return readers[format]();
}
