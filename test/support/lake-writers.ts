import { join } from "node:path";
import { projectFolder } from "./cli.js";
import { type LineProgram, lineProgram } from "./line-program.js";
import { pythonTools } from "./python-tools.js";

/** What writes tables of Delta Lake and Iceberg. */
export const { bin, missing, skipped } = pythonTools("lakes", [
  "pyiceberg[sql-sqlite,pyarrow]==0.12.0",
  "deltalake==1.6.6",
  "pyarrow==26.0.1",
]);

/** A program of test/support/lakes that writes tables, and tells of them line by line. */
export function lakeWriter(program: string, args: readonly string[], env: NodeJS.ProcessEnv = {}): LineProgram {
  return lineProgram(bin, [join(projectFolder, "test/support/lakes", program), ...args], env);
}

export const lakeKinds = ["delta", "iceberg"] as const;
export type LakeKind = (typeof lakeKinds)[number];

/** A table that another program changes when it is asked to. */
export interface GrowingLake {
  readonly table: string;
  /** Has it carry out actions of growing.py, such as "append 0 100"; returns the last one's answer. */
  act(...actions: readonly string[]): Promise<unknown>;
}

/** One program for all tables of this process: to start it takes longer than what it does for a test. */
let growing: LineProgram | undefined;

export async function growingLake(kind: LakeKind, folder: string, ...actions: readonly string[]): Promise<GrowingLake> {
  growing ??= lakeWriter("growing.py", []);
  growing.unref();
  const writer = growing;
  const table = JSON.parse(await writer.ask(JSON.stringify(["open", kind, folder]))) as string;
  const act: GrowingLake["act"] = async (action, ...others) => {
    const answer = JSON.parse(await writer.ask(JSON.stringify([table, action]))) as unknown;
    return others.length === 0 ? answer : await act(...others);
  };
  await (actions.length > 0 && act(...actions));
  return { table, act };
}
