import { type ChildProcess, spawn } from "node:child_process";
import type { Socket } from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";

export interface LineProgram extends AsyncDisposable {
  line(): Promise<string>;
  /** Sends it a line, and returns the next one that it tells. */
  ask(line: string): Promise<string>;
  /** Has it end with this process, which it does not keep. */
  unref(): void;
}

/** Starts a script of Python. @param bin where the interpreter is */
export function lineProgram(bin: string, script: readonly string[], env: NodeJS.ProcessEnv = {}): LineProgram {
  const child = spawn(join(bin, "python"), script, { env: { ...process.env, ...env } });
  child.stdin.on("error", () => undefined); // it has ended: `line` says so
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  let said = "";
  child.stderr.on("data", (text: Buffer) => {
    said += String(text);
  });
  const line = async (): Promise<string> => {
    const next = await lines.next();
    if (next.done === true) {
      throw new Error(`${script.join(" ")} has ended: ${said}`);
    }
    return next.value;
  };
  return {
    line,
    async ask(asked) {
      child.stdin.write(`${asked}\n`);
      return await line();
    },
    unref() {
      child.unref();
      for (const stream of [child.stdin, child.stdout, child.stderr]) {
        (stream as Socket).unref();
      }
    },
    [Symbol.asyncDispose]: () => ended(child),
  };
}

/** Kills a program, unless it has ended. */
export async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode === null && child.signalCode === null) {
    const exited = new Promise((done) => child.once("exit", done));
    child.kill("SIGKILL");
    await exited;
  }
}
