import { spawn } from "node:child_process";
import type { Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { projectFolder } from "./cli.js";
import { pythonTools } from "./python-tools.js";

/** What writes tables of Delta Lake and Iceberg. */
export const { bin, missing, skipped } = pythonTools("lakes", [
  "pyiceberg[sql-sqlite,pyarrow]==0.12.0",
  "deltalake==1.6.6",
  "pyarrow==26.0.1",
]);

/** A program of test/support/lakes that writes tables, and tells of them line by line. */
export interface LakeWriter extends AsyncDisposable {
  /** The next line that it tells. */
  line(): Promise<string>;
  /** Sends it a line, and returns the next one that it tells. */
  ask(line: string): Promise<string>;
  /** Has it end with this process, which it does not keep. */
  unref(): void;
}

export function lakeWriter(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): LakeWriter {
  const script = join(projectFolder, "test/support/lakes", program);
  const writer = spawn(join(bin, "python"), [script, ...args], { env: { ...process.env, ...env } });
  writer.stdin.on("error", () => undefined); // it has ended: `line` says so
  const exited = new Promise((done) => writer.once("exit", done));
  const lines = createInterface(writer.stdout)[Symbol.asyncIterator]();
  let said = "";
  writer.stderr.on("data", (text: Buffer) => {
    said += String(text);
  });
  const line = async (): Promise<string> => {
    const next = await lines.next();
    if (next.done === true) {
      throw new Error(`${program} has ended: ${said}`);
    }
    return next.value;
  };
  return {
    line,
    async ask(asked) {
      writer.stdin.write(`${asked}\n`);
      return await line();
    },
    unref() {
      writer.unref();
      for (const stream of [writer.stdin, writer.stdout, writer.stderr]) {
        (stream as Socket).unref();
      }
    },
    async [Symbol.asyncDispose]() {
      writer.kill("SIGKILL");
      await exited;
    },
  };
}

export const lakeKinds = ["delta", "iceberg"] as const;
export type LakeKind = (typeof lakeKinds)[number];

/** A table that another program changes when it is asked to. */
export interface GrowingLake {
  readonly table: string;
  /** Has it carry out an action of growing.py: "append 0 100". */
  act(action: string): Promise<unknown>;
}

/** One program for all tables of this process: to start it takes longer than what it does for a test. */
let growing: LakeWriter | undefined;

export async function growingLake(kind: LakeKind, folder: string): Promise<GrowingLake> {
  growing ??= lakeWriter("growing.py", []);
  growing.unref();
  const writer = growing;
  const table = JSON.parse(await writer.ask(JSON.stringify(["open", kind, folder]))) as string;
  return { table, act: async (action) => JSON.parse(await writer.ask(JSON.stringify([table, action]))) as unknown };
}
