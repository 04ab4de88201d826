import { openArrowUnitReader } from "../formats/arrow/unit-reader.js";
import { openParquetUnitReader } from "../formats/parquet/unit-reader.js";
import type { Unit, UnitReader } from "../formats/port.js";

const readers = { parquet: openParquetUnitReader, arrow: openArrowUnitReader } as const;

/** Opens what reads a format's units in a worker. */
export function openUnitReader(format: Unit["format"]): UnitReader {
  return readers[format]();
}
