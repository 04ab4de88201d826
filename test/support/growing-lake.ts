import { spawn } from "node:child_process";
import type { Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { projectFolder } from "./cli.js";
import { pythonTools } from "./python-tools.js";

const tools = pythonTools("lakes", ["pyiceberg[sql-sqlite,pyarrow]==0.12.0", "deltalake==1.6.6", "pyarrow==26.0.1"]);
export const { missing, skipped } = tools;

export const lakeKinds = ["delta", "iceberg"] as const;
export type LakeKind = (typeof lakeKinds)[number];

/** A table that another program changes when it is asked to. */
export interface GrowingLake {
  readonly table: string;
  /** Has it carry out an action of growing.py: "append 0 100". */
  act(action: string): Promise<unknown>;
}

/** Sends a request to growing.py and returns its answer. */
type Ask = (request: readonly string[]) => Promise<unknown>;

/** One program for all tables of this process: to start it takes longer than what it does for a test. */
let writer: Ask | undefined;

export async function growingLake(kind: LakeKind, folder: string): Promise<GrowingLake> {
  writer ??= startWriter();
  const ask = writer;
  const table = String(await ask(["open", kind, folder]));
  return { table, act: (action) => ask([table, action]) };
}

function startWriter(): Ask {
  const child = spawn(join(tools.bin, "python"), [join(projectFolder, "test/support/lakes/growing.py")]);
  // It ends with this process, and does not keep it.
  child.unref();
  for (const stream of [child.stdin, child.stdout, child.stderr]) {
    (stream as Socket).unref();
  }
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  let said = "";
  child.stderr.on("data", (text: Buffer) => {
    said += String(text);
  });
  return async (request) => {
    child.stdin.write(`${JSON.stringify(request)}\n`);
    const next = await lines.next();
    if (next.done === true) {
      writer = undefined;
      throw new Error(`the writer has ended: ${said}`);
    }
    return JSON.parse(next.value) as unknown;
  };
}
