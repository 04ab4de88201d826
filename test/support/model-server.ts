import { spawn } from "node:child_process";
import { closeSync, openSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

export interface ModelServerProcess extends AsyncDisposable {
  readonly url: string;
  /** Ends it, and what it has started, with SIGKILL. */
  stop(): Promise<void>;
  /** Starts it again at the same URL, and returns before it is ready. */
  start(): void;
}

export interface ModelServerCommand {
  /** For messages: "MLServer". */
  readonly name: string;
  readonly url: string;
  /** A path that answers 200 when the model is ready. */
  readonly readyPath: string;
  /** The folder that it runs in, and where `server.log` is. */
  readonly folder: string;
  readonly command: readonly [string, ...string[]];
  readonly env: Readonly<Record<string, string | undefined>>;
}

/** Starts a server, and waits until its model is ready. */
export async function startModelServer({
  name,
  url,
  readyPath,
  folder,
  command: [program, ...args],
  env,
}: ModelServerCommand): Promise<ModelServerProcess> {
  const log = join(folder, "server.log");
  const ended: Promise<unknown>[] = [];
  let child: ReturnType<typeof spawn> | undefined;
  const start = (): void => {
    const output = openSync(log, "a");
    // A group of its own: Triton's launcher and its Python backends outlive the first process.
    child = spawn(program, args, { cwd: folder, stdio: ["ignore", output, output], env, detached: true });
    closeSync(output);
    const started = child;
    ended.push(new Promise((done) => started.once("close", done)));
  };
  const stop = async (): Promise<void> => {
    try {
      process.kill(-(child?.pid ?? 0), "SIGKILL");
    } catch {
      // It has ended.
    }
    await Promise.all(ended);
  };
  start();
  while ((await fetch(`${url}${readyPath}`).catch(() => undefined))?.ok !== true) {
    if (child?.exitCode !== null) {
      throw new Error(`${name} did not start: ${readFileSync(log, "utf8").slice(-2000)}`);
    }
    await sleep(100);
  }
  return { url, stop, start, [Symbol.asyncDispose]: stop };
}
