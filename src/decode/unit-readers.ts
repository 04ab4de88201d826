import { closeSync, openSync } from "node:fs";
import { giveBackMemory, takeMemory } from "../batch/vectors.js";
import { cutPieces, type Piece } from "./arrow-batches.js";
import { openBytesHere, readFully } from "./arrow-bytes.js";
import { openShards } from "./arrow-shards.js";
import type { ArrowUnit, Unit } from "./decode-protocol.js";
import type { PageRoom } from "./page-room.js";
import { type ParquetUnit, parquetPieces, type UnitTools } from "./parquet-units.js";
import { plannedColumns } from "./planned-columns.js";
import type { Projection } from "./port.js";

/** What is kept from unit to unit. */
export function unitReaders(): {
  read(unit: Unit, projection: Projection): AsyncIterable<Piece> | Iterable<Piece>;
  /** Gives back what is kept; nothing may be read any more. */
  close(): void;
} {
  const rooms: PageRoom[] = [];
  let packed = takeMemory(64 * 1024);
  const scratch = (size: number): Uint8Array => {
    if (packed.length < size) {
      giveBackMemory([packed]);
      packed = takeMemory(size);
    }
    return packed;
  };
  const openArrow = new Map<ArrowUnit["claim"], ReturnType<typeof openShards>>();
  const open = (claim: ArrowUnit["claim"]): ReturnType<typeof openShards> => {
    const shards = openArrow.get(claim) ?? openShards(() => claim, openBytesHere);
    openArrow.set(claim, shards);
    return shards;
  };
  return {
    read: (unit, projection) =>
      unit.kind === "parquet" ? parquetRows(unit, { scratch, rooms }) : arrowRows(unit, projection, open(unit.claim)),
    close() {
      giveBackMemory([packed]);
      for (const room of rooms.splice(0)) {
        room.close();
      }
    },
  };
}

function* parquetRows(unit: ParquetUnit, tools: Omit<UnitTools, "read">): Generator<Piece> {
  const file = openSync(unit.path, "r");
  try {
    yield* parquetPieces(unit, {
      ...tools,
      read(bytes, start) {
        readFully(file, { path: unit.path, name: unit.path }, { bytes, start });
      },
    });
  } finally {
    closeSync(file);
  }
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
