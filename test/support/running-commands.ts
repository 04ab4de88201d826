import { AsyncLocalStorage } from "node:async_hooks";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { expect } from "vitest";

interface RunningCommand {
  /** The command line, and whether it has a process of its own. */
  readonly what: string;
  readonly pid: number;
  /** All of its stdout and stderr so far. */
  readonly output: () => string;
}

interface Started extends RunningCommand {
  readonly test: string | undefined;
  readonly startedMs: number;
}

const running = new Set<Started>();
const ended = new AsyncLocalStorage<string[]>();
/** Of what a command printed, in a message: the end. */
const shownLength = 4000;

/** Lists a command as running during `work`, which returns how it ended. */
export async function whileRunning<T extends { readonly code: number | null; readonly signal: string | null }>(
  command: RunningCommand,
  work: () => Promise<T>,
): Promise<T> {
  const started = { ...command, test: expect.getState().currentTestName, startedMs: performance.now() };
  running.add(started);
  try {
    const result = await work();
    const end = result.signal ?? result.code;
    ended.getStore()?.push(`${command.what} ended with ${end} and printed:\n${command.output().slice(-shownLength)}`);
    return result;
  } finally {
    running.delete(started);
  }
}

let recordings = 0;

/** Carries out `work`; `texts` receives how each of its commands ended and what it printed. */
export async function recordingCommands(texts: string[], work: () => Promise<void>): Promise<void> {
  recordings += 1;
  try {
    await ended.run(texts, work);
  } finally {
    recordings -= 1;
    if (recordings === 0) {
      ended.disable(); // it makes each promise of the process a little slower
    }
  }
}

/** Describes commands that have not ended: for how long they run, what they printed, and their threads and files. */
export function describeRunning(): string {
  return [...running].map(describe).join("\n");
}

function describe({ what, pid, output, test, startedMs }: Started): string {
  const seconds = ((performance.now() - startedMs) / 1000).toFixed(1);
  return [
    `STILL RUNNING after ${seconds} s: ${what} (process ${pid}; started by "${test ?? "?"}")`,
    `  printed: ${JSON.stringify(output().slice(-shownLength))}`,
    ...(pid === process.pid ? [`  waits for: ${counted(process.getActiveResourcesInfo()).join(", ")}`] : []),
    ...processLines(pid, "  "),
  ].join("\n");
}

/** Describes a process and its children by /proc; empty where there is none. */
function processLines(pid: number, indent: string): string[] {
  const threads = namesIn(`/proc/${pid}/task`);
  if (threads.length === 0) {
    return [`${indent}process ${pid} is gone`];
  }
  const files = namesIn(`/proc/${pid}/fd`).map((fd) => linkOf(`/proc/${pid}/fd/${fd}`));
  const children = threads.flatMap((thread) => textOf(`/proc/${pid}/task/${thread}/children`).split(" "));
  return [
    `${indent}process ${pid}: ${textOf(`/proc/${pid}/cmdline`).replaceAll("\0", " ")}`,
    ...counted(threads.map((thread) => threadLine(join(`/proc/${pid}/task`, thread)))).map(
      (line) => `${indent}  thread ${line}`,
    ),
    `${indent}  open: ${counted(files).join(", ")}`,
    ...children.filter(Boolean).flatMap((child) => processLines(Number(child), `${indent}  `)),
  ];
}

/** Returns a thread's name, state, seconds of processor time, and the place in the kernel where it waits. */
function threadLine(folder: string): string {
  const stat = textOf(join(folder, "stat"));
  const [state = "gone", ...numbers] = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  const ticks = Number(numbers[10] ?? 0) + Number(numbers[11] ?? 0);
  const [call = ""] = textOf(join(folder, "syscall")).trim().split(" ");
  const name = textOf(join(folder, "comm")).trim();
  return `${name} ${state} ${(ticks / 100).toFixed(1)} s in ${textOf(join(folder, "wchan"))}, system call ${call}`;
}

/** Names what comes several times once, with its number. */
function counted(texts: readonly string[]): string[] {
  const counts = new Map<string, number>();
  for (const text of texts) {
    counts.set(text, (counts.get(text) ?? 0) + 1);
  }
  return Array.from(counts, ([text, count]) => (count === 1 ? text : `${count} x ${text}`));
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch {
    return []; // the process has ended, or this is no Linux
  }
}

function textOf(path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
}

function linkOf(path: string): string {
  try {
    return readlinkSync(path).replace(/:\[\d+\]$/, "");
  } catch {
    return "closed";
  }
}
