import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { projectFolder } from "./cli.js";
import { pythonTools } from "./python-tools.js";

const tools = pythonTools("lakes", ["pyiceberg[sql-sqlite,pyarrow]==0.12.0", "deltalake==1.6.6", "pyarrow==26.0.1"]);
export const { missing, skipped } = tools;

export const lakeKinds = ["delta", "iceberg"] as const;
export type LakeKind = (typeof lakeKinds)[number];

/** A table that another program changes when it is asked to. */
export interface GrowingLake extends AsyncDisposable {
  readonly table: string;
  /** Has it carry out an action of growing.py: "append 0 100". */
  act(action: string): Promise<unknown>;
}

export async function growingLake(kind: LakeKind, folder: string): Promise<GrowingLake> {
  const script = join(projectFolder, "test/support/lakes/growing.py");
  const writer: ChildProcessWithoutNullStreams = spawn(join(tools.bin, "python"), [script, kind, folder]);
  const lines = createInterface(writer.stdout)[Symbol.asyncIterator]();
  let said = "";
  writer.stderr.on("data", (text: Buffer) => {
    said += String(text);
  });
  const line = async (): Promise<string> => {
    const next = await lines.next();
    if (next.done === true) {
      throw new Error(`the writer has ended: ${said}`);
    }
    return next.value;
  };
  return {
    table: await line(),
    async act(action) {
      writer.stdin.write(`${action}\n`);
      return JSON.parse(await line()) as unknown;
    },
    async [Symbol.asyncDispose]() {
      writer.kill();
      await Promise.resolve();
    },
  };
}
