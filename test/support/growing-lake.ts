import type { Socket } from "node:net";
import { type LakeProgram, startLakeProgram } from "./lake-programs.js";

export const lakeKinds = ["delta", "iceberg"] as const;
export type LakeKind = (typeof lakeKinds)[number];

/** A table that another program changes when it is asked to. */
export interface GrowingLake {
  readonly table: string;
  /** Has it carry out an action of growing.py: "append 0 100". */
  act(action: string): Promise<unknown>;
}

/** One program for all tables of this process: to start it takes longer than what it does for a test. */
let writer: LakeProgram | undefined;

export async function growingLake(kind: LakeKind, folder: string): Promise<GrowingLake> {
  writer ??= lastingWriter();
  const { ask } = writer;
  const table = JSON.parse(await ask(JSON.stringify(["open", kind, folder]))) as string;
  return { table, act: async (action) => JSON.parse(await ask(JSON.stringify([table, action]))) as unknown };
}

/** It ends with this process, and does not keep it. */
function lastingWriter(): LakeProgram {
  const program = startLakeProgram("growing.py", []);
  program.child.unref();
  for (const stream of [program.child.stdin, program.child.stdout, program.child.stderr]) {
    (stream as Socket).unref();
  }
  return program;
}
