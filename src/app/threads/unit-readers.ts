import { openArrowUnitReader } from "../../formats/arrow/unit-reader.js";
import { openParquetUnitReader } from "../../formats/parquet/unit-reader.js";
import type { Unit, UnitReader } from "../../formats/port.js";

const readers = { parquet: openParquetUnitReader, arrow: openArrowUnitReader } as const;

/** Opens the reader of a format's units for a worker thread. */
export function openUnitReader(format: Unit["format"]): UnitReader {
  return readers[format]();
}
