import { closeSync, openSync } from "node:fs";
import { areHere, releaseMemory, takeMemory } from "../../columnar/memory/vectors.js";
import { readFully } from "../read-fully.js";
import type { UnitReader } from "../port.js";
import type { PageMemory } from "./pages/page-memory.js";
import { openUnitPieces, type ParquetUnit } from "./units.js";

/**
 * Reads units of Parquet shards: pages are unpacked into memory that is used again. Without WebAssembly no unit is read
 * (RangeError): DuckDB reads instead.
 */
export function openParquetUnitReader(): UnitReader {
  const pageMemories: PageMemory[] = [];
  let packed = takeMemory(64 * 1024);
  const hasLoops = areHere([packed]);
  let file: OpenFile | undefined;
  const pieces = openUnitPieces({
    pageMemories,
    scratch(size) {
      if (packed.length < size) {
        releaseMemory([packed]);
        packed = new Uint8Array(); // there may be no memory for more
        packed = takeMemory(size);
      }
      return packed;
    },
    read(bytes, start) {
      if (file === undefined) {
        throw new Error("a page is read when its unit is through");
      }
      if (readFully(file.number, bytes, start) < bytes.length) {
        throw new RangeError(`${file.path} ends before byte ${start + bytes.length}`);
      }
    },
  });
  return {
    *read(unit) {
      const parquetUnit = unit as ParquetUnit; // the format says so
      const { path } = parquetUnit;
      if (!hasLoops) {
        throw new RangeError("a thread without WebAssembly memory");
      }
      const opened = { number: openSync(path, "r"), path };
      file = opened;
      try {
        yield* pieces.read(parquetUnit);
      } finally {
        file = undefined;
        closeSync(opened.number);
      }
    },
    close() {
      releaseMemory([packed]);
      for (const pageMemory of pageMemories.splice(0)) {
        pageMemory.close();
      }
    },
  };
}

/** The file of the unit that is read. */
interface OpenFile {
  readonly number: number;
  readonly path: string;
}
