import { closeSync, openSync } from "node:fs";
import { giveBackMemory, takeMemory } from "../../columnar/memory/vectors.js";
import { cutPieces } from "../../formats/arrow/columns/batches.js";
import type { Piece } from "../../columnar/piece.js";
import { openBytesHere, readFully } from "../../formats/arrow/ipc/bytes.js";
import { openShards } from "../../formats/arrow/ipc/shards.js";
import type { ArrowUnit, Unit } from "./decode-protocol.js";
import type { PageRoom } from "../../formats/parquet/pages/page-memory.js";
import { openUnitPieces, type ParquetUnit } from "../../formats/parquet/units.js";
import { plannedColumns } from "../../formats/planned-columns.js";
import type { Projection } from "../../binding/contract.js";

/** What is kept from unit to unit. */
export function unitReaders(): {
  read(unit: Unit, projection: Projection): AsyncIterable<Piece> | Iterable<Piece>;
  /** Gives back what is kept; nothing may be read any more. */
  close(): void;
} {
  const parquet = parquetReader();
  const openArrow = new Map<ArrowUnit["claim"], ReturnType<typeof openShards>>();
  const open = (claim: ArrowUnit["claim"]): ReturnType<typeof openShards> => {
    const shards = openArrow.get(claim) ?? openShards(() => claim, openBytesHere);
    openArrow.set(claim, shards);
    return shards;
  };
  return {
    read: (unit, projection) =>
      unit.kind === "parquet" ? parquet.read(unit) : arrowRows(unit, projection, open(unit.claim)),
    close: parquet.close,
  };
}

interface ParquetReader {
  read(unit: ParquetUnit): Generator<Piece>;
  readonly close: () => void;
}

function parquetReader(): ParquetReader {
  const rooms: PageRoom[] = [];
  let packed = takeMemory(64 * 1024);
  let file: OpenFile | undefined;
  const pieces = openUnitPieces({
    rooms,
    scratch(size) {
      if (packed.length < size) {
        giveBackMemory([packed]);
        packed = new Uint8Array(); // there may be no memory for more
        packed = takeMemory(size);
      }
      return packed;
    },
    read(bytes, start) {
      if (file === undefined) {
        throw new Error("a page is read when its unit is through");
      }
      const { number, path } = file;
      readFully(number, { path, name: path }, { bytes, start });
    },
  });
  return {
    *read(unit) {
      const { path } = unit;
      const opened = { number: openSync(path, "r"), path };
      file = opened;
      try {
        yield* pieces.read(unit);
      } finally {
        file = undefined;
        closeSync(opened.number);
      }
    },
    close() {
      giveBackMemory([packed]);
      for (const room of rooms.splice(0)) {
        room.close();
      }
    },
  };
}

/** The file of the unit that is read. */
interface OpenFile {
  readonly number: number;
  readonly path: string;
}

async function* arrowRows(
  unit: ArrowUnit,
  projection: Projection,
  open: ReturnType<typeof openShards>,
): AsyncGenerator<Piece> {
  const lent: Uint8Array<ArrayBuffer>[] = [];
  const lend = (bytes: number): Uint8Array<ArrayBuffer> => {
    const memory = takeMemory(bytes);
    lent.push(memory);
    return memory;
  };
  await using shard = await open({ path: unit.path, name: unit.path });
  const request = { ...unit, columns: plannedColumns(projection), known: shard.known, lend };
  try {
    for await (const piece of cutPieces(shard.bytes, shard.index, request)) {
      yield piece;
      giveBackMemory(lent.splice(0));
    }
  } finally {
    giveBackMemory(lent);
  }
}
