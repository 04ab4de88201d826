import { releaseMemory, takeMemory } from "../../columnar/memory/vectors.js";
import type { Piece } from "../../columnar/piece.js";
import { cutPieces } from "./ipc/batches.js";
import { openBytesHere } from "./ipc/bytes.js";
import { openShards } from "./ipc/shards.js";
import type { ArrowUnit } from "./units.js";
import type { Unit, UnitReader } from "../port.js";
import { plannedColumns } from "../planned-columns.js";
import type { Projection } from "../../binding/contract.js";

/** Reads units of Arrow shards: values are read into memory that is used again. */
export function openArrowUnitReader(): UnitReader {
  const opened = new Map<ArrowUnit["claim"], ReturnType<typeof openShards>>();
  const openerOf = (claim: ArrowUnit["claim"]): ReturnType<typeof openShards> => {
    const opener = opened.get(claim) ?? openShards(() => claim, openBytesHere);
    opened.set(claim, opener);
    return opener;
  };
  return {
    read(unit: Unit, projection) {
      const arrowUnit = unit as ArrowUnit; // the format says so
      return arrowRows(arrowUnit, projection, openerOf(arrowUnit.claim));
    },
    close() {
      // Each unit gives its memory back.
    },
  };
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
      releaseMemory(lent.splice(0));
    }
  } finally {
    releaseMemory(lent);
  }
}
